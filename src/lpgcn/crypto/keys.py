"""Symmetric keys with one label per purpose, X25519 key pairs, and sealing to a public key (HPKE).

Bytes leave a key only by `reveal`, which is there to put one key inside a sealed message.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lpgcn.crypto.context import VERSION
from lpgcn.crypto.errors import AuthenticationError, FormatError

KEY_BYTES: Final = 32
SEAL_OVERHEAD: Final = 1 + 32 + 16
"""A sealed message is longer than its content by version, encapsulated key and tag."""

_SMALL_ORDER: Final = (
    "the peer's public key is a point of small order, which would make the shared secret known to "
    "all; refuse this peer"
)


class Label(StrEnum):
    """What a derived key is for. Values are part of the format: they may be added, not changed."""

    ITEM_TOKENS = "item tokens"
    ITEM_VECTORS = "item vectors"
    USER_VECTORS = "user vectors"
    """The key from S under which suite `paper` seals user vectors."""
    AGREEMENT = "agreement"
    SHARED_SUMS = "shared sums"
    """The key from S under which sums that are for all clients are veiled."""
    SHARED_WEIGHTS = "shared weights"
    """The key from S under which a copy of the dense weights goes to those who join."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class SecretKey:
    """32 secret bytes, hidden from repr and compared in constant time."""

    _bytes: bytes

    def __post_init__(self) -> None:
        if len(self._bytes) != KEY_BYTES:
            raise FormatError(f"a secret key has {KEY_BYTES} bytes, found {len(self._bytes)}")

    @classmethod
    def generate(cls) -> SecretKey:
        return cls(secrets.token_bytes(KEY_BYTES))

    def derive(self, label: Label, context: bytes = b"") -> SecretKey:
        """HKDF-SHA256 (RFC 5869) with info = version ‖ length of label ‖ label ‖ context."""
        name = label.value.encode()
        return SecretKey(_hkdf(self._bytes, bytes((VERSION, len(name))) + name + context))

    def reveal(self) -> bytes:
        """The bytes, to be put into a sealed message or handed to a cipher, and nowhere else."""
        return self._bytes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SecretKey):
            return NotImplemented
        return hmac.compare_digest(self._bytes, other._bytes)

    def __repr__(self) -> str:
        return "SecretKey(hidden)"


class PrivateKey:
    """The private half of an X25519 key pair."""

    __slots__ = ("_key", "public_bytes")

    def __init__(self, private_bytes: bytes) -> None:
        if len(private_bytes) != KEY_BYTES:
            raise FormatError(f"a private key has {KEY_BYTES} bytes, found {len(private_bytes)}")
        self._key = X25519PrivateKey.from_private_bytes(private_bytes)
        self.public_bytes = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> PrivateKey:
        return cls(secrets.token_bytes(KEY_BYTES))

    def reveal(self) -> bytes:
        """The private bytes, to be put into a checkpoint of their owner's, and nowhere else."""
        return self._key.private_bytes_raw()

    def agree(self, peer_public: bytes, context: bytes) -> SecretKey:
        """The key that both owners of the two pairs get, and nobody else: X25519, then HKDF.

        Both public keys are in the info, the smaller one first, so that both sides write the same.
        """
        peer = _public_key(peer_public)
        try:
            shared = self._key.exchange(peer)
        except ValueError as error:
            raise AuthenticationError(_SMALL_ORDER) from error
        first, second = sorted((self.public_bytes, peer_public))
        name = Label.AGREEMENT.value.encode()
        info = bytes((VERSION, len(name))) + name + first + second + context
        return SecretKey(_hkdf(shared, info))

    def open(self, sealed: bytes, info: bytes) -> bytes:
        """The content of what `seal` made for this key and the same info."""
        if len(sealed) < SEAL_OVERHEAD:
            raise FormatError(f"{len(sealed)} sealed bytes, but {SEAL_OVERHEAD} is the least")
        if sealed[0] != VERSION:
            raise FormatError(f"sealed message of version {sealed[0]}, expected {VERSION}")
        try:
            return _suite().decrypt(sealed[1:], self._key, _versioned(info))
        except (InvalidTag, ValueError) as error:
            raise AuthenticationError(
                "a sealed message does not open: it was made for another key or another context, "
                "or it was changed on its way"
            ) from error

    def __repr__(self) -> str:
        return f"PrivateKey(hidden, public={self.public_bytes.hex()})"


def seal(public_key: bytes, plaintext: bytes, info: bytes) -> bytes:
    """HPKE (RFC 9180), base mode: version ‖ encapsulated key ‖ ciphertext ‖ tag.

    DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-256-GCM. Whatever places the message (run, phase,
    asker, answerer) belongs in `info`; the version is put before it.
    """
    key = _public_key(public_key)
    try:
        return bytes((VERSION,)) + _suite().encrypt(plaintext, key, _versioned(info))
    except ValueError as error:
        raise AuthenticationError(_SMALL_ORDER) from error


def _suite() -> Suite:
    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


def _versioned(info: bytes) -> bytes:
    return bytes((VERSION,)) + info


def _hkdf(secret: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(secret)


def _public_key(public_bytes: bytes) -> X25519PublicKey:
    if len(public_bytes) != KEY_BYTES:
        raise FormatError(f"a public key has {KEY_BYTES} bytes, found {len(public_bytes)}")
    return X25519PublicKey.from_public_bytes(public_bytes)
