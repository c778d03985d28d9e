"""The directory of public keys: every key of it is proved, and nothing else."""

from __future__ import annotations

import re
import struct
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.crypto import (
    KEY_BYTES,
    ROOT_BYTES,
    AuthenticationError,
    Directory,
    FormatError,
    entry_bytes,
    fingerprint,
    proved_key,
)
from lpgcn.crypto.directory import spoken

keys = st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)
directories = st.lists(keys, min_size=1, max_size=40, unique=True)
refused = pytest.raises((AuthenticationError, FormatError))


def root_of(publics: list[bytes]) -> bytes:
    """Another way to the root: a perfect tree, of which what nobody fills is cut off at the end."""
    leaves = [sha256(b"\0" + key).digest() for key in sorted(publics)]

    def under(first: int, count: int) -> bytes:
        if first >= len(leaves):
            return sha256(b"\2").digest()
        if count == 1:
            return leaves[first]
        half = count // 2
        both = under(first, half) + under(first + half, half)
        return sha256(b"\1" + both).digest()

    size = 1
    while size < len(leaves):
        size *= 2
    return under(0, size)


@given(directories, st.randoms(use_true_random=False))
def test_every_key_is_proved_in_any_order(publics: list[bytes], order: object) -> None:
    directory = Directory(publics)
    shuffled = list(publics)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    assert Directory(shuffled).root == directory.root == root_of(publics)
    assert len(directory.root) == ROOT_BYTES
    for key in publics:
        entry = directory.entry(key)
        assert len(entry) == entry_bytes(len(publics))
        assert entry[:KEY_BYTES] == proved_key(entry, directory.root, len(publics)) == key


@given(directories, keys, st.data())
def test_no_other_key_is_proved(publics: list[bytes], other: bytes, data: st.DataObject) -> None:
    """Neither a stranger's nor another member's, with whatever proof."""
    directory = Directory(publics)
    entry = directory.entry(data.draw(st.sampled_from(publics)))
    for key in {other, *publics} - {entry[:KEY_BYTES]}:
        with refused:
            proved_key(key + entry[KEY_BYTES:], directory.root, len(publics))


@given(directories, st.data())
def test_no_bit_of_an_entry_or_of_the_root_can_be_changed(
    publics: list[bytes], data: st.DataObject
) -> None:
    directory = Directory(publics)
    entry, root = directory.entry(data.draw(st.sampled_from(publics))), directory.root
    for whole in (entry, root):
        bit = data.draw(st.integers(0, 8 * len(whole) - 1))
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        with refused:
            changed = (bytes(flipped), root) if whole is entry else (entry, bytes(flipped))
            proved_key(*changed, len(publics))


@given(directories, st.integers(0, 2**32 - 1), st.data())
def test_a_key_is_proved_at_its_own_place_only(
    publics: list[bytes], position: int, data: st.DataObject
) -> None:
    directory = Directory(publics)
    entry = directory.entry(data.draw(st.sampled_from(publics)))
    place = slice(KEY_BYTES, KEY_BYTES + 4)
    for other in {position, *range(len(publics))} - {int.from_bytes(entry[place], "big")}:
        with refused:
            moved = entry[:KEY_BYTES] + other.to_bytes(4, "big") + entry[place.stop :]
            proved_key(moved, directory.root, len(publics))


@given(directories, st.data())
def test_an_entry_of_another_length_is_refused(publics: list[bytes], data: st.DataObject) -> None:
    directory = Directory(publics)
    entry = directory.entry(data.draw(st.sampled_from(publics)))
    cut = data.draw(st.integers(0, len(entry) - 1))
    more = data.draw(st.binary(min_size=1, max_size=70))
    for wrong in (entry[:cut], entry + more):
        with refused:
            proved_key(wrong, directory.root, len(publics))


