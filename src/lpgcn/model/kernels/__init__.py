"""The few operations on rows that all the mathematics is made of, in two makes with equal bits.

`Plain` is NumPy, for a client and its few rows; `compiled.Compiled` is numba, for tables. Whatever
they add up is a sum of integers or has one written-down order, so that a row has the same bits
alone and among others, by either of them, on any number of threads: tests/model/test_kernels.py.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Bits, Float64, Int64
from lpgcn.ragged import Ragged

Integers = npt.NDArray[np.signedinteger[Any]]
Floats = npt.NDArray[np.floating[Any]]


BETA1: Final = 0.9
BETA2: Final = 0.999
EPSILON: Final = 1e-8
ROUNDING: Final = 1.5 * 2.0**12
"""To add this to a number from 0 to 1, and to take it away again, leaves a multiple of 2^-40."""
LARGEST_PART: Final = 2**45
ROWS_A_PART: Final = 2**8
"""So many whole numbers below the largest part add up exactly in float64."""
USERS_AT_ONCE: Final = 36
"""At most so many users' slopes times directions are added up in float64 before they are integers:
the loss that makes the slopes bounds the sums of so many."""
LINE: Final = 64
"""Bytes of memory that come together."""


def empty_rows(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A table that is not filled yet, and begins where a line of memory does.

    NumPy's own begin 16 bytes later, and then rows of 256 bytes lie on five lines of 64, not four;
    sums of rows wait for lines.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    block = np.empty(size + LINE, dtype=np.uint8)
    start = -block.ctypes.data % LINE
    return block[start : start + size].view(dtype).reshape(shape)


class Lookup(NamedTuple):
    """Exponentials of whole numbers: how far a number is below the largest, digit by digit.

    The product tables[0][lowest digit] · tables[1][next digit] · …, from the first to the last,
    rounded to a multiple of 2^-40. There are as many digits as a table is long.
    """

    largest: float
    tables: Float64


class Pooled(NamedTuple):
    """The settings of a comparison with a pool."""

    lookup: Lookup
    weight: float
    slope: float
    answered: int


class Compared(NamedTuple):
    """What a comparison with a pool gives."""

    z: Float64
    f: Float64
    sums: Int64
    """Σ_j s_uj pool_j for every user."""
    answers: Int64
    """Σ_u s_uj user_u for the first rows of the pool, those that are answered."""


class Kernels(Protocol):
    """Rows are contiguous (n, d) arrays."""

    def sums(self, segments: Ragged, rows: Integers) -> Int64:
        """Σ rows[j] over the entries j of each segment; zero for an empty one."""
        ...

    def averages(
        self, segments: Ragged, rows: Integers, factor: Float64, *,
        largest: int | None = None, present: Bits | None = None,
    ) -> Integers:  # fmt: skip
        """rint(factor_r · Σ rows[j]), in the integers of `rows`; the factor is at most 1 / length.

        So no result is larger than the largest row. What is known of the rows makes it faster: no
        magnitude is above `largest`; those that are not `present` are 0.
        """
        ...

    def weighted_sums(self, segments: Ragged, rows: Floats, weights: Floats, steps: float) -> Int64:
        """Σ rint(weight · rows[j] · steps) over the entries of each segment, one weight an entry.

        `steps` is a power of two; products are taken in float64, where those of two float32 numbers
        are exact.
        """
        ...

    def rounded(
        self, rows: Floats | Int64, factor: Float64, integer: type[np.signedinteger[Any]]
    ) -> tuple[Integers, float]:
        """rint(factor_r · row), and the largest of its magnitudes: infinite, if one is no number.

        What does not fit `integer` is not to be used.
        """
        ...

    def add(self, table: Integers, at: Int64, rows: Integers) -> int:
        """table[at] += rows, in place, for different `at`; the largest magnitude of the sums. If it
        does not fit the table's integers, the table is not to be used."""
        ...

    def dots(self, left: Floats, right: Floats, lefts: Int64, rights: Int64) -> Float64:
        """left[lefts[p]] · right[rights[p]] for every pair: products in float64, added from the
        first column to the last."""
        ...

    def exponentials(self, products: Floats, lookup: Lookup) -> Float64:
        """Looked up for every whole product, in any number of rows (see `Lookup`)."""
        ...

    def compare(
        self, users: Floats, pool: Floats, own: Ragged, offsets: Int64, positive: Float64,
        softmax: Pooled,
    ) -> Compared:  # fmt: skip
        """Softmax of users against a pool, as `model.losses.softmax` has it: x of all products,
        0 where a row of the pool is the user's `own`;

            z_u = weight·Σ_j x_uj      f_p = 1 / (positive_p + z_u)      s_uj = rint(x_uj·factor_u)

        with factor_u = Σ_p f_p · (weight·slope), added from the first to the last; the positives of
        user u are those from offsets[u] on. All else is exact in any order.
        """
        ...

    def tangents(self, rows: Float64, along: Floats, factor: Float64) -> tuple[Int64, float]:
        """rint(factor_r · (x − (x·q / q·q) q)) for each row x and its q of `along`, or of x if q is
        zero; and the largest magnitude, as `rounded` has it. Dot products are those of `dots`."""
        ...

    def products(self, rows: Float64, matrix: Float64) -> Float64:
        """0 + Σ_k rows[r, k]·matrix[k, c]: one product and one addition after the other, from the
        first k to the last."""
        ...

    def outer_sums(self, left: Float64, right: Float64, steps: float) -> tuple[Int64, float]:
        """Σ_r rint(left[r, k] · (right[r, c] · steps)), and the largest magnitude of what is added:
        infinite, if one is no number. Sums are not to be used if it is LARGEST_PART or more."""
        ...

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
        """One step of Adam on every row, in place; row r has g = factor_r·gradient + decay_r·θ.

        In the precision of the parameter, one rounding an operation, in this order:

            g = round(float64(gradient)·factor) + round(decay)·θ
            m ← β1·m + (1−β1)·g
            v ← β2·v + (1−β2)·(g·g)
            θ ← θ − rate·(m / (√v·root + ε))

        with rate = γ/(1−β1^t) and root = 1/√(1−β2^t), rounded to that precision.
        """
        ...
