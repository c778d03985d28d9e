"""The two ends of sealed vectors: one key with many indices, and many keys at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from lpgcn.crypto.context import Context, NonceGuard
from lpgcn.crypto.errors import FormatError, NonceReuseError
from lpgcn.crypto.keys import SecretKey
from lpgcn.crypto.keystream import BLOCK_BYTES, WORD32, UInt8, UInt32, block_cipher
from lpgcn.crypto.sealing import (
    TAG_BYTES,
    ZERO,
    as_numbers,
    as_words,
    encrypt,
    key_blocks,
    key_words,
    open_rows,
    pad_blocks,
    seal_rows,
)
from lpgcn.crypto.universal import HASHES, Float64, Int64, hash_key


class VectorChannel:
    """One key, many indices: the vectors of all items under the group's key, or of one sender.

    State: the cipher (about 1 KB) and the hash key (4 bytes per payload byte, and 200).
    """

    __slots__ = ("_cipher", "_guard", "_hash_key")

    def __init__(self, key: SecretKey) -> None:
        self._cipher = block_cipher(key)
        self._guard = NonceGuard()
        self._hash_key: Float64 = np.empty(0)

    def seal(self, context: Context, indices: npt.ArrayLike, payload: UInt8) -> UInt8:
        """Rows of `payload` (n, bytes), each sealed at its index: shape (n, bytes + 16).

        All vectors of a (step, phase, layer) are sealed in one call; a second one is refused.
        """
        plain = as_words(payload, 0)
        places = as_numbers(indices, len(plain), "indices")
        if len(set(places.tolist())) != places.size:
            raise NonceReuseError(f"an index appears twice among {places.size} for {context}")
        self._guard.claim(context)
        stream, key = self._pads(context, places, payload.shape[1])
        return seal_rows(context, plain, stream, lambda rows: key)

    def open(
        self,
        context: Context,
        indices: npt.ArrayLike,
        sealed: UInt8,
        senders: npt.ArrayLike | None = None,
    ) -> UInt8:
        """The payloads of rows of `sealed`, or AuthenticationError and none of them.

        `senders` has one sender for each row; without it all are from the context's.
        """
        words = as_words(sealed, TAG_BYTES)
        places = as_numbers(indices, len(words), "indices")
        origins = None if senders is None else as_numbers(senders, len(words), "senders")
        stream, key = self._pads(context, places, sealed.shape[1] - TAG_BYTES)
        return open_rows(context, origins, words, stream, lambda rows: key)

    def _pads(self, context: Context, places: UInt32, payload_bytes: int) -> tuple[UInt32, Float64]:
        if self._hash_key.size < key_words(payload_bytes):
            self._hash_key = hash_key(encrypt([self._cipher], key_blocks(payload_bytes)))[0]
        blocks = pad_blocks(context.step, context.slot, places, payload_bytes)
        stream = np.frombuffer(self._cipher.update(blocks.tobytes()), dtype=WORD32)
        words = stream.reshape(places.size, blocks.shape[1] * 4)
        return words[:, : payload_bytes // 4 + HASHES], self._hash_key


class VectorChannels:
    """Many keys: what a client seals for, or opens of, all its neighbours at once.

    The row at (key, index) is what `VectorChannel(key)` seals at that index. Streams cost one AES
    call for each key, so those of all `slots`, the (phase, layer) pairs of a step in which a key
    has one vector, at index 0, are made together when the first of them is opened, and kept until
    another step. Other slots, and rows with indices, are served by calls of their own.

    State per key: the cipher, about 1 KB; the hash key, 4 bytes per payload byte and 200; and
    slots · (payload + 16) bytes for the streams.
    """

    __slots__ = (
        "_ciphers",
        "_distinct",
        "_guard",
        "_hash_keys",
        "_kept_of",
        "_room",
        "_slots",
        "_streams",
    )

    def __init__(self, keys: Sequence[SecretKey], slots: Sequence[tuple[int, int]] = ()) -> None:
        self._ciphers = [block_cipher(key) for key in keys]
        self._distinct = len({key.reveal() for key in keys}) == len(keys)
        self._guard = NonceGuard()
        self._slots = {phase << 8 | layer: place for place, (phase, layer) in enumerate(slots)}
        self._kept_of = (-1, -1)
        self._room = memoryview(b"")
        self._streams: UInt32 = np.empty((0, 0, 0), dtype=WORD32)
        self._hash_keys: Float64 = np.empty((0, 0))

    def seal(
        self, context: Context, payload: UInt8, keys: npt.ArrayLike, indices: npt.ArrayLike
    ) -> UInt8:
        """Row r of `payload` (n, bytes) sealed at `indices[r]` under the key at position `keys[r]`.

        All vectors of a (step, phase, layer) are sealed in one call; a second one is refused, and
        so is sealing when two positions hold the same key.
        """
        if not self._distinct:
            raise NonceReuseError("a key is listed twice: list it once, and give its rows indices")
        plain = as_words(payload, 0)
        which = self._positions(keys, len(plain))
        places = as_numbers(indices, len(plain), "indices")
        if len(set((which << 32 | places).tolist())) != places.size:
            raise NonceReuseError(f"a key and index appear twice among {places.size} for {context}")
        self._guard.claim(context)
        stream = self._stream(context, which, places, payload.shape[1])
        hash_keys = self._keys_for(payload.shape[1])
        return seal_rows(context, plain, stream, lambda rows: hash_keys[which[rows]])

    def open(
        self,
        context: Context,
        senders: npt.ArrayLike,
        sealed: UInt8,
        keys: npt.ArrayLike | None = None,
        indices: npt.ArrayLike | None = None,
    ) -> UInt8:
        """The payloads of rows of `sealed`, or AuthenticationError and none of them.

        Row r is by `senders[r]`, under the key at position `keys[r]` and at `indices[r]`; without
        `keys` it is under key r, without `indices` at 0.
        """
        words = as_words(sealed, TAG_BYTES)
        rows, payload_bytes = len(words), sealed.shape[1] - TAG_BYTES
        if keys is None and rows != len(self._ciphers):
            raise FormatError(f"{rows} sealed vectors for {len(self._ciphers)} keys")
        origins = as_numbers(senders, rows, "senders")
        which = None if keys is None else self._positions(keys, rows)
        if indices is None and context.slot in self._slots:
            kept = self._kept(context, payload_bytes)
            stream = kept if which is None else kept[which]
        else:
            places = np.zeros(rows, np.uint32)
            if indices is not None:
                places = as_numbers(indices, rows, "indices")
            positions = np.arange(rows) if which is None else which
            stream = self._stream(context, positions, places, payload_bytes)
        hash_keys = self._keys_for(payload_bytes)
        return open_rows(
            context,
            origins,
            words,
            stream,
            lambda part: hash_keys[part if which is None else which[part]],
        )

    def _positions(self, keys: npt.ArrayLike, rows: int) -> Int64:
        which = as_numbers(keys, rows, "keys").astype(np.int64)
        if rows and which.max() >= len(self._ciphers):
            raise FormatError(f"key {which.max()} of {len(self._ciphers)}, counted from 0")
        return which

    def _stream(self, context: Context, keys: Int64, places: UInt32, payload_bytes: int) -> UInt32:
        """The stream of every row, by one AES call for the rows of a key."""
        order = keys.argsort(kind="stable")
        blocks = pad_blocks(context.step, context.slot, places[order], payload_bytes)
        counters, row_bytes = memoryview(blocks.tobytes()), blocks.shape[1] * BLOCK_BYTES
        ends = np.bincount(keys, minlength=len(self._ciphers)).cumsum() * row_bytes
        made = [
            cipher.update(counters[start:end])
            for cipher, (start, end) in zip(
                self._ciphers, pairwise([0, *ends.tolist()]), strict=True
            )
            if start < end
        ]
        stream = np.empty((len(keys), row_bytes // 4), dtype=WORD32)
        stream[order] = np.frombuffer(b"".join(made), WORD32).reshape(stream.shape)
        return stream[:, : HASHES + payload_bytes // 4]

    def _keys_for(self, payload_bytes: int) -> Float64:
        """The hash keys; that of a shorter payload is the beginning of that of a longer one."""
        if self._hash_keys.shape[1] < key_words(payload_bytes):
            self._hash_keys = hash_key(encrypt(self._ciphers, key_blocks(payload_bytes)))
        return self._hash_keys

    def _kept(self, context: Context, payload_bytes: int) -> UInt32:
        """The slot's streams; those of all slots are made anew, in place, for another step."""
        if self._kept_of != (context.step, payload_bytes):
            slots = [pad_blocks(context.step, slot, ZERO, payload_bytes) for slot in self._slots]
            blocks = np.concatenate(slots).tobytes()
            if self._kept_of[1] != payload_bytes:
                size = len(self._ciphers) * len(blocks)
                shape = (len(self._ciphers), len(slots), len(blocks) // len(slots) // 4)
                self._room = memoryview(bytearray(size + BLOCK_BYTES))
                self._streams = np.frombuffer(self._room, WORD32, size // 4).reshape(shape)
            for row, cipher in enumerate(self._ciphers):
                # The library wants room for one block more than it writes.
                first = row * len(blocks)
                cipher.update_into(blocks, self._room[first : first + len(blocks) + BLOCK_BYTES])
            self._kept_of = (context.step, payload_bytes)
        return self._streams[:, self._slots[context.slot], : HASHES + payload_bytes // 4]
