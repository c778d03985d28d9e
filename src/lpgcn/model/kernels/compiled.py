"""The kernels compiled by numba: for tables.

Sums of rows, maps and pools have modules of their own; here is what is done row by row, and which
thread does what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

from lpgcn.array_types import Bits, Float64, Int64
from lpgcn.model.kernels import (
    BETA1,
    BETA2,
    EPSILON,
    ROWS_A_PART,
    Compared,
    Floats,
    Integers,
    Lookup,
    Pooled,
    empty_rows,
)
from lpgcn.model.kernels.maps import add_outer, multiply
from lpgcn.model.kernels.pool import USERS_A_PART, compare, lay_out, look_up
from lpgcn.model.kernels.sums import (
    AHEAD,
    COLUMNS,
    WIDE,
    Totals,
    ask_for_columns,
    reduce_rows,
    totals_of,
)
from lpgcn.model.kernels.threads import Threads
from lpgcn.ragged import Ragged

NUMBERS_A_PART = 2**18
"""What is worth waking a thread for: some tens of microseconds of adding."""

# The model of errors is about division: Python's would look at every divisor.
_compiled = njit(nogil=True, cache=True, error_model="numpy")


class Compiled:
    """See `Kernels`."""

    def __init__(self, threads: Threads | None = None) -> None:
        self._threads = threads or Threads()

    def sums(self, segments: Ragged, rows: Integers) -> Int64:
        return self._reduce(segments, rows, np.dtype(np.int64))

    def averages(
        self, segments: Ragged, rows: Integers, factor: Float64, *,
        largest: int | None = None, present: Bits | None = None,
    ) -> Integers:  # fmt: skip
        totals = totals_of(segments, rows, largest)
        return self._reduce(
            segments, rows, rows.dtype, factor=factor, present=present, totals=totals
        )

    def weighted_sums(self, segments: Ragged, rows: Floats, weights: Floats, steps: float) -> Int64:
        return self._reduce(segments, rows, np.dtype(np.int64), weights=weights, steps=steps)

    def rounded(
        self, rows: Floats | Int64, factor: Float64, integer: type[np.signedinteger[Any]]
    ) -> tuple[Integers, float]:
        out = empty_rows(rows.shape, integer)
        largest = [0.0]
        self._each_row(
            lambda first, last: largest.append(_rounded(first, last, rows, factor, out)),
            *rows.shape,
        )
        return out, max(largest)

    def add(self, table: Integers, at: Int64, rows: Integers) -> int:
        largest = [0]
        self._each_row(
            lambda first, last: largest.append(_add(first, last, table, at, rows)), *rows.shape
        )
        return max(largest)

    def dots(self, left: Floats, right: Floats, lefts: Int64, rights: Int64) -> Float64:
        out = np.empty(len(lefts))
        self._each_row(
            lambda first, last: _dots(first, last, left, right, lefts, rights, out),
            len(lefts),
            left.shape[1],
        )
        return out

    def exponentials(self, products: Floats, lookup: Lookup) -> Float64:
        out = np.empty(products.shape)
        limit = products.dtype.type(lookup.largest)
        bounds = self._threads.even_bounds(len(products), NUMBERS_A_PART // COLUMNS)
        self._threads.each(
            lambda first, last: look_up(
                products[first:last], limit, lookup.tables, out[first:last]
            ),
            bounds,
        )
        return out

    def compare(
        self, users: Floats, pool: Floats, own: Ragged, offsets: Int64, positive: Float64,
        softmax: Pooled,
    ) -> Compared:  # fmt: skip
        found = Compared(
            np.empty(len(users)),
            np.empty(len(positive)),
            np.empty(users.shape, dtype=np.int64),
            np.zeros((softmax.answered, users.shape[1]), dtype=np.int64),
        )
        laid_out = lay_out(users, pool)
        parts: list[Int64] = []
        self._threads.each(
            lambda first, last: parts.append(
                compare(first, last, laid_out, own, offsets, positive, softmax, found)
            ),
            [*range(0, len(users), USERS_A_PART), len(users)],
        )
        for part in parts:
            found.answers[:] += part
        return found

    def tangents(self, rows: Float64, along: Floats, factor: Float64) -> tuple[Int64, float]:
        out = np.empty(rows.shape, np.int64)
        largest = [0.0]
        self._each_row(
            lambda first, last: largest.append(_tangents(first, last, rows, along, factor, out)),
            *rows.shape,
        )
        return out, max(largest)

    def products(self, rows: Float64, matrix: Float64) -> Float64:
        out = np.empty((len(rows), matrix.shape[1]))
        self._threads.each(
            lambda first, last: multiply(first, last, rows, matrix, out),
            self._threads.even_bounds(len(rows), ROWS_A_PART),
        )
        return out

    def outer_sums(self, left: Float64, right: Float64, steps: float) -> tuple[Int64, float]:
        total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
        found: list[tuple[Int64, float]] = []
        self._threads.each(
            lambda first, last: found.append(add_outer(first, last, left, right, steps)),
            self._threads.even_bounds(len(left), ROWS_A_PART),
        )
        for part, _ in found:
            total += part
        return total, max((largest for _, largest in found), default=0.0)

    def adam(
        self,
        parameter: Floats,
        mean: Floats,
        square: Floats,
        gradient: Integers | Floats,
        factor: Float64,
        decay: Float64,
        rate: float,
        root: float,
    ) -> None:
        kind = parameter.dtype.type
        constants = tuple(map(kind, (BETA1, 1 - BETA1, BETA2, 1 - BETA2, EPSILON, rate, root)))
        rounded = decay.astype(kind)
        self._each_row(
            lambda first, last: _adam(
                first, last, parameter, mean, square, gradient, factor, rounded, constants
            ),
            *parameter.shape,
        )

    def _reduce(
        self,
        segments: Ragged,
        rows: Integers | Floats,
        dtype: np.dtype[Any],
        *,
        factor: Float64 | None = None,
        present: Bits | None = None,
        weights: Floats | None = None,
        steps: float = 1.0,
        totals: Totals = WIDE,
    ) -> npt.NDArray[Any]:
        d = rows.shape[1]
        offsets, values = segments.offsets, segments.values
        out = empty_rows((len(segments), d), dtype)
        self._threads.each(
            lambda first, last: reduce_rows(
                first, last, offsets, values, rows, present, weights, steps, factor, totals, out
            ),
            self._threads.bounds(offsets, NUMBERS_A_PART // d),
        )
        return out

    def _each_row(self, work: Callable[[int, int], object], n_rows: int, d: int) -> None:
        self._threads.each(work, self._threads.even_bounds(n_rows, NUMBERS_A_PART // d))


@_compiled
def _rounded(first, last, rows, factor, out):
    """out_r = rint(factor_r · row_r); the largest magnitude, infinite if one is no number."""
    largest = 0.0
    for r in range(first, last):
        for c in range(rows.shape[1]):
            number = np.rint(rows[r, c] * factor[r])
            out[r, c] = number
            magnitude = abs(number)
            # A comparison that is false for what is no number.
            if not magnitude <= largest:
                largest = magnitude if magnitude == magnitude else np.inf
    return largest


@_compiled
def _add(first, last, table, at, rows):
    """table[at_k] += row_k; the largest magnitude of the sums."""
    least, most = np.int64(0), np.int64(0)
    for k in range(first, last):
        r = at[k]
        for c in range(rows.shape[1]):
            number = np.int64(table[r, c]) + np.int64(rows[k, c])
            table[r, c] = number
            least, most = min(least, number), max(most, number)
    return max(-least, most)


@_compiled
def _tangents(first, last, rows, along, factor, out):
    largest = 0.0
    for r in range(first, last):
        length = rows[r, 0] * np.float64(along[r, 0])
        square = np.float64(along[r, 0]) * np.float64(along[r, 0])
        for c in range(1, rows.shape[1]):
            length += rows[r, c] * np.float64(along[r, c])
            square += np.float64(along[r, c]) * np.float64(along[r, c])
        share = length / square if square > 0 else 0.0
        for c in range(rows.shape[1]):
            number = np.rint((rows[r, c] - share * np.float64(along[r, c])) * factor[r])
            out[r, c] = np.int64(number)
            magnitude = abs(number)
            # A comparison that is false for what is no number.
            if not magnitude <= largest:
                largest = magnitude if magnitude == magnitude else np.inf
    return largest


@_compiled
def _dots(first, last, left, right, lefts, rights, out):
    """out_p = left[lefts[p]] · right[rights[p]], from the first column to the last."""
    d = left.shape[1]
    for p in range(first, last):
        coming = min(p + AHEAD, last - 1)
        ask_for_columns(left, lefts[coming], 0, d)
        ask_for_columns(right, rights[coming], 0, d)
        a, b = lefts[p], rights[p]
        total = np.float64(left[a, 0]) * np.float64(right[b, 0])
        for c in range(1, d):
            total += np.float64(left[a, c]) * np.float64(right[b, c])
        out[p] = total


@_compiled
def _adam(first, last, parameter, mean, square, gradient, factor, decay, constants):
    """Every number here is of the parameter's kind, so that nothing is promoted to another."""
    beta1, rest1, beta2, rest2, epsilon, rate, root = constants
    kind = parameter.dtype.type
    for r in range(first, last):
        scale, pull = factor[r], decay[r]
        for c in range(parameter.shape[1]):
            θ = parameter[r, c]
            g = kind(gradient[r, c] * scale) + pull * θ
            m = beta1 * mean[r, c] + rest1 * g
            v = beta2 * square[r, c] + rest2 * (g * g)
            mean[r, c] = m
            square[r, c] = v
            parameter[r, c] = θ - rate * (m / (np.sqrt(v) * root + epsilon))
