"""Messages and rows of vectors under AES-256-GCM: an AEAD call each, however many travel together.

A step of a federation opens hundreds of thousands of vectors of some 256 bytes. What makes that
cheap is that everything around the cipher is done once for all rows of a call: the associated data
is the encoded context, the same for all of them, and a nonce is one concatenation.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from operator import call
from typing import Final

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from lpgcn.crypto.context import VERSION, Context, NonceGuard
from lpgcn.crypto.errors import AuthenticationError, FormatError, NonceReuseError
from lpgcn.crypto.keys import SecretKey

UInt8 = npt.NDArray[np.uint8]

TAG_BYTES: Final = 16
CHANNEL_OVERHEAD: Final = 1 + TAG_BYTES
_PLACE: Final = struct.Struct(">Q")
_INDEX: Final = struct.Struct(">I")
_INDEX_ZERO: Final = bytes(_INDEX.size)

Cipher = Callable[[bytes, bytes | memoryview, bytes], bytes]


class Indices:
    """The indices of rows as the last bytes of nonces: worth keeping for who opens the same rows in
    every round."""

    __slots__ = ("packed",)

    def __init__(self, indices: npt.ArrayLike) -> None:
        numbers = np.asarray(indices)
        if numbers.ndim != 1:
            raise FormatError(f"indices of shape {numbers.shape}, expected one for each row")
        if numbers.size and not 0 <= int(numbers.min()) <= int(numbers.max()) < 1 << 32:
            raise FormatError("indices must be in [0, 2^32)")
        packed = numbers.astype(">u4").tobytes()
        self.packed: tuple[bytes, ...] = struct.unpack(f"{_INDEX.size}s" * numbers.size, packed)


class Channel:
    """One key, which belongs to one sender and one purpose, or whose senders share out the indices.

    The nonce is (step: 48 bits, phase: 8, layer: 8, index: 32), so two messages never share one
    unless somebody seals the same place twice, which `seal` and `seal_rows` refuse. Two directions
    between the same two parties are two senders and need two keys.
    """

    __slots__ = ("_cipher", "_guard")

    def __init__(self, key: SecretKey) -> None:
        self._cipher = AESGCM(key.reveal())
        self._guard = NonceGuard()

    def seal(self, context: Context, index: int, plaintext: bytes) -> bytes:
        """version ‖ ciphertext ‖ tag, with the encoded context as associated data."""
        nonce = _place(context) + _index(index)
        self._guard.claim(context, index)
        return bytes((VERSION,)) + self._cipher.encrypt(nonce, plaintext, context.encode())

    def open(self, context: Context, index: int, sealed: bytes) -> bytes:
        """The plaintext of what `seal` made with this key, context and index."""
        if len(sealed) < CHANNEL_OVERHEAD:
            raise FormatError(f"{len(sealed)} sealed bytes, but {CHANNEL_OVERHEAD} is the least")
        if sealed[0] != VERSION:
            raise FormatError(f"sealed message of version {sealed[0]}, expected {VERSION}")
        nonce = _place(context) + _index(index)
        try:
            return self._cipher.decrypt(nonce, memoryview(sealed)[1:], context.encode())
        except InvalidTag as error:
            raise _does_not_open(context, "index", index) from error

    def seal_rows(self, context: Context, indices: Indices | npt.ArrayLike, rows: UInt8) -> UInt8:
        """Rows of `rows` (n, bytes), each sealed at its index: shape (n, bytes + 16).

        All rows of a (step, phase, layer) are sealed in one call; a second one is refused. The
        version of the format is in the context.
        """
        nonces = _nonces(context, indices, len(rows))
        if len(set(nonces)) != len(nonces):
            raise NonceReuseError(f"an index appears twice among {len(nonces)} for {context}")
        self._guard.claim(context)
        return _rows(repeat(self._cipher.encrypt), nonces, context, rows, TAG_BYTES)

    def open_rows(self, context: Context, indices: Indices | npt.ArrayLike, sealed: UInt8) -> UInt8:
        """The contents of rows that `seal_rows` made, or AuthenticationError and none of them."""
        nonces = _nonces(context, indices, len(sealed))
        return _rows(repeat(self._cipher.decrypt), nonces, context, sealed, -TAG_BYTES)


class Channels:
    """Many keys, one message each: what an owner opens of all its neighbours at once, or a client
    seals to all owners of its items. The message of key K is what `Channel(K)` seals at index 0."""

    __slots__ = ("_ciphers", "_guard")

    def __init__(self, keys: Sequence[SecretKey]) -> None:
        self._ciphers = [AESGCM(key.reveal()) for key in keys]
        self._guard = NonceGuard()

    def __len__(self) -> int:
        return len(self._ciphers)

    def seal(self, context: Context, messages: Sequence[bytes]) -> list[bytes]:
        """One message under every key, each longer by 16 bytes."""
        if len(messages) != len(self):
            raise FormatError(f"{len(messages)} messages for {len(self)} keys")
        self._guard.claim(context)
        nonce, data = _place(context) + _INDEX_ZERO, context.encode()
        return [
            cipher.encrypt(nonce, message, data)
            for cipher, message in zip(self._ciphers, messages, strict=True)
        ]

    def open(self, context: Context, keys: Sequence[int], messages: Sequence[bytes]) -> list[bytes]:
        """The contents of messages, the r-th under the key at position keys[r]."""
        if len(keys) != len(messages):
            raise FormatError(f"{len(messages)} messages for {len(keys)} keys")
        nonce, data = _place(context) + _INDEX_ZERO, context.encode()
        opened: list[bytes] = []
        try:
            for message, key in zip(messages, keys, strict=True):
                opened.append(self._ciphers[key].decrypt(nonce, message, data))
        except InvalidTag as error:
            raise _does_not_open(context, "message", len(opened)) from error
        return opened

    def open_rows(self, context: Context, keys: Sequence[int], sealed: UInt8) -> UInt8:
        """The contents of rows of one size, the r-th under the key at position keys[r]."""
        if len(keys) != len(sealed):
            raise FormatError(f"{len(sealed)} sealed rows for {len(keys)} keys")
        decrypt = [self._ciphers[key].decrypt for key in keys]
        nonces = repeat(_place(context) + _INDEX_ZERO)
        return _rows(decrypt, nonces, context, sealed, -TAG_BYTES)


def _rows(
    ciphers: Iterable[Cipher],
    nonces: Iterable[bytes],
    context: Context,
    rows: UInt8,
    longer: int,
) -> UInt8:
    """Every row through its cipher, with its nonce; the result's rows are `longer`.

    The loop over rows is `map`'s, in C: in Python it would take as long as the cipher.
    """
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] + min(longer, 0) < 0:
        raise FormatError(f"rows of bytes are expected, found {rows.dtype} of shape {rows.shape}")
    count, width = rows.shape
    parts = struct.unpack(f"{width}s" * count, rows.tobytes())
    done: list[bytes] = []
    try:
        done.extend(map(call, ciphers, nonces, parts, repeat(context.encode())))
    except InvalidTag as error:
        # `extend` keeps what came before the error, so the row that failed is the next one.
        raise _does_not_open(context, "row", len(done)) from error
    return np.frombuffer(bytearray().join(done), dtype=np.uint8).reshape(count, width + longer)


def _does_not_open(context: Context, what: str, number: int) -> AuthenticationError:
    return AuthenticationError(
        f"{what} {number} for {context} does not open: sealed by another key or in another "
        "context, or changed on its way; nothing was decrypted",
        number,
    )


def _place(context: Context) -> bytes:
    return _PLACE.pack(context.step << 16 | context.slot)


def _index(index: int) -> bytes:
    if not 0 <= index < 1 << 32:
        raise FormatError(f"message index {index} is outside [0, 2^32)")
    return _INDEX.pack(index)


def _nonces(context: Context, indices: Indices | npt.ArrayLike, count: int) -> list[bytes]:
    """place ‖ index for each row."""
    packed = (indices if isinstance(indices, Indices) else Indices(indices)).packed
    if len(packed) != count:
        raise FormatError(f"{len(packed)} indices for {count} rows")
    return list(map(_place(context).__add__, packed))
