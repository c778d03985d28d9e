"""The kernels in NumPy: for the few rows of one client."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lpgcn.array_types import Bits, Float64, Int64
from lpgcn.model.kernels import (
    BETA1,
    BETA2,
    EPSILON,
    LARGEST_PART,
    ROUNDING,
    ROWS_A_PART,
    Compared,
    Floats,
    Integers,
    Lookup,
    Pooled,
)
from lpgcn.ragged import Ragged

_FEW_ROWS = 8
"""Of which all products with a matrix are laid out at once."""
_ENTRIES_A_COLUMN = 60
"""How many entries `reduceat` adds in the time that it takes to begin a column."""


class Plain:
    """See `Kernels`."""

    def sums(self, segments: Ragged, rows: Integers) -> Int64:
        if len(segments) == 1:
            # A client's own user, in every round.
            return _one_sum(rows.take(segments.values, axis=0))
        wide, longest = rows.astype(np.int64), int(segments.lengths.max(initial=0))
        if longest * _ENTRIES_A_COLUMN > len(segments.values):
            return _reduce(segments, wide.take(segments.values, axis=0))
        # Column by column is several times as fast as `reduceat`, if there are few columns.
        order, columns = segments.columns
        total, sorted_total = np.empty((2, len(segments), rows.shape[1]), dtype=np.int64)
        sorted_total[:] = 0
        for column in columns:
            sorted_total[: len(column)] += wide.take(column, axis=0)
        total[order] = sorted_total
        return total

    def averages(
        self, segments: Ragged, rows: Integers, factor: Float64, *,
        largest: int | None = None, present: Bits | None = None,
    ) -> Integers:  # fmt: skip
        means = self.sums(segments, rows) * factor[:, None]
        return np.rint(means, out=means).astype(rows.dtype)

    def weighted_sums(self, segments: Ragged, rows: Floats, weights: Floats, steps: float) -> Int64:
        products = rows.take(segments.values, axis=0) * weights.astype(np.float64)[:, None]
        rounded = np.rint(products * steps).astype(np.int64)
        return _one_sum(rounded) if len(segments) == 1 else _reduce(segments, rounded)

    def rounded(
        self, rows: Floats | Int64, factor: Float64, integer: type[np.signedinteger[Any]]
    ) -> tuple[Integers, float]:
        numbers = np.rint(rows * factor[:, None])
        largest = _largest(numbers)
        with np.errstate(invalid="ignore"):
            return numbers.astype(integer), largest

    def add(self, table: Integers, at: Int64, rows: Integers) -> int:
        sums = table.take(at, axis=0).astype(np.int64) + rows
        table[at] = sums.astype(table.dtype)
        return max(int(sums.max(initial=0)), -int(sums.min(initial=0)))

    def dots(self, left: Floats, right: Floats, lefts: Int64, rights: Int64) -> Float64:
        products = left.take(lefts, axis=0).astype(np.float64) * right.take(rights, axis=0)
        # A running sum adds from left to right, which `sum` does not.
        last: Float64 = np.cumsum(products, axis=1)[:, -1]
        return last

    def exponentials(self, products: Floats, lookup: Lookup) -> Float64:
        below = (lookup.largest - products).astype(np.int64)
        size = lookup.tables.shape[1]
        found: Float64 = lookup.tables[0].take(below & (size - 1))
        for table in lookup.tables[1:]:
            below >>= size.bit_length() - 1
            found *= table.take(below & (size - 1))
        found += ROUNDING
        found -= ROUNDING
        return found

    def compare(
        self, users: Floats, pool: Floats, own: Ragged, offsets: Int64, positive: Float64,
        softmax: Pooled,
    ) -> Compared:  # fmt: skip
        z, f = np.empty(len(users)), np.empty(len(positive))
        sums = np.empty(users.shape, dtype=np.int64)
        answers = np.zeros((softmax.answered, users.shape[1]), dtype=np.int64)
        wide = pool.astype(np.float64)
        for row, user in enumerate(users):
            # Not a product of matrices: the threads of a BLAS would spin in every client.
            x = self.exponentials((pool * user).sum(axis=1), softmax.lookup)
            x[own[row]] = 0
            z[row] = softmax.weight * x.sum()
            its = slice(offsets[row], offsets[row + 1])
            f[its] = 1 / (positive[its] + z[row])
            total = np.bincount(np.zeros(len(f[its]), dtype=np.int64), f[its], 1)
            x *= total * (softmax.weight * softmax.slope)
            np.rint(x, out=x)
            sums[row] = (x[:, None] * wide).sum(axis=0)
            answers += (x[: softmax.answered, None] * user).astype(np.int64)
        return Compared(z, f, sums, answers)

    def tangents(self, rows: Float64, along: Floats, factor: Float64) -> tuple[Int64, float]:
        every = np.arange(len(rows))
        length, square = (self.dots(one, along, every, every) for one in (rows, along))
        share = np.divide(length, square, out=np.zeros_like(length), where=square > 0)
        numbers, largest = self.rounded(rows - share[:, None] * along, factor, np.int64)
        return numbers.astype(np.int64, copy=False), largest

    def products(self, rows: Float64, matrix: Float64) -> Float64:
        if len(rows) <= _FEW_ROWS and matrix.shape[1] > 1:
            # To reduce an outer axis adds row after row.
            products = rows.T[:, :, None] * matrix[:, None]
            total: Float64 = np.add.reduce(products, axis=0, initial=0.0)
            return total
        total = np.zeros((len(rows), matrix.shape[1]))
        for k in range(len(matrix)):
            total += rows[:, k : k + 1] * matrix[k]
        return total

    def outer_sums(self, left: Float64, right: Float64, steps: float) -> tuple[Int64, float]:
        scaled = right * steps
        # Rounding keeps the order: the largest of a row's parts is that of its two largest numbers.
        largest = _largest(np.rint(np.abs(left).max(axis=1) * np.abs(scaled).max(axis=1)))
        total = np.zeros((left.shape[1], right.shape[1]), dtype=np.int64)
        if not largest < LARGEST_PART:
            return total, largest
        for first in range(0, len(left), ROWS_A_PART):
            rows = slice(first, first + ROWS_A_PART)
            total += _added_up(left[rows], scaled[rows]).astype(np.int64)
        return total, largest

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
        g = (gradient * factor[:, None]).astype(kind)
        g += decay.astype(kind)[:, None] * parameter
        mean *= kind(BETA1)
        mean += kind(1 - BETA1) * g
        square *= kind(BETA2)
        square += kind(1 - BETA2) * (g * g)
        parameter -= kind(rate) * (mean / (np.sqrt(square) * kind(root) + kind(EPSILON)))


def _added_up(left: Float64, right: Float64) -> Float64:
    """Σ_r rint(left_r ⊗ right_r), of one row at least; two matrices stay in the cache."""
    total: Float64 = left[0][:, None] * right[0]
    np.rint(total, out=total)
    if len(left) > 1:
        one = np.empty_like(total)
        for a, b in zip(left[1:], right[1:], strict=True):
            np.multiply(a[:, None], b, out=one)
            np.rint(one, out=one)
            total += one
    return total


def _largest(numbers: Float64) -> float:
    """Magnitude: infinite, if one is no number."""
    largest = max(float(numbers.max(initial=0.0)), -float(numbers.min(initial=0.0)))
    return math.inf if math.isnan(largest) else largest


def _one_sum(rows: Integers) -> Int64:
    total: Int64 = rows.sum(axis=0, dtype=np.int64)
    return total[None]


def _reduce(segments: Ragged, rows: Integers) -> Int64:
    """Σ of the rows of each segment; `reduceat` alone would take the next row for an empty one."""
    total = np.zeros((len(segments), rows.shape[1]), dtype=np.int64)
    filled = np.flatnonzero(segments.lengths)
    if len(filled):
        total[filled] = np.add.reduceat(rows, segments.offsets[filled], axis=0, dtype=np.int64)
    return total
