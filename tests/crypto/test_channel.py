"""Channels are AES-256-GCM with the nonces and associated data that they say, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from lpgcn.crypto import (
    TAG_BYTES,
    AuthenticationError,
    Channels,
    Context,
    FormatError,
    NonceReuseError,
    SecretKey,
)

KEY = SecretKey(bytes(range(32)))
CONTEXT = Context(bytes(16), step=5, phase=3, layer=2, kind=9)
PLACE = bytes((0, 0, 0, 0, 5, 3, 2, 9))
OTHER_PLACES: list[dict[str, Any]] = [
    {"run": b"another run 0123"},
    {"step": 6},
    {"phase": 4},
    {"layer": 3},
    {"kind": 8},
]
numbers = st.integers(0, 2**32 - 1)
texts = st.binary(max_size=50)


class Channel:
    """Channels of a single key, whose messages differ by their index."""

    def __init__(self, key: SecretKey) -> None:
        self._channels = Channels([key])

    def seal(self, context: Context, indices: Any, messages: Any) -> list[bytes]:
        return self._channels.seal(context, [0] * len(indices), messages, indices)

    def open(self, context: Context, indices: Any, sealed: Any) -> list[bytes]:
        return self._channels.open(context, [0] * len(indices), sealed, indices)


def key_of(number: int) -> SecretKey:
    return SecretKey(bytes((number,)) * 32)


def by_the_cipher(key: SecretKey, index: int, message: bytes) -> bytes:
    """What the cipher itself makes of one message in `CONTEXT`."""
    nonce = PLACE + index.to_bytes(4, "big")
    return AESGCM(key.reveal()).encrypt(nonce, message, CONTEXT.encode())


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


@given(st.integers(0, 2**40 - 1), numbers, texts)
def test_the_nonce_is_the_place_and_the_context_is_associated(
    step: int, index: int, plain: bytes
) -> None:
    context = replace(CONTEXT, step=step)
    nonce = step.to_bytes(5, "big") + bytes((3, 2, 9)) + index.to_bytes(4, "big")
    (sealed,) = Channel(KEY).seal(context, [index], [plain])
    assert sealed == AESGCM(KEY.reveal()).encrypt(nonce, plain, context.encode())
    assert Channel(KEY).open(context, [index], [sealed]) == [plain]


@given(st.dictionaries(numbers, texts, max_size=12))
def test_messages_are_sealed_as_the_cipher_seals_each(messages: dict[int, bytes]) -> None:
    sealed = Channel(KEY).seal(CONTEXT, list(messages), list(messages.values()))
    assert sealed == [by_the_cipher(KEY, index, one) for index, one in messages.items()]
    assert [len(one) - TAG_BYTES for one in sealed] == [len(one) for one in messages.values()]
    assert Channel(KEY).open(CONTEXT, list(messages), sealed) == list(messages.values())


@given(st.dictionaries(st.tuples(st.integers(0, 5), numbers), texts, max_size=12))
def test_many_keys_seal_as_the_cipher_with_each(messages: dict[tuple[int, int], bytes]) -> None:
    which, indices = [key for key, _ in messages], [index for _, index in messages]
    make = [key_of(key) for key in range(6)]
    sealed = Channels(make).seal(CONTEXT, which, list(messages.values()), indices)
    assert sealed == [
        by_the_cipher(key_of(key), index, one) for (key, index), one in messages.items()
    ]
    assert Channels(make).open(CONTEXT, which, sealed, indices) == list(messages.values())


@given(st.lists(st.integers(0, 5), unique=True), st.data())
def test_many_keys_are_at_index_0_where_none_is_given(
    which: list[int], data: st.DataObject
) -> None:
    messages = [data.draw(texts) for _ in which]
    channels = Channels(key_of(key) for key in range(6))
    sealed = channels.seal(CONTEXT, which, messages)
    expected = [
        Channel(key_of(key)).seal(CONTEXT, [0], [one])[0]
        for key, one in zip(which, messages, strict=True)
    ]
    assert sealed == expected
    assert channels.open(CONTEXT, which, sealed) == messages


def test_keys_that_come_later_stand_behind_those_that_are_there() -> None:
    channels = Channels([key_of(0)])
    channels.extend(key_of(number) for number in (1, 2))
    assert len(channels) == 3
    sealed = channels.seal(CONTEXT, [2, 0], [b"new", b"old"])
    assert sealed == [by_the_cipher(key_of(2), 0, b"new"), by_the_cipher(key_of(0), 0, b"old")]
    channels.extend([key_of(3)])
    with pytest.raises(NonceReuseError):
        channels.seal(CONTEXT, [0], [b"the guard has not forgotten"])


@settings(max_examples=200)
@given(st.data())
def test_a_changed_message_is_named_and_none_is_returned(data: st.DataObject) -> None:
    plain, places = [b"seven", b"positives"], [3, 1]
    sealed = Channel(KEY).seal(CONTEXT, places, plain)
    row = data.draw(st.integers(0, 1))
    changed = bytearray(sealed[row])
    bit = data.draw(st.integers(0, 8 * len(changed) - 1))
    changed[bit // 8] ^= 1 << bit % 8
    sealed[row] = bytes(changed)
    for opened_by in (
        lambda: Channel(KEY).open(CONTEXT, places, sealed),
        lambda: Channels([KEY]).open(CONTEXT, [0, 0], sealed, places),
    ):
        with pytest.raises(AuthenticationError, match=f"message {row} ") as found:
            opened_by()
        assert found.value.row == row


@pytest.mark.parametrize("sealed", [b"", b"\1" * (TAG_BYTES - 1), b"\1" * TAG_BYTES])
def test_what_has_no_room_for_a_tag_or_a_wrong_one_does_not_open(sealed: bytes) -> None:
    with pytest.raises(AuthenticationError):
        Channel(KEY).open(CONTEXT, [1], [sealed])
    with pytest.raises(AuthenticationError):
        Channels([KEY]).open(CONTEXT, [0], [sealed])


@pytest.mark.parametrize("change", OTHER_PLACES)
def test_a_message_of_another_place_does_not_open(change: dict[str, Any]) -> None:
    elsewhere = replace(CONTEXT, **change)
    (sealed,) = Channel(KEY).seal(CONTEXT, [1], [b"seven positives"])
    for opened_by in (
        lambda: Channel(KEY).open(elsewhere, [1], [sealed]),
        lambda: Channels([KEY]).open(elsewhere, [0], [sealed], [1]),
    ):
        with pytest.raises(AuthenticationError):
            opened_by()


def test_a_message_of_another_index_or_key_does_not_open() -> None:
    (sealed,) = Channel(KEY).seal(CONTEXT, [1], [b"seven positives"])
    keys = Channels([KEY, key_of(9)])
    assert keys.open(CONTEXT, [0], [sealed], [1]) == [b"seven positives"]
    for opened_by in (
        lambda: Channel(KEY).open(CONTEXT, [2], [sealed]),
        lambda: Channel(key_of(9)).open(CONTEXT, [1], [sealed]),
        lambda: keys.open(CONTEXT, [1], [sealed], [1]),
        lambda: keys.open(CONTEXT, [0], [sealed], [0]),
        lambda: keys.open(CONTEXT, [0], [sealed]),
    ):
        with pytest.raises(AuthenticationError):
            opened_by()


def test_one_message_under_another_key_is_named() -> None:
    channels = Channels(key_of(key) for key in range(3))
    sealed = channels.seal(CONTEXT, [0, 1, 2], [b"a", b"b", b"c"])
    for which, context, row in (
        ([0, 2, 1], CONTEXT, 1),
        ([0, 1, 1], CONTEXT, 2),
        ([0, 1, 2], replace(CONTEXT, layer=1), 0),
    ):
        with pytest.raises(AuthenticationError, match=f"message {row} ") as found:
            channels.open(context, which, sealed)
        assert found.value.row == row


Sealer = Callable[[Context, list[int]], list[bytes]]


@pytest.fixture(params=["one key", "many keys", "many keys, indices"])
def sealer(request: pytest.FixtureRequest) -> Sealer:
    """Seals a message at each of some numbers, which are indices or keys or both."""
    one, many = Channel(KEY), Channels(key_of(key) for key in range(9))
    sealers: dict[str, Sealer] = {
        "one key": lambda context, at: one.seal(context, at, [b""] * len(at)),
        "many keys": lambda context, at: many.seal(context, at, [b""] * len(at)),
        "many keys, indices": lambda context, at: many.seal(context, at, [b""] * len(at), at),
    }
    return sealers[request.param]


def test_no_nonce_is_used_twice(sealer: Sealer) -> None:
    with pytest.raises(NonceReuseError, match="twice"):
        sealer(CONTEXT, [4, 4])
    sealer(CONTEXT, [4, 5])
    for context in (CONTEXT, replace(CONTEXT, step=4), replace(CONTEXT, step=4, phase=200)):
        with pytest.raises(NonceReuseError):
            sealer(context, [7])
    for change in ({"layer": 9}, {"kind": 1}, {"phase": 9}, {"step": 6}):
        assert len(sealer(replace(CONTEXT, **change), [4, 5])) == 2
    with pytest.raises(NonceReuseError):
        sealer(replace(CONTEXT, layer=9), [4])


def test_another_run_is_no_other_nonce(sealer: Sealer) -> None:
    """The run is in the associated data only, so that a key belongs to one run."""
    sealer(CONTEXT, [4])
    with pytest.raises(NonceReuseError):
        sealer(replace(CONTEXT, run=b"another run 0123"), [4])


def test_one_key_takes_many_messages_at_different_indices_only() -> None:
    channels = Channels([KEY])
    with pytest.raises(NonceReuseError):
        channels.seal(CONTEXT, [0, 0], [b"a", b"b"])
    with pytest.raises(NonceReuseError):
        channels.seal(CONTEXT, [0, 0], [b"a", b"b"], [3, 3])
    assert len(channels.seal(CONTEXT, [0, 0], [b"a", b"b"], [3, 4])) == 2


@pytest.mark.parametrize("index", [-1, 2**32])
def test_an_index_has_four_bytes(index: int) -> None:
    channel, channels = Channel(KEY), Channels([KEY])
    for refused in (
        lambda: channel.seal(CONTEXT, [index], [b""]),
        lambda: channel.open(CONTEXT, [index], [bytes(16)]),
        lambda: channels.seal(CONTEXT, [0], [b""], [index]),
        lambda: channels.open(CONTEXT, [0], [bytes(16)], [index]),
    ):
        with pytest.raises(FormatError, match="indices"):
            refused()
    assert channel.seal(CONTEXT, [0], [b""]), "what was refused has not used up the place"
    assert channels.seal(CONTEXT, [0], [b""])


@pytest.mark.parametrize("count", [1, 3])
def test_there_is_a_message_for_every_index(count: int) -> None:
    channel, channels = Channel(KEY), Channels([KEY])
    sealed, plain = [by_the_cipher(KEY, index, b"") for index in range(count)], [b""] * count
    for refused in (
        lambda: channel.seal(CONTEXT, [0, 1], plain),
        lambda: channel.open(CONTEXT, [0, 1], sealed),
        lambda: channels.seal(CONTEXT, [0, 0], plain, [0, 1]),
        lambda: channels.seal(CONTEXT, [0] * count, plain, [0, 1]),
        lambda: channels.open(CONTEXT, [0, 0], sealed, [0, 1]),
        lambda: channels.open(CONTEXT, [0] * count, sealed, [0, 1]),
    ):
        with pytest.raises(FormatError) as error:
            refused()
        assert "2 " in str(error.value) and f"{count} " in str(error.value)
    assert channel.seal(CONTEXT, [0], [b""]), "what was refused has not used up the place"
    assert channels.seal(CONTEXT, [0], [b""])


def test_an_error_carries_neither_key_nor_content() -> None:
    key, secret = SecretKey(b"\xab" * 32), b"\xcd" * 20
    channel = Channel(key)
    sealed = channel.seal(CONTEXT, [1], [secret])
    messages = []
    for refused in (
        lambda: channel.seal(CONTEXT, [1], [secret]),
        lambda: channel.seal(CONTEXT, [2, 2], [secret, secret]),
        lambda: channel.seal(CONTEXT, [-1], [secret]),
        lambda: channel.open(CONTEXT, [2], sealed),
    ):
        with pytest.raises((NonceReuseError, FormatError, AuthenticationError)) as found:
            refused()
        messages.append(repr(found.value) + str(found.value))
    messages.append(repr(channel) + repr(Channels([key])))
    for shown in messages:
        assert not any(part in shown for part in ("abab", "xab", "cdcd", "xcd"))


@pytest.mark.parametrize("count", [1023, 1024, 1025, 1100])
def test_more_keys_than_ciphers_are_kept_for_make_no_difference(count: int) -> None:
    keys = [SecretKey(number.to_bytes(32, "big")) for number in range(count)]
    channels = Channels(keys[:1000])
    channels.extend(keys[1000:])
    which = [0, 999, count - 1]
    sealed = channels.seal(CONTEXT, which, [b"one"] * 3)
    assert sealed == [by_the_cipher(keys[one], 0, b"one") for one in which]
    more = [SecretKey(bytes(31) + b"m")]
    (other,) = Channels(more).seal(CONTEXT, [0], [b"two"])
    assert channels.open(CONTEXT, [*which, count], [*sealed, other], more=more)[3] == b"two"
