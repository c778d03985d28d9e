"""The byte channel is AES-256-GCM with the nonce and associated data that it says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.crypto import (
    CHANNEL_OVERHEAD,
    AuthenticationError,
    Channel,
    Context,
    FormatError,
    NonceReuseError,
    SecretKey,
)

KEY = SecretKey(bytes(range(32)))
CONTEXT = Context(bytes(16), step=5, phase=3, layer=2, sender=9, receiver=4)


def test_the_cipher_gives_the_vector_of_the_gcm_specification_case_16() -> None:
    key = bytes.fromhex("feffe9928665731c6d6a8f9467308308" * 2)
    plain = bytes.fromhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    )
    associated = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
    sealed = AESGCM(key).encrypt(bytes.fromhex("cafebabefacedbaddecaf888"), plain, associated)
    assert sealed.hex() == (
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
        "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662"
        "76fc6ece0f4e1768cddf8853bb2d551b"
    )


@given(st.integers(0, 2**40 - 1), st.integers(0, 2**32 - 1), st.binary(max_size=50))
def test_the_nonce_is_the_place_and_the_context_is_associated(
    step: int, index: int, plain: bytes
) -> None:
    context = replace(CONTEXT, step=step)
    nonce = step.to_bytes(6, "big") + bytes((3, 2)) + index.to_bytes(4, "big")
    sealed = Channel(KEY).seal(context, index, plain)
    assert sealed == b"\1" + AESGCM(KEY.reveal()).encrypt(nonce, plain, context.encode())
    assert len(sealed) == len(plain) + CHANNEL_OVERHEAD
    assert Channel(KEY).open(context, index, sealed) == plain


@settings(max_examples=200)
@given(st.data())
def test_a_changed_message_does_not_open(data: st.DataObject) -> None:
    sealed = bytearray(Channel(KEY).seal(CONTEXT, 1, b"seven positives"))
    bit = data.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(FormatError if bit < 8 else AuthenticationError):
        Channel(KEY).open(CONTEXT, 1, bytes(sealed))


@pytest.mark.parametrize(
    "change",
    [
        {"run": b"another run 0123"},
        {"step": 6},
        {"phase": 4},
        {"layer": 3},
        {"sender": 8},
        {"receiver": 5},
    ],
)
def test_a_message_of_another_place_does_not_open(change: dict[str, Any]) -> None:
    sealed = Channel(KEY).seal(CONTEXT, 1, b"seven positives")
    with pytest.raises(AuthenticationError):
        Channel(KEY).open(replace(CONTEXT, **change), 1, sealed)
    with pytest.raises(AuthenticationError):
        Channel(KEY).open(CONTEXT, 2, sealed)
    with pytest.raises(AuthenticationError):
        Channel(SecretKey.generate()).open(CONTEXT, 1, sealed)


def test_no_nonce_is_used_twice() -> None:
    channel = Channel(KEY)
    channel.seal(CONTEXT, 1, b"once")
    channel.seal(CONTEXT, 0, b"another index")
    for context, index in ((CONTEXT, 1), (replace(CONTEXT, step=4), 7)):
        with pytest.raises(NonceReuseError):
            channel.seal(context, index, b"twice")


@pytest.mark.parametrize("sealed", [b"", b"\1" * 16, b"\2" * 40])
def test_what_cannot_be_a_message_is_named(sealed: bytes) -> None:
    with pytest.raises(FormatError):
        Channel(KEY).open(CONTEXT, 1, sealed)


def test_an_index_has_four_bytes() -> None:
    with pytest.raises(FormatError, match="index"):
        Channel(KEY).seal(CONTEXT, 2**32, b"")
