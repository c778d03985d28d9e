"""Messages under AES-256-GCM: an AEAD call each, however many travel together.

A step of a federation opens tens of thousands of vectors of some 256 bytes, most of them each under
a key of its own. A cipher object takes 2.4 KB and making one half a microsecond, so that those of
very many keys are made when they are needed. The associated data is the encoded context, the same
for all messages of a call; a nonce is (step: 40 bits, phase: 8, layer: 8, kind: 8, index: 32). Two
messages never share one unless somebody seals the same place twice, which is refused: all messages
of a context are sealed in one call. The version of the format is in the context.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from lpgcn.crypto.context import Context, NonceGuard
from lpgcn.crypto.errors import AuthenticationError, FormatError, NonceReuseError
from lpgcn.crypto.keys import SecretKey

TAG_BYTES: Final = 16
"""A sealed message is longer than its content by this."""
_FEW_KEYS: Final = 1024
"""The ciphers of so few keys are kept, 2.5 MB at most: they are used in every round."""
_INDEX: Final = struct.Struct(">I")
_INDEX_ZERO: Final = bytes(_INDEX.size)


class Channels:
    """Many keys: what an owner opens of all its neighbours at once, or a client seals to all owners
    of its items. Each key belongs to one sender and one purpose, or its senders share out the
    indices."""

    __slots__ = ("_ciphers", "_guard", "_keys")

    def __init__(self, keys: Iterable[SecretKey] = ()) -> None:
        self._keys: list[bytes] = []
        self._ciphers: list[AESGCM] = []
        self._guard = NonceGuard()
        self.extend(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def extend(self, keys: Iterable[SecretKey]) -> None:
        """More keys, behind those that are there."""
        added = [key.reveal() for key in keys]
        self._keys += added
        if len(self) <= _FEW_KEYS:
            self._ciphers += map(AESGCM, added)
        else:
            self._ciphers.clear()

    def reveal(self) -> bytes:
        """All keys, to be put into a checkpoint of their owner's, and nowhere else."""
        return b"".join(self._keys)

    def _chosen(self, which: Sequence[int], more: Sequence[SecretKey] = ()) -> list[AESGCM]:
        if self._ciphers and not more:
            return [self._ciphers[key] for key in which]
        keys = [*self._keys, *(key.reveal() for key in more)] if more else self._keys
        return [AESGCM(keys[key]) for key in which]

    def seal(
        self,
        context: Context,
        which: Sequence[int],
        messages: Sequence[bytes],
        indices: Sequence[int] | None = None,
    ) -> list[bytes]:
        """The r-th message under the key at position which[r], at index 0 or indices[r]."""
        _check_counts(which, messages, which if indices is None else indices)
        places = which if indices is None else list(zip(which, indices, strict=False))
        if len(set(places)) != len(places):
            raise NonceReuseError(f"a key and index appear twice for {context}")
        nonces, ciphers, data = _nonces(context, indices), self._chosen(which), context.encode()
        self._guard.claim(context)
        return [
            cipher.encrypt(nonce, message, data)
            for cipher, message, nonce in zip(ciphers, messages, nonces, strict=False)
        ]

    def open(
        self,
        context: Context,
        which: Sequence[int],
        sealed: Sequence[bytes],
        indices: Sequence[int] | None = None,
        *,
        more: Sequence[SecretKey] = (),
    ) -> list[bytes]:
        """The contents of what `seal` made, or AuthenticationError and none of them; `more` keys
        stand behind those that are there, for this once."""
        _check_counts(which, sealed, which if indices is None else indices)
        nonces, data = _nonces(context, indices), context.encode()
        opened: list[bytes] = []
        try:
            for cipher, message, nonce in zip(
                self._chosen(which, more), sealed, nonces, strict=False
            ):
                opened.append(cipher.decrypt(nonce, message, data))
        except InvalidTag as error:
            raise _does_not_open(context, len(opened)) from error
        return opened


def _check_counts(*parts: Sequence[object]) -> None:
    """One key, one message and one index each, or nothing is sealed or opened at all."""
    first = len(parts[0])
    if any(len(part) != first for part in parts):
        counts = " and ".join(str(len(part)) for part in parts)
        raise FormatError(f"{counts} keys, messages and indices, expected as many of each")


def _nonces(context: Context, indices: Sequence[int] | None) -> Iterable[bytes]:
    """place ‖ index for each message; index 0 for all, if none are given."""
    place = context.place
    if indices is None:
        return repeat(place + _INDEX_ZERO)
    try:
        return [place + _INDEX.pack(index) for index in indices]
    except struct.error as error:
        raise FormatError("message indices must be in [0, 2^32)") from error


def _does_not_open(context: Context, number: int) -> AuthenticationError:
    return AuthenticationError(
        f"message {number} for {context} does not open: sealed by another key or in another "
        "context, or changed on its way; nothing was decrypted",
        number,
    )
