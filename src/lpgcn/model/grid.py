"""The public grids: vectors that travel are whole multiples of a power of two.

A sender rounds once; every sum after that is a sum of integers. So it has no order, depends on no
plan, no thread and no kind of processor, and may be added up in parts, by anybody, under masks.

    --dtype      rows         forward                backward, B samples a batch
    float32      32 bits      2^-24, up to 128       2^-k, k = 36 − ⌈log2 B⌉, at most 25
    float64      64 bits      2^-44, up to 512       2^-(k + 20)

with k = 16 for full batches, whose size a client does not know.

Gradients travel before they are divided by B, so the largest of them grows with B: the grid leaves
room for B/32. (Gowalla, B = 739,706: range 2^15, largest push seen 3,800.) Nothing wraps: what does
not fit is a `GridError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.config import BatchSize, Dtype
from lpgcn.errors import LpgcnError
from lpgcn.model.kernels import Floats, Integers, Kernels

_FORWARD_EXPONENT = 24
_BACKWARD_EXPONENT = 25
_ROOM_EXPONENT = 36
_FULL_BITS = 20
_FINER = 20
"""How many bits finer the grids of float64 are."""


class GridError(LpgcnError):
    """A number that does not fit the grid."""


@dataclass(frozen=True)
class Grid:
    """Integers n that stand for n·2^-exponent."""

    exponent: int
    integer: type[np.int32] | type[np.int64]

    @classmethod
    def forward(cls, dtype: Dtype) -> Grid:
        return cls._of(dtype, _FORWARD_EXPONENT)

    @classmethod
    def backward(cls, dtype: Dtype, batch_size: BatchSize) -> Grid:
        """The grid of gradients, coarser for larger batches."""
        room = _FULL_BITS if batch_size == "full" else (batch_size - 1).bit_length()
        return cls._of(dtype, min(_BACKWARD_EXPONENT, _ROOM_EXPONENT - room))

    @classmethod
    def _of(cls, dtype: Dtype, exponent: int) -> Grid:
        return cls(exponent, np.int32) if dtype == "float32" else cls(exponent + _FINER, np.int64)

    @property
    def steps(self) -> float:
        """How many steps of the grid make one."""
        return 2.0**self.exponent

    @property
    def unit(self) -> float:
        return 2.0**-self.exponent

    @property
    def largest(self) -> int:
        """The largest integer that travels; in 64 bits it leaves room for sums."""
        return 2**31 - 1 if self.integer is np.int32 else 2**53 - 1

    def round(
        self, rows: Floats | Int64, factor: Float64, where: str, kernels: Kernels
    ) -> Integers:
        """The nearest integers to factor_r · row, in steps of the grid; `where` is for errors."""
        return self.rounded(rows, factor, where, kernels)[0]

    def rounded(
        self, rows: Floats | Int64, factor: Float64, where: str, kernels: Kernels
    ) -> tuple[Integers, int]:
        """The same, and the largest magnitude."""
        rounded, largest = kernels.rounded(rows, factor, self.integer)
        if largest > self.largest:
            self._refuse(largest, where)
        return rounded, int(largest)

    def add(self, table: Integers, at: Int64, rows: Integers, where: str, kernels: Kernels) -> int:
        """table[at] += rows, in place; the largest magnitude of these sums."""
        largest = kernels.add(table, at, rows)
        if largest > self.largest:
            self._refuse(largest, where)
        return largest

    def fit(self, sums: Integers, where: str) -> Integers:
        """Sums as integers that travel."""
        if sums.size and max(int(sums.max()), -int(sums.min())) > self.largest:
            self._refuse(float(np.abs(sums.astype(np.float64)).max()), where)
        return sums.astype(self.integer)

    def check_sums(self, largest: float, count: int, where: str) -> None:
        """Refuse numbers of this size, in steps, of which so many might not add up in 64 bits."""
        if not largest * count < 2**62:
            raise GridError(
                f"{where}: {count} numbers of up to {largest * self.unit:.6g} may not add up in 64 "
                f"bits, expected a sum below {2**62 * self.unit:.6g}; {ADVICE}"
            )

    def _refuse(self, found: float, where: str) -> None:
        raise GridError(
            f"{where}: a number of {found * self.unit:.6g} does not fit the grid, expected less "
            f"than {self.largest * self.unit:.6g}; {ADVICE}"
        )


ADVICE: Final = (
    "the training has diverged or its vectors are too large: lower the learning rate, or, if it is "
    "float32, choose --dtype float64"
)


def largest_magnitude(rows: Floats | Integers) -> float:
    """Of all numbers; no number, if one is none."""
    return max(float(rows.max(initial=0)), -float(rows.min(initial=0)))