def test_a_node_is_no_leaf() -> None:
    """Two hashes are as long as two keys; but nobody can show an inner node as a key."""
    publics = [bytes((number,)) * KEY_BYTES for number in range(4)]
    directory = Directory(publics)
    beside = directory.entry(publics[3])[-ROOT_BYTES:]
    leaves = [sha256(b"\0" + key).digest() for key in publics]
    inner = sha256(b"\1" + leaves[0] + leaves[1]).digest()
    assert beside == inner
    for key in (inner, leaves[0]):
        for path in (b"", beside, leaves[1] + beside):
            for position in range(4):
                for count in (1, 2, 4):
                    with refused:
                        proved_key(key + position.to_bytes(4, "big") + path, directory.root, count)


@given(directories, st.integers(1, 70))
def test_a_tree_has_no_keys_but_those_that_are_counted(publics: list[bytes], count: int) -> None:
    """Whatever the server puts behind the last counted key, or deeper in the tree."""
    directory = Directory(publics)
    for position, key in enumerate(sorted(publics)):
        entry = directory.entry(key)
        if position < count and len(entry) == entry_bytes(count):
            assert proved_key(entry, directory.root, count) == key
        else:
            with refused:
                proved_key(entry, directory.root, count)


@given(directories, directories)
def test_different_keys_have_different_roots(one: list[bytes], other: list[bytes]) -> None:
    assert (Directory(one).root == Directory(other).root) == (set(one) == set(other))


@given(directories, keys, st.data())
def test_one_key_more_less_or_exchanged_is_another_root(
    publics: list[bytes], key: bytes, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(publics))
    left = [one for one in publics if one != gone]
    roots = {Directory(publics).root}
    if key not in publics:
        roots |= {Directory([*publics, key]).root, Directory([*left, key]).root}
        assert len(roots) == 3
    if left:
        assert Directory(left).root not in roots


@pytest.mark.parametrize("publics", [[], [b"\1" * 32, b"\1" * 32]])
def test_keys_that_are_none_or_the_same_are_no_directory(publics: list[bytes]) -> None:
    with pytest.raises(FormatError, match=f"{len(publics)} public keys"):
        Directory(publics)


PROQUINTS = {
    "127.0.0.1": "lusab-babad",
    "63.84.220.193": "gutih-tugad",
    "63.118.7.35": "gutuk-bisog",
    "140.98.193.141": "mudof-sakat",
    "64.255.6.200": "haguz-biram",
    "147.67.119.2": "natag-lisaf",
    "212.58.253.68": "tibup-zujah",
    "198.81.129.136": "sinid-makam",
}
"""Examples of Wilkerson's article: an address is two words."""


def test_words_are_those_of_the_article() -> None:
    addresses = [bytes(map(int, address.split("."))) for address in PROQUINTS]
    words = list(PROQUINTS.values())
    for first in range(0, len(words), 4):
        root = b"".join(addresses[first : first + 4]) + bytes(16)
        assert spoken(root) == "-".join(words[first : first + 4])


@given(keys, st.integers(0, 127))
def test_words_differ_wherever_the_first_half_of_a_digest_does(root: bytes, bit: int) -> None:
    words = spoken(root)
    assert re.fullmatch("(([bdfghjklmnprstvz][aiou]){2}[bdfghjklmnprstvz]-?){8}", words)
    assert len(words.split("-")) == 8
    flipped = bytearray(root)
    flipped[bit // 8] ^= 1 << bit % 8
    changed = spoken(bytes(flipped)).split("-")
    assert [one == other for one, other in zip(words.split("-"), changed, strict=True)].count(
        False
    ) == 1


@given(keys, st.integers(1, 2**32 - 2))
def test_a_fingerprint_is_of_the_number_of_members_too(root: bytes, count: int) -> None:
    digest = sha256(b"\3" + struct.pack(">I", count) + root).digest()
    assert fingerprint(root, count) == spoken(digest) != fingerprint(root, count + 1)
