"""Sealed vectors: many short messages of one size, sealed and opened by a few array operations.

A step opens hundreds of thousands of vectors of some 256 bytes. One AEAD call each is most of the
time of a step, so a vector is sealed by a construction of GCM's shape whose parts each work on all
vectors at once: counter-mode AES-256, then a universal hash of the ciphertext, then a one-time pad
on the hash (Wegman and Carter 1981; encrypt, then authenticate).

    pads        t ‖ s = AES-256(key, counter blocks of (step, phase, layer, index)), 16 ‖ n bytes
    ciphertext  c = payload ⊕ s
    tag         h(header ‖ sender ‖ index ‖ c) + t     four words mod 2^32, h of `universal`
    header      the encoded context (version, run, step, phase, layer, receiver), the length of c

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

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import CipherContext

from lpgcn.crypto.context import CONTEXT_BYTES, Context, NonceGuard
from lpgcn.crypto.errors import AuthenticationError, FormatError, NonceReuseError
from lpgcn.crypto.keys import SecretKey
from lpgcn.crypto.keystream import (
    BLOCK_BYTES,
    Domain,
    UInt8,
    UInt32,
    UInt64,
    block_cipher,
    counter_blocks,
)
from lpgcn.crypto.universal import HASHES, MAX_WORDS, Float64, hash_key, multilinear

TAG_BYTES: Final = 4 * HASHES
_HEADER_BYTES: Final = CONTEXT_BYTES + 1 + 4
_PREFIX_WORDS: Final = _HEADER_BYTES // 2 + 4
_ROWS_AT_ONCE: Final = 256
"""Rows hashed together: they fit the cache, and BLAS starts no threads for a product so small."""
MAX_PAYLOAD_BYTES: Final = 2 * (MAX_WORDS - _PREFIX_WORDS) // 4 * 4


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
        places = _numbers(indices, payload.shape[0], "indices")
        if places.size > 1 and np.unique(places).size != places.size:
            raise NonceReuseError(f"an index appears twice among {places.size} for {context}")
        plain = _words(payload, 0)
        self._guard.claim(context)
        stream = self._stream(context, places, payload.shape[1])
        sealed = np.empty((plain.shape[0], plain.shape[1] + HASHES), dtype="<u4")
        np.bitwise_xor(plain, stream[:, HASHES:], out=sealed[:, :-HASHES])
        key = self._key_for(payload.shape[1])
        sealed[:, -HASHES:] = _tags(context, context.sender, places, sealed, stream, key)
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
        places = _numbers(indices, sealed.shape[0], "indices")
        origins = (
            context.sender if senders is None else _numbers(senders, sealed.shape[0], "senders")
        )
        words = _words(sealed, TAG_BYTES)
        payload_bytes = sealed.shape[1] - TAG_BYTES
        stream = self._stream(context, places, payload_bytes)
        key = self._key_for(payload_bytes)
        return _open(context, origins, places, words, stream, key)

    def _stream(self, context: Context, places: UInt32, payload_bytes: int) -> UInt32:
        count = _pad_blocks(payload_bytes)
        blocks = counter_blocks(Domain.PAD, context.step, context.slot, places, count)
        stream = np.frombuffer(self._cipher.update(blocks.tobytes()), dtype="<u4")
        return stream.reshape(places.size, 4 * count)[:, : HASHES + payload_bytes // 4]

    def _key_for(self, payload_bytes: int) -> Float64:
        if self._hash_key.size < _key_words(payload_bytes):
            stream = self._cipher.update(_hash_key_blocks(payload_bytes).tobytes())
            self._hash_key = hash_key(np.frombuffer(stream, dtype=np.uint8))
        return self._hash_key


class VectorChannels:
    """Many keys, one vector each: what a convolution-client opens of all its neighbours at once.

    The vector of sender u is what `VectorChannel(K_u)` seals at index 0. Making a stream costs one
    AES call for each key, so the streams of all `slots`, the (phase, layer) pairs of a step, are
    made together when the first of them is opened, and kept until another step. A slot that is not
    among them is served by a call of its own; with no slots nothing is kept.

    State: about 1 KB per key; within a step, slots · (16 + payload) bytes more per key, and the
    hash key (4 bytes per payload byte, and 200).
    """

    __slots__ = ("_ciphers", "_kept", "_kept_key", "_kept_of", "_slots")

    def __init__(self, keys: Sequence[SecretKey], slots: Sequence[tuple[int, int]] = ()) -> None:
        self._ciphers = [block_cipher(key) for key in keys]
        self._slots = {phase << 8 | layer: place for place, (phase, layer) in enumerate(slots)}
        self._kept_of = (-1, -1)
        self._kept: UInt32 = np.empty((0, 0, 0), dtype="<u4")
        self._kept_key: Float64 = np.empty((0, 0))

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
        rows = len(self._ciphers) if keys is None else keys.size
        if sealed.shape[0] != rows:
            raise FormatError(f"{sealed.shape[0]} sealed vectors for {rows} keys")
        origins = _numbers(senders, rows, "senders")
        words = _words(sealed, TAG_BYTES)
        stream, key = self._streams(context, sealed.shape[1] - TAG_BYTES, keys)
        return _open(context, origins, 0, words, stream, key)

    def forget(self) -> None:
        """Drops the streams that are kept for the present step."""
        self._kept_of = (-1, -1)
        self._kept = self._kept[:0]
        self._kept_key = self._kept_key[:0]

    def _streams(
        self, context: Context, payload_bytes: int, keys: npt.NDArray[np.int64] | None
    ) -> tuple[UInt32, Float64]:
        place = self._slots.get(context.slot)
        if place is None:
            chosen = self._ciphers if keys is None else [self._ciphers[i] for i in keys.tolist()]
            streams, hash_keys = _make(chosen, context.step, (context.slot,), payload_bytes)
            return streams[:, 0], hash_keys
        if self._kept_of != (context.step, payload_bytes):
            self.forget()
            made = _make(self._ciphers, context.step, tuple(self._slots), payload_bytes)
            self._kept, self._kept_key = made
            self._kept_of = (context.step, payload_bytes)
        stream = self._kept[:, place]
        if keys is None:
            return stream, self._kept_key
        return stream[keys], self._kept_key[keys]


def _make(
    ciphers: Sequence[CipherContext], step: int, slots: tuple[int, ...], payload_bytes: int
) -> tuple[UInt32, Float64]:
    """Streams (ciphers, slots, words) and hash keys (ciphers, words) by one AES call per cipher."""
    index = np.zeros(1, dtype=np.uint32)
    count = _pad_blocks(payload_bytes)
    pads = [counter_blocks(Domain.PAD, step, slot, index, count)[0] for slot in slots]
    blocks = np.concatenate([*pads, _hash_key_blocks(payload_bytes)[0]]).tobytes()
    made = np.frombuffer(b"".join([cipher.update(blocks) for cipher in ciphers]), dtype=np.uint8)
    made = made.reshape(len(ciphers), len(blocks))
    split = len(slots) * count * BLOCK_BYTES
    streams = made[:, :split].view("<u4").reshape(len(ciphers), len(slots), 4 * count)
    return streams[:, :, : HASHES + payload_bytes // 4], hash_key(made[:, split:])


def _open(
    context: Context,
    senders: UInt32 | int,
    indices: UInt32 | int,
    sealed: UInt32,
    stream: UInt32,
    key: Float64,
) -> UInt8:
    expected = _tags(context, senders, indices, sealed, stream, key)
    wrong = expected != sealed[:, -HASHES:]
    if wrong.any():
        rows = np.flatnonzero(wrong.any(axis=1)).tolist()
        raise AuthenticationError(
            f"{len(rows)} of {len(sealed)} vectors for {context} do not open, rows "
            f"{', '.join(map(str, rows[:10]))}{', …' if len(rows) > 10 else ''}: sealed by another "
            "key or in another context, or changed on their way; none was decrypted",
            rows,
        )
    return (sealed[:, :-HASHES] ^ stream[:, HASHES:]).view(np.uint8)


def _tags(
    context: Context,
    senders: UInt32 | int,
    indices: UInt32 | int,
    sealed: UInt32,
    stream: UInt32,
    key: Float64,
) -> UInt32:
    """h(header ‖ sender ‖ index ‖ ciphertext) + t for the rows of `sealed`, whose last words, the
    place of the tag, are not looked at.
    """
    length = 4 * (sealed.shape[1] - HASHES)
    header = context.encode_without_sender() + b"\0" + length.to_bytes(4, "big")
    rows = np.empty((sealed.shape[0], 2), dtype="<u4")
    rows[:, 0] = senders
    rows[:, 1] = indices
    tags = stream[:, :HASHES].copy()
    for first in range(0, sealed.shape[0], _ROWS_AT_ONCE):
        part = slice(first, first + _ROWS_AT_ONCE)
        words = np.empty((tags[part].shape[0], _PREFIX_WORDS + length // 2))
        words[:, : _PREFIX_WORDS - 4] = np.frombuffer(header, dtype="<u2")
        words[:, _PREFIX_WORDS - 4 : _PREFIX_WORDS] = rows[part].view("<u2")
        words[:, _PREFIX_WORDS:] = sealed[part].view("<u2")[:, : length // 2]
        tags[part] += multilinear(words, key if key.ndim == 1 else key[part])
    return tags


def _pad_blocks(payload_bytes: int) -> int:
    return 1 + -(-payload_bytes // BLOCK_BYTES)


def _key_words(payload_bytes: int) -> int:
    return _PREFIX_WORDS + payload_bytes // 2 + HASHES - 1


def _hash_key_blocks(payload_bytes: int) -> UInt64:
    count = -(-4 * _key_words(payload_bytes) // BLOCK_BYTES)
    return counter_blocks(Domain.HASH_KEY, 0, 0, np.zeros(1, dtype=np.uint32), count)


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
    return np.ascontiguousarray(rows).view("<u4")


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
