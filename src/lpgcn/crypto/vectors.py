"""Sealed vectors: many short messages of one size, sealed and opened by a few array operations.

A step opens hundreds of thousands of vectors of some 256 bytes. One AEAD call each is most of the
time of a step, so a vector is sealed by a construction of GCM's shape whose parts each work on all
vectors at once: counter-mode AES-256, then a universal hash of the ciphertext, then a one-time pad
on the hash (Wegman and Carter 1981; encrypt, then authenticate).

    pads        s ‖ t = AES-256(key, counter blocks of (step, phase, layer, index)), n ‖ 16 bytes
    ciphertext  c = payload ⊕ s
    tag         h(header ‖ c) + t    four words mod 2^32, h of `universal`
    header      the encoded context (version, run, step, phase, layer, sender, receiver) and n

The hash key comes from AES under the same key in a domain of its own and is fixed for the key, as
H is in GCM.

Why this is sound. Assume that AES-256 is a pseudo-random permutation and that no (step, phase,
layer, index) is sealed twice under a key; `VectorChannel.seal` refuses to, and whoever shares a key
among several senders gives each its own indices. Then the pads are one-time pads, up to
σ² / 2^129 for σ blocks under a key, so ciphertexts and tags tell nothing of payloads or of the hash
key. A forger who alters any bit of ciphertext, length, context, sender or index, or presents a new
one, must therefore guess a difference of hashes without knowing their key: at most 2^-108 for each
attempt (`universal`), where GCM has some 2^-123 at this length. As with GCM, a tag says that *some
holder of the key* made the vector, and under a repeated nonce all of this is lost.

The version of the format is part of the hashed context: a vector of another version does not open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import CipherContext

from lpgcn.crypto.context import CONTEXT_BYTES, Context, NonceGuard
from lpgcn.crypto.errors import AuthenticationError, FormatError, NonceReuseError
from lpgcn.crypto.keys import SecretKey
from lpgcn.crypto.keystream import (
    BLOCK_BYTES,
    WORD16,
    WORD32,
    Domain,
    UInt8,
    UInt32,
    UInt64,
    block_cipher,
    counter_blocks,
)
from lpgcn.crypto.universal import HASHES, MAX_WORDS, Float64, fold, hash_key, multilinear

TAG_BYTES: Final = 4 * HASHES
_BIG16: Final = np.dtype(">u2")
_HEADER_WORDS: Final = (CONTEXT_BYTES + 4) // 2
_SENDER: Final = slice(14, 16)
"""The sender's words in the header, where each row may have its own."""
_ZERO: Final = np.zeros(1, dtype=np.uint32)
_SCRATCH_BYTES: Final = 120_000
"""Hashed together: fits the cache, needs no threads of BLAS nor fresh memory of the system."""
MAX_PAYLOAD_BYTES: Final = 2 * (MAX_WORDS - _HEADER_WORDS) // 4 * 4


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
        plain = _words(payload, 0)
        places = _numbers(indices, len(plain), "indices")
        if len(set(places.tolist())) != places.size:
            raise NonceReuseError(f"an index appears twice among {places.size} for {context}")
        self._guard.claim(context)
        stream, key = self._pads(context, places, payload.shape[1])
        sealed = stream.copy()
        sealed[:, :-HASHES] ^= plain
        sealed[:, -HASHES:] += _hashes(context, None, sealed, lambda rows: key)
        return sealed.view(np.uint8)

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
        words = _words(sealed, TAG_BYTES)
        places = _numbers(indices, len(words), "indices")
        origins = None if senders is None else _numbers(senders, len(words), "senders")
        stream, key = self._pads(context, places, sealed.shape[1] - TAG_BYTES)
        return _open(context, origins, words, stream, lambda rows: key)

    def _pads(self, context: Context, places: UInt32, payload_bytes: int) -> tuple[UInt32, Float64]:
        if self._hash_key.size < _key_words(payload_bytes):
            self._hash_key = hash_key(_encrypt([self._cipher], _key_blocks(payload_bytes)))[0]
        blocks = _pad_blocks(context.step, context.slot, places, payload_bytes)
        stream = np.frombuffer(self._cipher.update(blocks.tobytes()), dtype=WORD32)
        words = stream.reshape(places.size, blocks.shape[1] * 4)
        return words[:, : payload_bytes // 4 + HASHES], self._hash_key


class VectorChannels:
    """Many keys, one vector each: what a convolution-client opens of all its neighbours at once.

    The vector of sender u is what `VectorChannel(K_u)` seals at index 0. Making a stream costs one
    AES call for each key, so the streams of all `slots`, the (phase, layer) pairs of a step, are
    made together when the first of them is opened, and kept until another step. A slot that is not
    among them is served by calls of its own, and nothing is kept.

    State: the cipher, about 1 KB per key. With slots also slots · (payload + 16) bytes for the
    streams and the hash key, 4 bytes per payload byte and 200.
    """

    __slots__ = ("_ciphers", "_hash_keys", "_kept_of", "_room", "_slots", "_streams")

    def __init__(self, keys: Sequence[SecretKey], slots: Sequence[tuple[int, int]] = ()) -> None:
        self._ciphers = [block_cipher(key) for key in keys]
        self._slots = {phase << 8 | layer: place for place, (phase, layer) in enumerate(slots)}
        self._kept_of = (-1, -1)
        self._room = memoryview(b"")
        self._streams: UInt32 = np.empty((0, 0, 0), dtype=WORD32)
        self._hash_keys: Float64 = np.empty((0, 0))

    def open(
        self,
        context: Context,
        senders: npt.ArrayLike,
        sealed: UInt8,
        keys: npt.NDArray[np.int64] | None = None,
    ) -> UInt8:
        """The payloads of rows of `sealed`, or AuthenticationError and none of them.

        Row r is by `senders[r]` under the key at position `keys[r]`; without `keys`, under key r.
        """
        words = _words(sealed, TAG_BYTES)
        expected = len(self._ciphers) if keys is None else keys.size
        if len(words) != expected:
            raise FormatError(f"{len(words)} sealed vectors for {expected} keys")
        origins = _numbers(senders, expected, "senders")
        payload_bytes, width = sealed.shape[1] - TAG_BYTES, words.shape[1]
        place = self._slots.get(context.slot)
        if place is not None:
            self._keep(context.step, payload_bytes)
            which = slice(None) if keys is None else keys
            stream, kept = self._streams[which, place, :width], self._hash_keys[which]
            return _open(context, origins, words, stream, kept.__getitem__)
        ciphers = self._ciphers if keys is None else [self._ciphers[i] for i in keys.tolist()]
        pad_blocks = _pad_blocks(context.step, context.slot, _ZERO, payload_bytes)
        key_blocks = _key_blocks(payload_bytes)
        stream = _encrypt(ciphers, pad_blocks).view(WORD32)[:, :width]
        return _open(
            context,
            origins,
            words,
            stream,
            lambda rows: hash_key(_encrypt(ciphers[rows], key_blocks)),
        )

    def _keep(self, step: int, payload_bytes: int) -> None:
        """Makes the streams of all slots, in the place of the last step's."""
        if self._kept_of == (step, payload_bytes):
            return
        slots = [_pad_blocks(step, slot, _ZERO, payload_bytes) for slot in self._slots]
        blocks = np.concatenate(slots).tobytes()
        if self._kept_of[1] != payload_bytes:
            size = len(self._ciphers) * len(blocks)
            shape = (len(self._ciphers), len(slots), len(blocks) // len(slots) // 4)
            self._room = memoryview(bytearray(size + BLOCK_BYTES))
            self._streams = np.frombuffer(self._room, WORD32, size // 4).reshape(shape)
            self._hash_keys = hash_key(_encrypt(self._ciphers, _key_blocks(payload_bytes)))
        for row, cipher in enumerate(self._ciphers):
            # The library wants room for one block more than it writes.
            first = row * len(blocks)
            cipher.update_into(blocks, self._room[first : first + len(blocks) + BLOCK_BYTES])
        self._kept_of = (step, payload_bytes)


def _open(
    context: Context,
    senders: UInt32 | None,
    sealed: UInt32,
    stream: UInt32,
    keys: Callable[[slice], Float64],
) -> UInt8:
    """Verifies all rows, then decrypts them."""
    tags = _hashes(context, senders, sealed, keys) + stream[:, -HASHES:]
    wrong = tags != sealed[:, -HASHES:]
    if wrong.any():
        rows = np.flatnonzero(wrong.any(axis=1)).tolist()
        raise AuthenticationError(
            f"{len(rows)} of {len(sealed)} vectors for {context} do not open, rows "
            f"{', '.join(map(str, rows[:10]))}{', …' if len(rows) > 10 else ''}: sealed by another "
            "key or in another context, or changed on their way; none was decrypted",
            rows,
        )
    return (sealed ^ stream).view(np.uint8)[:, :-TAG_BYTES]


def _hashes(
    context: Context,
    senders: UInt32 | None,
    sealed: UInt32,
    keys: Callable[[slice], Float64],
) -> UInt32:
    """h(header ‖ c) for the rows of `sealed`; the words in the tag's place are not looked at."""
    length = 4 * (sealed.shape[1] - HASHES)
    width = _HEADER_WORDS + length // 2
    at_once = min(len(sealed), max(1, _SCRATCH_BYTES // (8 * width)))
    words = np.empty((at_once, width))
    header = context.encode() + length.to_bytes(4, "big")
    words[:, :_HEADER_WORDS] = np.frombuffer(header, dtype=_BIG16)
    sums = np.empty((len(sealed), HASHES), dtype=np.int64)
    for first in range(0, len(sealed), max(1, at_once)):
        rows = slice(first, first + at_once)
        part = sealed[rows]
        filled = words[: len(part)]
        if senders is not None:
            filled[:, _SENDER] = senders[rows].astype(">u4")[:, None].view(_BIG16)
        filled[:, _HEADER_WORDS:] = part.view(WORD16)[:, : length // 2]
        sums[rows] = multilinear(filled, keys(rows))
    return fold(sums)


def _encrypt(ciphers: Sequence[CipherContext], blocks: UInt64) -> UInt8:
    """The same blocks under every cipher: shape (ciphers, bytes)."""
    data = blocks.tobytes()
    stream = b"".join([cipher.update(data) for cipher in ciphers])
    return np.frombuffer(stream, dtype=np.uint8).reshape(len(ciphers), len(data))


def _pad_blocks(step: int, slot: int, places: UInt32, payload_bytes: int) -> UInt64:
    count = -(-(payload_bytes + TAG_BYTES) // BLOCK_BYTES)
    return counter_blocks(Domain.PAD, step, slot, places, count)


def _key_words(payload_bytes: int) -> int:
    return _HEADER_WORDS + payload_bytes // 2 + HASHES - 1


def _key_blocks(payload_bytes: int) -> UInt64:
    count = -(-4 * _key_words(payload_bytes) // BLOCK_BYTES)
    return counter_blocks(Domain.HASH_KEY, 0, 0, _ZERO, count)


def _words(rows: UInt8, extra: int) -> UInt32:
    """The rows as 32-bit words, if they are whole words of a possible number."""
    if rows.dtype != np.uint8 or rows.ndim != 2:
        raise FormatError(f"vectors are rows of bytes, found {rows.dtype} of shape {rows.shape}")
    payload_bytes = rows.shape[1] - extra
    if payload_bytes % 4 or not 0 < payload_bytes <= MAX_PAYLOAD_BYTES:
        raise FormatError(
            f"a vector of {payload_bytes} bytes; it must be a multiple of 4 from 4 to "
            f"{MAX_PAYLOAD_BYTES}"
        )
    return np.ascontiguousarray(rows).view(WORD32)


def _numbers(values: npt.ArrayLike, rows: int, name: str) -> UInt32:
    """One 32-bit number for each row."""
    numbers = np.asarray(values)
    if numbers.shape != (rows,):
        raise FormatError(f"{name} of shape {numbers.shape} for {rows} vectors")
    if numbers.dtype == np.uint32:
        return numbers
    if rows and not (
        numbers.dtype.kind in "iu" and numbers.min() >= 0 and int(numbers.max()) < 1 << 32
    ):
        raise FormatError(f"{name} must be whole numbers in [0, 2^32)")
    return numbers.astype(np.uint32)
