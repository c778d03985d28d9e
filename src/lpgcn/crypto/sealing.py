"""Sealed vectors: many short messages of one size, sealed and opened by a few array operations.

A step opens hundreds of thousands of vectors of some 256 bytes. One AEAD call each is most of the
time of a step, so a vector is sealed by a construction of GCM's shape whose parts each work on all
vectors at once: counter-mode AES-256, then a universal hash of the ciphertext, then a one-time pad
on the hash (Wegman and Carter 1981; encrypt, then authenticate).

    pads        t ‖ s = AES-256(key, counter blocks of (step, phase, layer, index)), 16 ‖ n bytes
    ciphertext  c = payload ⊕ s
    tag         h(header ‖ c) + t    four words mod 2^32, h of `universal`
    header      the encoded context (version, run, step, phase, layer, sender, receiver) and n

The hash key comes from AES under the same key in a domain of its own and is fixed for the key, as
H is in GCM.

Why this is sound. Assume that AES-256 is a pseudo-random permutation and that no (step, phase,
layer, index) is sealed twice under a key; `seal` refuses to, and whoever shares a key among several
senders, the two ends of a pair included, gives each its own indices. Then the pads are one-time
pads, up to σ² / 2^129 for σ blocks under a key, so ciphertexts and tags tell nothing of payloads or
of the hash key. A forger who alters any bit of ciphertext, length, context, sender or index, or
presents a new one, must therefore guess a difference of hashes without knowing their key: at most
2^-108 for each attempt (`universal`), where GCM has some 2^-123 at this length. As with GCM, a tag
says that *some holder of the key* made the vector, and under a repeated nonce all of this is lost.

The pad t is the first block whatever n is. So a vector presented as longer or shorter than it was
sealed is checked against the same secret t, never against words of s, which whoever knows the
payload knows too.

The version of the format is part of the hashed context: a vector of another version does not open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import CipherContext

from lpgcn.crypto.context import CONTEXT_BYTES, Context
from lpgcn.crypto.errors import AuthenticationError, FormatError
from lpgcn.crypto.keystream import (
    BLOCK_BYTES,
    WORD16,
    WORD32,
    Domain,
    UInt8,
    UInt32,
    UInt64,
    counter_blocks,
)
from lpgcn.crypto.universal import HASHES, MAX_WORDS, Float64, fold, multilinear

TAG_BYTES: Final = 4 * HASHES
_BIG16: Final = np.dtype(">u2")
_HEADER_WORDS: Final = (CONTEXT_BYTES + 4) // 2
_SENDER: Final = slice(14, 16)
"""The sender's words in the header, where each row may have its own."""
ZERO: Final = np.zeros(1, dtype=np.uint32)
_SCRATCH_BYTES: Final = 120_000
"""Hashed together: fits the cache, needs no threads of BLAS nor fresh memory of the system."""
MAX_PAYLOAD_BYTES: Final = 2 * (MAX_WORDS - _HEADER_WORDS) // 4 * 4


def seal_rows(
    context: Context, plain: UInt32, stream: UInt32, keys: Callable[[slice], Float64]
) -> UInt8:
    """Encrypts all rows, then authenticates what came of it."""
    sealed = np.empty(stream.shape, dtype=WORD32)
    np.bitwise_xor(plain, stream[:, HASHES:], out=sealed[:, :-HASHES])
    np.add(_hashes(context, None, sealed, keys), stream[:, :HASHES], out=sealed[:, -HASHES:])
    return sealed.view(np.uint8)


def open_rows(
    context: Context,
    senders: UInt32 | None,
    sealed: UInt32,
    stream: UInt32,
    keys: Callable[[slice], Float64],
) -> UInt8:
    """Verifies all rows, then decrypts them."""
    tags = _hashes(context, senders, sealed, keys) + stream[:, :HASHES]
    wrong = tags != sealed[:, -HASHES:]
    if wrong.any():
        rows = np.flatnonzero(wrong.any(axis=1)).tolist()
        raise AuthenticationError(
            f"{len(rows)} of {len(sealed)} vectors for {context} do not open, rows "
            f"{', '.join(map(str, rows[:10]))}{', …' if len(rows) > 10 else ''}: sealed by another "
            "key or in another context, or changed on their way; none was decrypted",
            rows,
        )
    return (sealed[:, :-HASHES] ^ stream[:, HASHES:]).view(np.uint8)


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


def encrypt(ciphers: Sequence[CipherContext], blocks: UInt64) -> UInt8:
    """The same blocks under every cipher: shape (ciphers, bytes)."""
    data = blocks.tobytes()
    stream = b"".join([cipher.update(data) for cipher in ciphers])
    return np.frombuffer(stream, dtype=np.uint8).reshape(len(ciphers), len(data))


def pad_blocks(step: int, slot: int, places: UInt32, payload_bytes: int) -> UInt64:
    count = -(-(payload_bytes + TAG_BYTES) // BLOCK_BYTES)
    return counter_blocks(Domain.PAD, step, slot, places, count)


def key_words(payload_bytes: int) -> int:
    return _HEADER_WORDS + payload_bytes // 2 + HASHES - 1


def key_blocks(payload_bytes: int) -> UInt64:
    count = -(-4 * key_words(payload_bytes) // BLOCK_BYTES)
    return counter_blocks(Domain.HASH_KEY, 0, 0, ZERO, count)


def as_words(rows: UInt8, extra: int) -> UInt32:
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


def as_numbers(values: npt.ArrayLike, rows: int, name: str) -> UInt32:
    """One 32-bit number for each row."""
    numbers = np.asarray(values)
    if numbers.shape != (rows,):
        raise FormatError(f"{name} of shape {numbers.shape} for {rows} vectors")
    if numbers.dtype == np.uint32:
        return numbers
    if numbers.dtype.kind in "iu" or not rows:
        # Only a number in range survives the way from 64 bits to 32 and back. For one row, finding
        # the smallest and largest instead would be a fifth of the time that sealing takes.
        wide = numbers.astype(np.int64)
        narrow = wide.astype(np.uint32)
        if narrow.astype(np.int64).tobytes() == wide.tobytes():
            return narrow
    raise FormatError(f"{name} must be whole numbers in [0, 2^32)")
