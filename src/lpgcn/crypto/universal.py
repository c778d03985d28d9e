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

from lpgcn.crypto.keystream import WORD32, UInt8, UInt32

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

HASHES: Final = 4
_KEY_MASK: Final = np.uint32(2**28 - 1)
_PRIME: Final = 2**31 - 1
_EXACT_TERMS: Final = 512
MAX_WORDS: Final = 1 << 15


def hash_key(stream: UInt8) -> Float64:
    """28 bits of every four stream bytes, as the numbers a_i; the last axis is the key's."""
    return (stream.view(WORD32) & _KEY_MASK).astype(np.float64)


def multilinear(words: Float64, key: Float64) -> Int64:
    """The sums Σ_i a_(i+t) · m_i of every row of `words` (n, w), before any modulus: shape (n, 4).

    One key (w + 3,) serves all rows, or each row has its own in (n, w + 3).
    """
    total = _exact(words[:, :_EXACT_TERMS], key, 0)
    for first in range(_EXACT_TERMS, words.shape[1], _EXACT_TERMS):
        total += _exact(words[:, first : first + _EXACT_TERMS], key, first)
    return total


def fold(sums: Int64) -> UInt32:
    """A sum s < 64 · 2^53 mod P, up to one multiple of P: (s mod 2^31) + ⌊s / 2^31⌋ < 2^32.

    There is no division, whose time would depend on s. Two candidates for a difference mod P are
    left by one mod 2^32, so the bound is 2^-27 for one hash and 2^-108 for four.
    """
    return ((sums & _PRIME) + (sums >> 31)).astype(np.uint32)


def _exact(words: Float64, key: Float64, first: int) -> Int64:
    """Σ_i a_(first+i+t) · m_i of a few words, for t = 0 … 3: shape (n, 4)."""
    shape = (*key.shape[:-1], HASHES, words.shape[1])
    strides = (*key.strides, key.itemsize)
    windows: Float64 = np.ndarray(shape, np.float64, key, first * key.itemsize, strides)
    one_key = key.ndim == 1
    sums: Float64 = (
        words.dot(windows.copy().T) if one_key else np.vecdot(words[:, None, :], windows)
    )
    return sums.astype(np.int64)
