# What numba compiles has the types that numba finds for it.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""Dense maps of tables and the gradients of their matrices, compiled by numba.

Indices are unsigned, because what may be a negative one is looked at number by number.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from lpgcn.model.kernels import ROWS_A_PART

_compiled = njit(nogil=True, cache=True, error_model="numpy")
_AT_ONCE = np.uint64(4)


@_compiled
def multiply(first, last, rows, matrix, out):
    """out_r = 0 + Σ_k rows[r, k]·matrix[k], from the first k to the last."""
    inner, columns = np.uint64(matrix.shape[0]), np.uint64(matrix.shape[1])
    one, two, three = np.uint64(1), np.uint64(2), np.uint64(3)
    for r in range(np.uint64(first), np.uint64(last)):
        for c in range(columns):
            out[r, c] = 0.0
        k = np.uint64(0)
        # A total is loaded and stored once for four that are added to it.
        while k + _AT_ONCE <= inner:
            a, b, d, e = rows[r, k], rows[r, k + one], rows[r, k + two], rows[r, k + three]
            for c in range(columns):
                total = out[r, c] + a * matrix[k, c]
                total = total + b * matrix[k + one, c]
                total = total + d * matrix[k + two, c]
                out[r, c] = total + e * matrix[k + three, c]
            k += _AT_ONCE
        while k < inner:
            a = rows[r, k]
            for c in range(columns):
                out[r, c] += a * matrix[k, c]
            k += one


@_compiled
def add_outer(first, last, left, right, steps):
    """Σ_r rint(left_r ⊗ (right_r·steps)), and the largest magnitude of what is added.

    That of a row is the rounded product of its two largest, since rounding keeps the order.
    """
    shape = (left.shape[1], right.shape[1])
    total, largest = np.zeros(shape, np.int64), 0.0
    some, scaled = np.empty(shape), np.empty(right.shape[1])
    inner, columns = np.uint64(shape[0]), np.uint64(shape[1])
    for start in range(first, last, ROWS_A_PART):
        some[:] = 0
        for r in range(np.uint64(start), np.uint64(min(start + ROWS_A_PART, last))):
            for c in range(columns):
                scaled[c] = right[r, c] * steps
            largest = _larger(largest, np.rint(_largest(left[r]) * _largest(scaled)))
            for k in range(inner):
                factor = left[r, k]
                for c in range(columns):
                    some[k, c] += np.rint(factor * scaled[c])
        for k in range(inner):
            for c in range(columns):
                total[k, c] += np.int64(some[k, c])
    return total, largest


@_compiled
def _largest(row):
    largest = 0.0
    for number in row:
        largest = _larger(largest, abs(number))
    return largest


@_compiled
def _larger(largest, magnitude):
    """Infinite, if it is no number: the first comparison is false then, too."""
    if magnitude <= largest:
        return largest
    return magnitude if magnitude == magnitude else np.inf
