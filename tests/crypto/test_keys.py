"""Keys against the RFCs' vectors and a second HKDF and HPKE, written from the RFCs' text."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.crypto import (
    SEAL_OVERHEAD,
    AuthenticationError,
    FormatError,
    Label,
    PrivateKey,
    SecretKey,
    seal,
)
from lpgcn.crypto.context import VERSION
from lpgcn.crypto.keys import _hkdf

MARK = bytes((VERSION,))
"""Before everything that is derived or sealed."""


def hash_mac(key: bytes, message: bytes) -> bytes:
    return hmac.new(key, message, hashlib.sha256).digest()


def expand(key: bytes, info: bytes, length: int) -> bytes:
    out, block = b"", b""
    for number in range(1, length // 32 + 2):
        block = hash_mac(key, block + info + bytes((number,)))
        out += block
    return out[:length]


def reference_hkdf(secret: bytes, info: bytes) -> bytes:
    return expand(hash_mac(bytes(32), secret), info, 32)


class ReferenceHpke:
    """RFC 9180, base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-GCM."""

    def __init__(self, aead: int) -> None:
        self.kem_suite = b"KEM" + (0x20).to_bytes(2, "big")
        self.suite = b"HPKE" + b"".join(x.to_bytes(2, "big") for x in (0x20, 1, aead))
        self.key_bytes = {1: 16, 2: 32}[aead]

    @staticmethod
    def extract(suite: bytes, salt: bytes, label: bytes, secret: bytes) -> bytes:
        return hash_mac(salt or bytes(32), b"HPKE-v1" + suite + label + secret)

    @staticmethod
    def labelled(suite: bytes, key: bytes, label: bytes, info: bytes, length: int) -> bytes:
        return expand(key, length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info, length)

    def cipher(self, dh: bytes, enc: bytes, public: bytes, info: bytes) -> tuple[AESGCM, bytes]:
        eae = self.extract(self.kem_suite, b"", b"eae_prk", dh)
        shared = self.labelled(self.kem_suite, eae, b"shared_secret", enc + public, 32)
        context = b"\0" + self.extract(self.suite, b"", b"psk_id_hash", b"")
        context += self.extract(self.suite, b"", b"info_hash", info)
        secret = self.extract(self.suite, shared, b"secret", b"")
        key = self.labelled(self.suite, secret, b"key", context, self.key_bytes)
        return AESGCM(key), self.labelled(self.suite, secret, b"base_nonce", context, 12)

    def seal(self, ephemeral: bytes, public: bytes, plain: bytes, info: bytes, aad: bytes) -> bytes:
        private = X25519PrivateKey.from_private_bytes(ephemeral)
        enc = private.public_key().public_bytes_raw()
        dh = private.exchange(X25519PublicKey.from_public_bytes(public))
        cipher, nonce = self.cipher(dh, enc, public, info)
        return enc + cipher.encrypt(nonce, plain, aad)

    def open(self, private: bytes, sealed: bytes, info: bytes) -> bytes:
        key = X25519PrivateKey.from_private_bytes(private)
        dh = key.exchange(X25519PublicKey.from_public_bytes(sealed[:32]))
        public = key.public_key().public_bytes_raw()
        cipher, nonce = self.cipher(dh, sealed[:32], public, info)
        return cipher.decrypt(nonce, sealed[32:], b"")


def test_hkdf_gives_the_vector_of_rfc_5869_case_3() -> None:
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert _hkdf(b"\x0b" * 22, b"").hex() == expected
    assert reference_hkdf(b"\x0b" * 22, b"").hex() == expected


def test_reference_hpke_gives_the_vector_of_rfc_9180_a_1_1() -> None:
    sealed = ReferenceHpke(1).seal(
        bytes.fromhex("52c4a758a802cd8b936eceea314432798d5baf2d7e9235dc084ab1b9cfa2f736"),
        bytes.fromhex("3948cfe0ad1ddb695d780e59077195da6c56506b027329794ab02bca80815c4d"),
        b"Beauty is truth, truth beauty",
        b"Ode on a Grecian Urn",
        b"Count-0",
    )
    assert sealed.hex() == (
        "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
        "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a9"
        "6d8770ac83d07bea87e13c512a"
    )


@given(st.binary(max_size=80), st.binary(max_size=40))
def test_sealing_is_hpke_behind_a_version_byte(plain: bytes, info: bytes) -> None:
    private, reference = PrivateKey.generate(), ReferenceHpke(2)
    sealed = seal(private.public_bytes, plain, info)
    assert len(sealed) == len(plain) + SEAL_OVERHEAD and sealed[0] == VERSION
    assert private.open(sealed, info) == plain
    assert reference.open(private._key.private_bytes_raw(), sealed[1:], MARK + info) == plain
    other = reference.seal(b"\x05" * 32, private.public_bytes, plain, MARK + info, b"")
    assert private.open(MARK + other, info) == plain


@settings(max_examples=200)
@given(st.data())
def test_a_changed_sealed_message_does_not_open(data: st.DataObject) -> None:
    private = PrivateKey(b"\x07" * 32)
    sealed = bytearray(seal(private.public_bytes, b"bits and keys", b"here"))
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises((AuthenticationError, FormatError)):
        private.open(bytes(sealed), b"here")


def test_the_bit_of_a_point_that_x25519_ignores_counts_too() -> None:
    private = PrivateKey(b"\x07" * 32)
    sealed = bytearray(seal(private.public_bytes, b"bits and keys", b"here"))
    sealed[32] ^= 0x80
    with pytest.raises(AuthenticationError):
        private.open(bytes(sealed), b"here")


def test_sealed_messages_belong_to_one_key_and_one_info() -> None:
    private = PrivateKey.generate()
    sealed = seal(private.public_bytes, b"S", b"run 1")
    for key, info in ((private, b"run 2"), (PrivateKey.generate(), b"run 1")):
        with pytest.raises(AuthenticationError):
            key.open(sealed, info)
    for broken in (b"", sealed[:48], b"\1" + sealed[1:]):
        with pytest.raises(FormatError):
            private.open(broken, b"run 1")
    with pytest.raises(AuthenticationError):
        private.open(MARK + bytes(32) + sealed[33:], b"run 1")


@given(st.binary(min_size=32, max_size=32), st.sampled_from(Label), st.binary(max_size=20))
def test_derivation_is_hkdf_with_label_and_context(key: bytes, label: Label, place: bytes) -> None:
    info = bytes((VERSION, len(label.value))) + label.value.encode() + place
    assert SecretKey(key).derive(label, place).reveal() == reference_hkdf(key, info)


def test_each_purpose_has_its_own_key() -> None:
    key = SecretKey.generate()
    derived = {key.derive(label, context).reveal() for label in Label for context in (b"", b"x")}
    assert len(derived) == 2 * len(Label)


def test_agreement_is_x25519_then_hkdf() -> None:
    """With the pairs and the shared secret of RFC 7748, section 6.1."""
    alice, bob, shared = map(
        bytes.fromhex,
        (
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
            "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f",
            "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742",
        ),
    )
    key = PrivateKey(alice)
    info = MARK + b"\x09agreement" + key.public_bytes + bob + b"pair"
    assert key.public_bytes < bob
    assert key.agree(bob, b"pair").reveal() == reference_hkdf(shared, info)


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_both_sides_agree_and_contexts_separate(first: bytes, second: bytes) -> None:
    alice, bob = PrivateKey(b"\x01" * 32), PrivateKey(b"\x02" * 32)
    agreed = alice.agree(bob.public_bytes, first)
    assert agreed == bob.agree(alice.public_bytes, first)
    assert (agreed == alice.agree(bob.public_bytes, second)) == (first == second)


@pytest.mark.parametrize("point", [bytes(32), b"\1" + bytes(31)])
def test_points_of_small_order_are_refused(point: bytes) -> None:
    with pytest.raises(AuthenticationError, match="small order"):
        PrivateKey.generate().agree(point, b"")
    with pytest.raises(AuthenticationError, match="small order"):
        seal(point, b"S", b"")


@pytest.mark.parametrize("length", [0, 31, 33])
def test_keys_of_wrong_length_are_refused_without_being_shown(length: int) -> None:
    secret = b"\xab" * length
    for make in (
        lambda: SecretKey(secret),
        lambda: PrivateKey(secret),
        lambda: seal(secret, b"", b""),
        lambda: PrivateKey.generate().agree(secret, b""),
    ):
        with pytest.raises(FormatError, match=f"found {length}") as caught:
            make()
        assert "abab" not in str(caught.value) and "xab" not in str(caught.value)


def test_keys_hide_in_repr() -> None:
    key, private = SecretKey(b"\xab" * 32), PrivateKey(b"\xab" * 32)
    for shown in (repr(key), str(key), f"{key}", repr([key]), repr(private), str(private)):
        assert "hidden" in shown
        assert "abab" not in shown and "\\xab" not in shown
