"""The directory of all public keys: a Merkle tree, whose root two people can compare in words.

Leaves are the keys in the order of their bytes, which says nothing about whose they are. An *entry*
is a key with the proof that it is a leaf: its position and the hashes beside its way to the root.
A server that gives two clients different directories gives them different roots. Leaves and nodes
are told apart as in RFC 6962; a level with an odd number of nodes is filled up with an empty one.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from lpgcn.crypto.errors import AuthenticationError, FormatError
from lpgcn.crypto.keys import KEY_BYTES

ROOT_BYTES: Final = 32
_POSITION_BYTES: Final = 4
_LEAF, _NODE, _EMPTY, _SHOWN = b"\0", b"\1", sha256(b"\2").digest(), b"\3"
_CONSONANTS: Final = "bdfghjklmnprstvz"
_VOWELS: Final = "aiou"
_WORDS: Final = 8
"""128 bits: who could make two directories with the same words needs 2^64 of them."""


def entry_bytes(count: int) -> int:
    """The size of an entry of a directory of so many keys."""
    return KEY_BYTES + _POSITION_BYTES + ROOT_BYTES * _depth(count)


def _depth(count: int) -> int:
    return (count - 1).bit_length()


def _leaf(key: bytes) -> bytes:
    return sha256(_LEAF + key).digest()


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(_NODE + left + right).digest()


class Directory:
    """All keys of a term, at the server."""

    def __init__(self, publics: Sequence[bytes]) -> None:
        if len(set(publics)) != len(publics) or not publics:
            raise FormatError(f"{len(publics)} public keys, expected different ones")
        ordered = sorted(publics)
        self._position = {key: position for position, key in enumerate(ordered)}
        level = [_leaf(key) for key in ordered]
        self._levels: list[list[bytes]] = []
        for _ in range(_depth(len(publics))):
            level += [_EMPTY] * (len(level) % 2)
            self._levels.append(level)
            level = [_node(*level[at : at + 2]) for at in range(0, len(level), 2)]
        self.root = level[0]

    def entry(self, key: bytes) -> bytes:
        """The key, its position, and what stands beside its way up."""
        position = self._position[key]
        beside = [level[(position >> height) ^ 1] for height, level in enumerate(self._levels)]
        return key + position.to_bytes(_POSITION_BYTES, "big") + b"".join(beside)


def proved_key(entry: bytes, root: bytes, count: int) -> bytes:
    """The key of an entry, if the directory with this root and so many keys has it.

    A tree may have more leaves than it is said to have: deeper ones, or some behind the last. An
    entry of these is none of the `count` that people compare.
    """
    if len(entry) != entry_bytes(count):
        raise FormatError(
            f"a directory entry of {len(entry)} bytes, expected {entry_bytes(count)} among {count} "
            "keys"
        )
    key, path, at = entry[:KEY_BYTES], entry[KEY_BYTES + _POSITION_BYTES :], position(entry)
    if at >= count:
        raise AuthenticationError(
            f"the directory has more keys than the {count} members that there are said to be; do "
            "not go on with this server"
        )
    found = _leaf(key)
    for height in range(_depth(count)):
        beside = path[height * ROOT_BYTES : (height + 1) * ROOT_BYTES]
        found = _node(beside, found) if at >> height & 1 else _node(found, beside)
    if found != root:
        raise AuthenticationError(
            "a public key that is not in the directory whose fingerprint this client shows; do not "
            "go on with this server"
        )
    return key


def position(entry: bytes) -> int:
    """Where in the directory an entry says that it is; `proved_key` says whether it is."""
    return int.from_bytes(entry[KEY_BYTES : KEY_BYTES + _POSITION_BYTES], "big")


def fingerprint(root: bytes, count: int) -> str:
    """Of a directory, and of how many keys it is said to have: the root alone tells its depth."""
    return spoken(sha256(_SHOWN + count.to_bytes(_POSITION_BYTES, "big") + root).digest())


def spoken(digest: bytes) -> str:
    """Eight words that can be read aloud (proquints, Wilkerson 2009), of 16 bits each."""
    words = []
    for at in range(0, 2 * _WORDS, 2):
        bits = int.from_bytes(digest[at : at + 2], "big")
        words.append(
            _CONSONANTS[bits >> 12] + _VOWELS[bits >> 10 & 3] + _CONSONANTS[bits >> 6 & 15]
            + _VOWELS[bits >> 4 & 3] + _CONSONANTS[bits & 15]
        )  # fmt: skip
    return "-".join(words)
