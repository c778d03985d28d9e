"""Sealed vectors against a reference that seals one row at a time in whole numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.crypto import (
    TAG_BYTES,
    AuthenticationError,
    Context,
    FormatError,
    NonceReuseError,
    SecretKey,
    VectorChannel,
    VectorChannels,
)
from lpgcn.crypto.sealing import MAX_PAYLOAD_BYTES

Bytes = npt.NDArray[np.uint8]
KEY = SecretKey(bytes(range(32)))
CONTEXT = Context(b"the present run.", step=70_000, phase=3, layer=2, sender=9)
SLOTS = [(1, 0), (3, 2), (3, 1)]
lengths = st.integers(1, 70).map(lambda words: 4 * words)


def reference_block(key: bytes, domain: int, context: Context, index: int, number: int) -> bytes:
    step, phase, layer = (context.step, context.phase, context.layer) if domain == 0 else (0, 0, 0)
    block = bytes((layer, phase)) + step.to_bytes(5, "little") + bytes((domain,))
    block += number.to_bytes(4, "little") + index.to_bytes(4, "little")
    return Cipher(AES256(key), CTR(block)).encryptor().update(bytes(16))


def little(data: bytes, size: int) -> list[int]:
    return [int.from_bytes(data[i : i + size], "little") for i in range(0, len(data), size)]


def reference_seal(key: bytes, context: Context, index: int, payload: bytes) -> bytes:
    """`seal` for one vector, as the module's text has it."""
    blocks = -(-(len(payload) + 16) // 16)
    pads = b"".join(reference_block(key, 0, context, index, b) for b in range(blocks))
    pad, stream = pads[:16], pads[16:]
    cipher = bytes(x ^ y for x, y in zip(payload, stream, strict=False))
    header = context.encode() + len(payload).to_bytes(4, "big")
    words = [int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2)]
    words += little(cipher, 2)
    key_blocks = -(-(len(words) + 3) // 4)
    hash_key = b"".join(reference_block(key, 1, context, 0, b) for b in range(key_blocks))
    tag = b""
    for shift, pad_word in enumerate(little(pad, 4)):
        numbers = [word % 2**28 for word in little(hash_key, 4)][shift:]
        total = sum(a * m for a, m in zip(numbers, words, strict=False))
        tag += ((total % 2**31 + total // 2**31 + pad_word) % 2**32).to_bytes(4, "little")
    return cipher + tag


def payload_of(seed: int, rows: int, length: int) -> Bytes:
    return np.random.default_rng(seed).integers(0, 256, (rows, length), dtype=np.uint8)


def key_of(number: int) -> SecretKey:
    return SecretKey(number.to_bytes(32, "big"))


@settings(max_examples=30)
@given(st.integers(0, 2**32), lengths, st.sets(st.integers(0, 2**32 - 1), max_size=6))
def test_one_key_seals_each_row_as_the_reference_does(
    seed: int, length: int, indices: set[int]
) -> None:
    payload, places = payload_of(seed, len(indices), length), np.array(sorted(indices), np.int64)
    sealed = VectorChannel(KEY).seal(CONTEXT, places, payload)
    assert [row.tobytes() for row in sealed] == [
        reference_seal(KEY.reveal(), CONTEXT, index, row.tobytes())
        for index, row in zip(sorted(indices), payload, strict=True)
    ]
    assert (VectorChannel(KEY).open(CONTEXT, places, sealed) == payload).all()


@settings(max_examples=20)
@given(st.integers(0, 2**32), lengths, st.integers(1, 6), st.booleans())
def test_many_keys_open_what_each_sealed(seed: int, length: int, rows: int, kept: bool) -> None:
    keys = [key_of(number) for number in range(rows)]
    senders = np.arange(rows)[::-1] + 5
    channels = VectorChannels(keys, SLOTS if kept else ())
    for step in (1, 2):
        for phase, layer in [*SLOTS, (7, 7)]:
            context = replace(CONTEXT, step=step, phase=phase, layer=layer)
            payload = payload_of(seed + step, rows, length)
            sealed = [
                reference_seal(key.reveal(), replace(context, sender=sender), 0, row.tobytes())
                for key, sender, row in zip(keys, senders.tolist(), payload, strict=True)
            ]
            stacked = np.frombuffer(b"".join(sealed), dtype=np.uint8).reshape(rows, -1)
            assert (channels.open(context, senders, stacked) == payload).all()
            some = np.arange(rows)[:: -2 if rows > 1 else 1]
            part = channels.open(context, senders[some], stacked[some], keys=some)
            assert (part == payload[some]).all()


@st.composite
def rows_of_keys(draw: st.DrawFn) -> tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """A number of keys, and for rows in any order the key and the index of each."""
    counts = draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    rows = [(key, index) for key, count in enumerate(counts) for index in range(count)]
    mixed = np.array(draw(st.permutations(rows)), dtype=np.int64).reshape(-1, 2)
    return len(counts), mixed[:, 0], mixed[:, 1]


@settings(max_examples=30)
@given(st.integers(0, 2**32), lengths, rows_of_keys(), st.booleans())
def test_many_keys_seal_each_row_as_its_key_does_alone(
    seed: int,
    length: int,
    rows: tuple[int, npt.NDArray[np.int64], npt.NDArray[np.int64]],
    kept: bool,
) -> None:
    count, keys, indices = rows
    secrets, slots = [key_of(number) for number in range(count)], SLOTS if kept else ()
    payload = payload_of(seed, len(keys), length)
    sealed = VectorChannels(secrets, slots).seal(CONTEXT, payload, keys, indices.astype(np.uint32))
    for row, (key, index) in enumerate(zip(keys.tolist(), indices.tolist(), strict=True)):
        one = reference_seal(secrets[key].reveal(), CONTEXT, index, payload[row].tobytes())
        assert sealed[row].tobytes() == one
    for key in set(keys.tolist()):
        mine = keys == key
        alone = VectorChannel(secrets[key]).seal(CONTEXT, indices[mine], payload[mine])
        assert (alone == sealed[mine]).all()
    senders = np.full(len(keys), CONTEXT.sender)
    opened = VectorChannels(secrets, slots).open(CONTEXT, senders, sealed, keys, indices)
    assert (opened == payload).all()


def test_many_rows_of_many_keys_are_sealed_as_few() -> None:
    secrets, draw = [key_of(number) for number in range(60)], np.random.default_rng(7)
    keys, indices = np.divmod(draw.permutation(60 * 90), 90)
    payload = payload_of(8, len(keys), 8)
    sealed = VectorChannels(secrets).seal(CONTEXT, payload, keys, indices)
    for key in (0, 31, 59):
        mine = keys == key
        alone = VectorChannel(secrets[key]).seal(CONTEXT, indices[mine], payload[mine])
        assert (alone == sealed[mine]).all()
    senders = np.full(len(keys), CONTEXT.sender)
    channels = VectorChannels(secrets)
    assert (channels.open(CONTEXT, senders, sealed, keys, indices) == payload).all()
    for position, wrong in ((0, indices[0] + 1), (1, indices[1] ^ 64)):
        moved = indices.copy()
        moved[position] = wrong
        with pytest.raises(AuthenticationError) as caught:
            channels.open(CONTEXT, senders, sealed, keys, moved)
        assert caught.value.rows == (position,)


def test_many_keys_seal_a_place_once() -> None:
    channels, payload = VectorChannels([KEY, key_of(1)]), payload_of(4, 3, 16)
    with pytest.raises(NonceReuseError, match="twice"):
        channels.seal(CONTEXT, payload, [0, 1, 0], [2, 2, 2])
    channels.seal(CONTEXT, payload, [0, 1, 0], [2, 2, 1])
    channels.seal(replace(CONTEXT, layer=0), payload, [0, 1, 0], [2, 2, 1])
    for context in (CONTEXT, replace(CONTEXT, step=1)):
        with pytest.raises(NonceReuseError):
            channels.seal(context, payload, [1, 1, 1], [5, 6, 7])
    with pytest.raises(NonceReuseError, match="listed twice"):
        VectorChannels([KEY, KEY]).seal(CONTEXT, payload[:2], [0, 1], [0, 0])


@pytest.mark.parametrize(
    ("keys", "indices"),
    [([0, 2], [0, 0]), ([0, -1], [0, 0]), ([0], [0, 0]), ([0, 1], [0]), ([0, 1], [0, -1])],
)
def test_keys_and_indices_that_are_not_there_are_refused(keys: Any, indices: Any) -> None:
    channels, payload = VectorChannels([KEY, key_of(1)], SLOTS), payload_of(4, 2, 32)
    with pytest.raises(FormatError):
        channels.seal(CONTEXT, payload, keys, indices)
    with pytest.raises(FormatError):
        channels.open(CONTEXT, [9, 9], payload, keys, indices)
    channels.seal(CONTEXT, payload, [0, 1], [0, 0])


def test_the_pad_of_a_tag_is_the_same_for_every_length_and_never_hides_payload() -> None:
    """So a payload that is known tells no pad of a shorter vector's tag."""
    zeros = np.zeros((1, 64), np.uint8)
    whole = VectorChannel(KEY).seal(CONTEXT, [0], zeros)
    first = reference_block(KEY.reveal(), 0, CONTEXT, 0, 0)
    assert first not in whole.tobytes()
    for length in range(4, 64, 4):
        shorter = VectorChannel(KEY).seal(CONTEXT, [0], zeros[:, :length])
        assert (shorter[:, :length] == whole[:, :length]).all()


@pytest.mark.parametrize("rows", [287, 288, 289, 900])
def test_many_rows_are_sealed_as_few(rows: int) -> None:
    payload, places = payload_of(rows, rows, 64), np.arange(rows)
    sealed = VectorChannel(KEY).seal(CONTEXT, places, payload)
    for row in (0, 254, rows - 1):
        single = VectorChannel(KEY).seal(CONTEXT, [row], payload[row : row + 1])
        assert (single[0] == sealed[row]).all()
    assert (VectorChannel(KEY).open(CONTEXT, places, sealed) == payload).all()
    channels = VectorChannels([KEY] * rows)
    zeros = np.repeat(VectorChannel(KEY).seal(CONTEXT, [0], payload[:1]), rows, axis=0)
    assert (channels.open(CONTEXT, np.full(rows, 9), zeros) == payload[0]).all()


def test_one_channel_serves_growing_and_shrinking_lengths() -> None:
    channel = VectorChannel(KEY)
    for step, length in enumerate((8, 2048, 4, MAX_PAYLOAD_BYTES, 256)):
        payload = payload_of(step, 2, length)
        context = replace(CONTEXT, step=step)
        sealed = channel.seal(context, [1, 2], payload)
        assert sealed.shape == (2, length + TAG_BYTES)
        assert sealed[0].tobytes() == reference_seal(KEY.reveal(), context, 1, payload[0].tobytes())
        assert (VectorChannel(KEY).open(context, [1, 2], sealed) == payload).all()


@settings(max_examples=300)
@given(st.data())
def test_every_changed_bit_is_noticed_and_named(data: st.DataObject) -> None:
    payload = payload_of(1, 3, 32)
    sealed = VectorChannel(KEY).seal(CONTEXT, [4, 5, 6], payload)
    row = data.draw(st.integers(0, 2))
    bit = data.draw(st.integers(0, 8 * sealed.shape[1] - 1))
    sealed[row, bit // 8] ^= 1 << bit % 8
    with pytest.raises(AuthenticationError, match=f"1 of 3 .* rows {row}:") as caught:
        VectorChannel(KEY).open(CONTEXT, [4, 5, 6], sealed)
    assert caught.value.rows == (row,)
    keys = VectorChannels([key_of(number) for number in range(3)], SLOTS)
    many = np.concatenate(
        [VectorChannel(key_of(n)).seal(CONTEXT, [0], payload[n : n + 1]) for n in range(3)]
    )
    many[row, bit // 8] ^= 1 << bit % 8
    with pytest.raises(AuthenticationError) as caught:
        keys.open(CONTEXT, [9, 9, 9], many)
    assert caught.value.rows == (row,)


@settings(max_examples=100)
@given(st.data())
def test_a_vector_of_another_place_does_not_open(data: st.DataObject) -> None:
    sizes = {"step": 40, "phase": 8, "layer": 8, "sender": 32, "receiver": 32}
    field = data.draw(st.sampled_from([*sizes, "run", "index", "row sender"]))
    bit = 1 << data.draw(st.integers(0, sizes.get(field, 32) - 1))
    sealed = VectorChannel(KEY).seal(CONTEXT, [0], payload_of(2, 1, 32))
    context, index, sender = CONTEXT, 0, CONTEXT.sender
    if field == "run":
        run = int.from_bytes(CONTEXT.run, "big") ^ bit
        context = replace(CONTEXT, run=run.to_bytes(16, "big"))
    elif field == "index":
        index ^= bit
    elif field == "row sender":
        sender ^= bit
    else:
        context = replace(CONTEXT, **{field: getattr(CONTEXT, field) ^ bit})
        sender = context.sender
    with pytest.raises(AuthenticationError):
        VectorChannel(KEY).open(context, [index], sealed, senders=[sender])
    if field != "index":
        with pytest.raises(AuthenticationError):
            VectorChannels([KEY], SLOTS).open(context, [sender], sealed)


def test_another_key_or_length_does_not_open() -> None:
    sealed = VectorChannel(KEY).seal(CONTEXT, [0], np.zeros((1, 32), dtype=np.uint8))
    with pytest.raises(AuthenticationError):
        VectorChannel(SecretKey.generate()).open(CONTEXT, [0], sealed)
    for shorter in (sealed[:, 4:], sealed[:, :-4]):
        with pytest.raises(AuthenticationError):
            VectorChannel(KEY).open(CONTEXT, [0], shorter)
    longer = np.concatenate([sealed[:, :32], np.zeros((1, 4), np.uint8), sealed[:, 32:]], axis=1)
    with pytest.raises(AuthenticationError):
        VectorChannel(KEY).open(CONTEXT, [0], longer)


def test_rows_may_not_be_exchanged() -> None:
    sealed = VectorChannel(KEY).seal(CONTEXT, [1, 2], payload_of(3, 2, 16))
    with pytest.raises(AuthenticationError) as caught:
        VectorChannel(KEY).open(CONTEXT, [1, 2], sealed[::-1])
    assert caught.value.rows == (0, 1)


def test_a_slot_is_sealed_once() -> None:
    channel, payload = VectorChannel(KEY), payload_of(4, 2, 16)
    with pytest.raises(NonceReuseError, match="twice"):
        channel.seal(CONTEXT, [1, 1], payload)
    channel.seal(CONTEXT, [1, 2], payload)
    channel.seal(replace(CONTEXT, layer=0), [1, 2], payload)
    for context in (CONTEXT, replace(CONTEXT, step=1)):
        with pytest.raises(NonceReuseError):
            channel.seal(context, [3, 4], payload)


@pytest.mark.parametrize(
    ("indices", "payload"),
    [
        ([1], np.zeros((2, 16), np.uint8)),
        ([-1], np.zeros((1, 16), np.uint8)),
        ([2**32], np.zeros((1, 16), np.uint8)),
        ([1], np.zeros((1, 15), np.uint8)),
        ([1], np.zeros((1, 0), np.uint8)),
        ([1], np.zeros((1, MAX_PAYLOAD_BYTES + 20), np.uint8)),
        ([1], np.zeros((1, 16), np.float32)),
        ([1], np.zeros((1, 4, 4), np.uint8)),
        ([1.5], np.zeros((1, 16), np.uint8)),
        ([float("nan")], np.zeros((1, 16), np.uint8)),
        (["1"], np.zeros((1, 16), np.uint8)),
    ],
)
def test_what_cannot_be_vectors_is_refused_and_claims_nothing(indices: Any, payload: Any) -> None:
    channel = VectorChannel(KEY)
    for act in (channel.seal, channel.open):
        with pytest.raises(FormatError):
            act(CONTEXT, indices, payload)
    channel.seal(CONTEXT, [1], np.zeros((1, 16), np.uint8))
    with pytest.raises(FormatError):
        VectorChannels([KEY]).open(CONTEXT, indices, payload)


@pytest.mark.parametrize("name", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", ">u8"])
def test_an_index_of_any_type_is_itself_or_refused(name: str) -> None:
    kind, payload = np.iinfo(name), payload_of(9, 1, 8)
    for index in {kind.min, -1, 0, 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63, kind.max}:
        if not kind.min <= index <= kind.max:
            continue
        places = np.array([index], dtype=name)
        if 0 <= index < 2**32:
            sealed = VectorChannel(KEY).seal(CONTEXT, places, payload)
            expected = reference_seal(KEY.reveal(), CONTEXT, index, payload[0].tobytes())
            assert sealed.tobytes() == expected
        else:
            with pytest.raises(FormatError):
                VectorChannel(KEY).seal(CONTEXT, places, payload)


def test_equal_vectors_look_different_and_nothing_of_them_shows() -> None:
    sealed = VectorChannel(KEY).seal(CONTEXT, np.arange(2000), np.zeros((2000, 32), np.uint8))
    assert np.unique(sealed, axis=0).shape[0] == 2000
    ones = np.unpackbits(sealed, axis=1).sum(axis=0, dtype=np.int64)
    assert np.abs(ones - 1000).max() < 6 * np.sqrt(2000 / 4)


def test_kept_streams_follow_step_and_length() -> None:
    channels = VectorChannels([KEY, key_of(1)], SLOTS)
    for step, length in ((5, 16), (5, 64), (6, 64), (5, 16)):
        context, payload = replace(CONTEXT, step=step), payload_of(step, 1, length)
        one = VectorChannel(KEY).seal(context, [0], payload)
        other = VectorChannel(key_of(1)).seal(context, [0], payload)
        opened = channels.open(context, [9, 9], np.concatenate([one, other]))
        assert (opened == payload).all()


def test_no_vectors_are_no_work() -> None:
    none = np.zeros((0, 32), np.uint8)
    assert VectorChannel(KEY).open(CONTEXT, [], none).shape == (0, 16)
    assert VectorChannels([], SLOTS).open(CONTEXT, [], none).shape == (0, 16)
    assert VectorChannels([KEY]).open(CONTEXT, [], none, [], []).shape == (0, 16)
    assert VectorChannels([]).seal(CONTEXT, none, [], []).shape == (0, 48)
