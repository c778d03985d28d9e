# What numba compiles has the types that numba finds for it.
# mypy: allow-untyped-defs, allow-untyped-calls, no-check-untyped-defs
"""Softmax against a pool, compiled: `Kernels.compare` for tables.

A thread takes some tens of users at a time. Their products with the whole pool, the exponentials of
these and the slopes are in its own cache, and three products of matrices are made on the way: users
with the pool, slopes with the pool, and slopes with users. All of them are of whole numbers, so
that they are exact, in whatever order and rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from lpgcn.array_types import Float64, Int64
from lpgcn.model.kernels import ROUNDING, USERS_AT_ONCE, Compared, Floats, Pooled
from lpgcn.model.kernels.products import STRIP, TILE, multiply
from lpgcn.ragged import Ragged

BLOCK = USERS_AT_ONCE // TILE * TILE
"""Users at a time, in whole tiles."""
USERS_A_PART = 2 * BLOCK

_compiled = njit(nogil=True, cache=True, error_model="numpy")


class LaidOut(NamedTuple):
    """Users and a pool as `multiply` takes them; what is missing in a tile or a strip is 0."""

    users: Floats
    """In whole blocks."""
    items: Floats
    """items[s, c, j] is column c of row s·STRIP + j of the pool."""
    columns: Float64
    """columns[s, j, c] is column s·STRIP + c of row j of the pool."""
    size: int
    """Of the pool."""


def lay_out(users: Floats, pool: Floats) -> LaidOut:
    n, d = pool.shape
    rows = np.pad(pool, ((0, -n % STRIP), (0, -d % STRIP)))
    items = rows[:, :d].reshape(-1, STRIP, d).swapaxes(1, 2)
    columns = rows.astype(np.float64).reshape(len(rows), -1, STRIP).swapaxes(0, 1)
    padded = np.pad(users, ((0, -len(users) % BLOCK), (0, 0)))
    return LaidOut(padded, np.ascontiguousarray(items), np.ascontiguousarray(columns), n)


def compare(
    first: int,
    last: int,
    laid_out: LaidOut,
    own: Ragged,
    offsets: Int64,
    positive: Float64,
    softmax: Pooled,
    found: Compared,
) -> Int64:
    """The users from first to last; returns their part of the answers."""
    lookup, (answered, d) = softmax.lookup, found.answers.shape
    answers = np.zeros((answered + -answered % TILE, d + -d % STRIP), dtype=np.int64)
    largest = laid_out.users.dtype.type(lookup.largest)
    for start in range(first, last, BLOCK):
        count = min(BLOCK, last - start)
        x = _exponentials(start, laid_out.users, laid_out.items, largest, lookup.tables)
        _slopes(
            start, count, x, laid_out.size, own.offsets, own.values, offsets, positive,
            softmax.weight, softmax.weight * softmax.slope, found.z, found.f,
        )  # fmt: skip
        _multiply_back(start, count, x, laid_out.users, laid_out.columns, found.sums, answers)
    return answers[:answered, :d]


@_compiled
def _exponentials(start, users, items, largest, tables):
    """x of a block of users and the pool."""
    x = np.empty((BLOCK, len(items) * STRIP))
    products = np.empty((TILE, STRIP), users.dtype)
    for u in range(0, BLOCK, TILE):
        for s in range(len(items)):
            multiply(users[start + u : start + u + TILE], items[s], products)
            _look_up(products, largest, tables, x, u, s * STRIP)
    return x


@_compiled
def look_up(products, largest, tables, out):
    """Exponentials of many products in one column."""
    _look_up(products, largest, tables, out, 0, 0)


@njit(nogil=True, cache=True, error_model="numpy", forceinline=True)
def _look_up(products, largest, tables, out, row, column):
    """Into out[row:, column:]."""
    digits, size = tables.shape
    bits = np.uint32(0)
    while (np.int64(1) << bits) < size:
        bits += np.uint32(1)
    if digits == 2:
        # LLVM looks up several numbers at once only if it knows how many digits there are.
        low, high, mask = tables[0], tables[1], np.uint32(size - 1)
        for r in range(products.shape[0]):
            for c in range(products.shape[1]):
                below = np.uint32(np.int32(largest - products[r, c]))
                number = low[below & mask] * high[below >> bits]
                out[row + r, column + c] = (number + ROUNDING) - ROUNDING
        return
    for r in range(products.shape[0]):
        for c in range(products.shape[1]):
            rest = np.int64(largest - products[r, c])
            number = tables[0, rest & (size - 1)]
            for digit in range(1, digits):
                rest >>= bits
                number *= tables[digit, rest & (size - 1)]
            out[row + r, column + c] = (number + ROUNDING) - ROUNDING


@_compiled
def _slopes(start, count, x, size, own_offsets, own, offsets, positive, weight, slope, z, f):
    """From x to rint(x·factor), in place; z and f on the way."""
    x[:, size:] = 0
    x[count:] = 0
    for r in range(count):
        user = start + r
        for j in own[own_offsets[user] : own_offsets[user + 1]]:
            x[r, j] = 0
        total = 0.0
        for j in range(size):
            total += x[r, j]
        z[user] = weight * total
        factor = 0.0
        for p in range(offsets[user], offsets[user + 1]):
            f[p] = 1 / (positive[p] + z[user])
            factor += f[p]
        factor *= slope
        for j in range(size):
            x[r, j] = np.rint(x[r, j] * factor)


@_compiled
def _multiply_back(start, count, slopes, users, columns, sums, answers):
    """Σ_j s_uj pool_j for each user, and Σ_u s_uj user_u for each that is answered."""
    d = sums.shape[1]
    products = np.empty((TILE, STRIP), np.float64)
    turned = np.zeros((len(answers), BLOCK))
    for j in range(min(len(answers), slopes.shape[1])):
        turned[j] = slopes[:, j]
    their = np.zeros((BLOCK, STRIP), np.float64)
    for s in range(len(columns)):
        width = min(STRIP, d - s * STRIP)
        for u in range(0, count, TILE):
            multiply(slopes[u : u + TILE], columns[s], products)
            for r in range(min(TILE, count - u)):
                for c in range(width):
                    sums[start + u + r, s * STRIP + c] = np.int64(products[r, c])
        for u in range(count):
            for c in range(width):
                their[u, c] = users[start + u, s * STRIP + c]
        for j in range(0, len(answers), TILE):
            multiply(turned[j : j + TILE], their, products)
            for r in range(TILE):
                for c in range(width):
                    answers[j + r, s * STRIP + c] += np.int64(products[r, c])
