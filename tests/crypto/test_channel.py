"""Channels are AES-256-GCM with the nonces and associated data that they say, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lpgcn.crypto import (
    CHANNEL_OVERHEAD,
    TAG_BYTES,
    AuthenticationError,
    Channel,
    Channels,
    Context,
    FormatError,
    NonceReuseError,
    SecretKey,
)

KEY = SecretKey(bytes(range(32)))
CONTEXT = Context(bytes(16), step=5, phase=3, layer=2, sender=9, receiver=4)
PLACE = bytes((0, 0, 0, 0, 0, 5, 3, 2))
OTHER_PLACES: list[dict[str, Any]] = [
    {"run": b"another run 0123"},
    {"step": 6},
    {"phase": 4},
    {"layer": 3},
    {"sender": 8},
    {"receiver": 5},
]
UInt8 = npt.NDArray[np.uint8]


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


@pytest.mark.parametrize("change", OTHER_PLACES)
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


def key_of(number: int) -> SecretKey:
    return SecretKey(bytes((number,)) * 32)


def some_rows(count: int, width: int) -> UInt8:
    return np.random.default_rng(count).integers(0, 256, (count, width), dtype=np.uint8)


def one_by_one(indices: list[int], rows: UInt8) -> UInt8:
    """Every row sealed on its own, by the cipher itself."""
    sealed = b"".join(
        AESGCM(KEY.reveal()).encrypt(
            PLACE + index.to_bytes(4, "big"), row.tobytes(), CONTEXT.encode()
        )
        for index, row in zip(indices, rows, strict=True)
    )
    return np.frombuffer(sealed, dtype=np.uint8).reshape(len(rows), rows.shape[1] + TAG_BYTES)


indices_of_rows = st.lists(st.integers(0, 2**32 - 1), max_size=12, unique=True)


@given(indices_of_rows, st.integers(0, 40), st.sampled_from(["int64", "uint32"]))
def test_rows_are_sealed_as_the_cipher_seals_each(
    indices: list[int], width: int, dtype: str
) -> None:
    rows, numbers = some_rows(len(indices), width), np.array(indices, dtype=dtype)
    sealed = Channel(KEY).seal_rows(CONTEXT, numbers, rows)
    assert np.array_equal(sealed, one_by_one(indices, rows))
    assert np.array_equal(Channel(KEY).open_rows(CONTEXT, numbers, sealed), rows)


@settings(max_examples=200)
@given(st.data())
def test_a_row_with_a_flipped_bit_is_named_and_none_is_returned(data: st.DataObject) -> None:
    sealed = one_by_one([3, 1, 7], some_rows(3, 8))
    bit = data.draw(st.integers(0, 8 * sealed.size - 1))
    sealed = sealed.copy()
    sealed.reshape(-1)[bit // 8] ^= 1 << bit % 8
    row = bit // 8 // sealed.shape[1]
    with pytest.raises(AuthenticationError, match=f"row {row} ") as found:
        Channel(KEY).open_rows(CONTEXT, [3, 1, 7], sealed)
    assert found.value.row == row


@pytest.mark.parametrize("change", OTHER_PLACES)
def test_rows_of_another_place_do_not_open(change: dict[str, Any]) -> None:
    sealed = one_by_one([3, 1, 7], some_rows(3, 8))
    for key, context, indices in (
        (KEY, replace(CONTEXT, **change), [3, 1, 7]),
        (KEY, CONTEXT, [3, 7, 1]),
        (key_of(9), CONTEXT, [3, 1, 7]),
    ):
        with pytest.raises(AuthenticationError):
            Channel(key).open_rows(context, indices, sealed)


def test_no_nonce_is_used_twice_among_rows() -> None:
    rows = some_rows(2, 8)
    channel = Channel(KEY)
    with pytest.raises(NonceReuseError, match="twice"):
        channel.seal_rows(CONTEXT, [4, 4], rows)
    channel.seal_rows(CONTEXT, [4, 5], rows)
    with pytest.raises(NonceReuseError):
        channel.seal_rows(CONTEXT, [6, 7], rows)
    with pytest.raises(NonceReuseError):
        channel.seal(CONTEXT, 4, b"the nonce of a row")
    channel.seal(replace(CONTEXT, layer=9), 4, b"another slot")
    with pytest.raises(NonceReuseError):
        channel.seal_rows(replace(CONTEXT, layer=9), [4, 5], rows)


@pytest.mark.parametrize(
    ("indices", "rows"),
    [
        ([1], some_rows(2, 20)),
        ([[1, 2]], some_rows(2, 20)),
        ([1, -1], some_rows(2, 20)),
        ([1, 2**32], some_rows(2, 20)),
        ([1, 2], some_rows(2, 20).astype(np.int64)),
        ([1, 2], some_rows(2, 20).reshape(2, 2, 10)),
    ],
)
def test_rows_of_a_wrong_shape_are_refused(indices: list[int], rows: UInt8) -> None:
    with pytest.raises(FormatError):
        Channel(KEY).seal_rows(CONTEXT, indices, rows)
    with pytest.raises(FormatError):
        Channel(KEY).open_rows(CONTEXT, indices, rows)


def test_a_row_that_has_no_room_for_a_tag_is_refused() -> None:
    with pytest.raises(FormatError, match="shape"):
        Channel(KEY).open_rows(CONTEXT, [1, 2], some_rows(2, TAG_BYTES - 1))
    with pytest.raises(FormatError, match="shape"):
        Channels([KEY]).open_rows(CONTEXT, [0], some_rows(1, TAG_BYTES - 1))


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(0, 40))
def test_many_keys_open_what_each_sealed(keys: list[int], width: int) -> None:
    rows = some_rows(len(keys), width)
    sealed = [
        AESGCM(key_of(key).reveal()).encrypt(PLACE + bytes(4), row.tobytes(), CONTEXT.encode())
        for key, row in zip(keys, rows, strict=True)
    ]
    channels = Channels([key_of(key) for key in range(6)])
    table = np.frombuffer(b"".join(sealed), np.uint8).reshape(len(keys), width + TAG_BYTES)
    assert np.array_equal(channels.open_rows(CONTEXT, keys, table), rows)
    assert channels.open(CONTEXT, keys, sealed) == [row.tobytes() for row in rows]


def test_many_keys_seal_messages_of_any_length() -> None:
    messages = [b"", b"one", bytes(100)]
    channels = Channels([key_of(key) for key in range(3)])
    sealed = channels.seal(CONTEXT, messages)
    for key, (plain, found) in enumerate(zip(messages, sealed, strict=True)):
        cipher = AESGCM(key_of(key).reveal())
        assert found == cipher.encrypt(PLACE + bytes(4), plain, CONTEXT.encode())
    with pytest.raises(NonceReuseError):
        channels.seal(CONTEXT, messages)


def test_a_message_under_another_key_is_named() -> None:
    channels = Channels([key_of(key) for key in range(3)])
    sealed = channels.seal(CONTEXT, [b"a", b"b", b"c"])
    table = np.frombuffer(b"".join(sealed), np.uint8).reshape(3, 1 + TAG_BYTES)
    for keys, context, row in (
        ([0, 2, 1], CONTEXT, 1),
        ([0, 1, 1], CONTEXT, 2),
        ([0, 1, 2], replace(CONTEXT, layer=1), 0),
    ):
        with pytest.raises(AuthenticationError, match=f"row {row} "):
            channels.open_rows(context, keys, table)
        with pytest.raises(AuthenticationError, match=f"message {row} ") as found:
            channels.open(context, keys, sealed)
        assert found.value.row == row


def test_there_is_a_message_for_every_key() -> None:
    channels = Channels([key_of(0), key_of(1)])
    with pytest.raises(FormatError, match="1 messages for 2 keys"):
        channels.seal(CONTEXT, [b""])
    with pytest.raises(FormatError, match="1 messages for 2 keys"):
        channels.open(CONTEXT, [0, 1], [b""])
    with pytest.raises(FormatError, match="1 sealed rows for 2 keys"):
        channels.open_rows(CONTEXT, [0, 1], some_rows(1, 20))
