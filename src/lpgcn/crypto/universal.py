"""A universal hash that a matrix product computes.

For a message of 16-bit words m_0, m_1, … and secret words a_0, a_1, … uniform in [0, 2^28),

    h_t(m) = Σ_i a_(i+t) · m_i  mod P,    P = 2^31 − 1,    t = 0, 1, 2, 3.

This is the multilinear family (Carter and Wegman 1979; Lemire and Kaser 2014) over a prime field,
with a Toeplitz key as in UMAC. Why it is universal: let m and m' of equal length differ, and j be
the last place where they do. For any δ, h_t(m) − h_t(m') = δ_t fixes a_(j+t) mod P given the words
before it, because 0 < |m_j − m'_j| < P; a_(j+t) is in no h_s with s < t. So going from t = 0 to 3,
each equation holds with probability at most 2^-28 whatever came before, all four with 2^-112.

512 products of 16 and 28 bits add up to less than 2^53, so double-precision arithmetic is exact
in any order of summation and the product may be done by BLAS.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lpgcn.crypto.keystream import UInt8, UInt32

Float64 = npt.NDArray[np.float64]

HASHES: Final = 4
_KEY_MASK: Final = np.uint32(2**28 - 1)
_PRIME: Final = 2**31 - 1
_EXACT_TERMS: Final = 512
MAX_WORDS: Final = 1 << 15


def hash_key(stream: UInt8) -> Float64:
    """28 bits of every four stream bytes, as the numbers a_i; the last axis is the key's."""
    return (stream.view("<u4") & _KEY_MASK).astype(np.float64)


def multilinear(words: Float64, key: Float64) -> UInt32:
    """The four hashes of every row of `words` (n, w) under one key (w + 3,) or a row of them each.

    The sum s < 64 · 2^53 is folded once, s ↦ (s mod 2^31) + ⌊s / 2^31⌋ < 2^32, which is s mod P up
    to one multiple of P: a difference mod 2^32 leaves two candidates for the one mod P, so the
    bound is 2^-27 for one hash and 2^-108 for four.
    """
    total = np.zeros((words.shape[0], HASHES), dtype=np.int64)
    for first in range(0, words.shape[1], _EXACT_TERMS):
        part = words[:, first : first + _EXACT_TERMS]
        windows = _windows(key, first, part.shape[1])
        if key.ndim == 1:
            total += (part @ windows.copy().T).astype(np.int64)
        else:
            total += np.vecdot(part[:, None, :], windows).astype(np.int64)
    return ((total & _PRIME) + (total >> 31)).astype(np.uint32)


def _windows(key: Float64, first: int, width: int) -> Float64:
    """View of the key's words [first + t, first + t + width) for t = 0 … 3: shape (…, 4, width)."""
    shape = (*key.shape[:-1], HASHES, width)
    strides = (*key.strides, key.itemsize)
    return np.ndarray(shape, np.float64, key, first * key.itemsize, strides)
