"""Several arrays of numbers behind one another: lists of items, neighbours, segments of a sum.

The one such structure in the house: whatever has a different number of entries for each user, item,
client or owner is a `Ragged`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Bits, Int64


@dataclass(frozen=True, eq=False)
class Ragged:
    """Row r is `values[offsets[r]:offsets[r + 1]]`."""

    offsets: Int64
    values: Int64

    @classmethod
    def from_lengths(cls, lengths: npt.ArrayLike, values: Int64) -> Ragged:
        return cls(starts(lengths), values)

    @classmethod
    def from_rows(cls, rows: Int64, values: Int64, n_rows: int) -> Ragged:
        """From one row number for each value, never falling."""
        return cls.from_lengths(np.bincount(rows, minlength=n_rows), values)

    @classmethod
    def from_pairs(cls, rows: Int64, values: Int64, n_rows: int) -> Ragged:
        """From (row, value) pairs in any order; the values of a row rise."""
        order = np.lexsort((values, rows))
        return cls.from_rows(rows[order], values[order], n_rows)

    @classmethod
    def identity(cls, n_rows: int) -> Ragged:
        """Row r is r alone."""
        return cls(np.arange(n_rows + 1), np.arange(n_rows))

    @classmethod
    def single(cls, values: Int64) -> Ragged:
        """All values in one row."""
        return cls(np.array([0, len(values)]), values)

    @classmethod
    def from_arrays(cls, arrays: Sequence[Int64]) -> Ragged:
        values = np.concatenate(arrays) if len(arrays) else np.empty(0, dtype=np.int64)
        return cls.from_lengths([len(one) for one in arrays], values)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Int64:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @cached_property
    def lengths(self) -> Int64:
        return np.diff(self.offsets)

    @cached_property
    def rows(self) -> Int64:
        """The row of every value."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @cached_property
    def columns(self) -> tuple[Int64, list[Int64]]:
        """The rows from the longest to the shortest, and for j = 0, 1, … the j-th value of each of
        those that have one."""
        order = np.argsort(-self.lengths, kind="stable")
        first, lengths = self.offsets[order], self.lengths[order]
        longest = int(lengths[0]) if len(lengths) else 0
        counts = np.searchsorted(-lengths, -np.arange(longest), side="left")
        return order, [self.values[first[:n] + j] for j, n in enumerate(counts.tolist())]

    @cached_property
    def ranks(self) -> Int64:
        """0, 1, … within every row."""
        return np.arange(len(self.values)) - self.offsets[self.rows]

    def only(self, rows: Int64) -> Ragged:
        """Some of the rows, in the order asked for."""
        lengths = self.lengths[rows]
        offsets = starts(lengths)
        entries = np.arange(offsets[-1]) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return Ragged(offsets, self.values[entries])

    def part(self, rows: slice) -> Ragged:
        """Rows that follow one another, as far as there are any."""
        offsets = self.offsets[rows.start : rows.stop + 1]
        return Ragged(offsets - offsets[0], self.values[offsets[0] : offsets[-1]])

    def transposed(self, n_values: int) -> Ragged:
        """For each of the values 0, 1, … the rows that have it, rising."""
        return Ragged.from_pairs(self.values, self.rows, n_values)

    def where(self, flags: Bits) -> Ragged:
        """The flagged entries of every row."""
        return Ragged.from_lengths(self.count(flags), self.values[flags])

    def count(self, flags: Bits) -> Int64:
        """How many entries of every row are flagged."""
        # Flags are added up in 32 bits ten times as fast as in 64.
        kind = np.int32 if len(flags) < 2**31 else np.int64
        running = np.zeros(len(flags) + 1, dtype=kind)
        np.cumsum(flags, dtype=kind, out=running[1:])
        return np.diff(running[self.offsets]).astype(np.int64)

    def any(self, flags: Bits) -> Bits:
        """For each row, whether one of its entries is flagged."""
        return self.count(flags) > 0

    def sum(self, numbers: Int64) -> Int64:
        """The sum, for every row, of one whole number an entry."""
        running = np.zeros(len(numbers) + 1, dtype=np.int64)
        np.cumsum(numbers, out=running[1:])
        return np.diff(running[self.offsets])


def flags(size: int, chosen: Int64 | Sequence[int]) -> Bits:
    """So many bits, of which the chosen ones are set."""
    found = np.zeros(size, dtype=np.bool_)
    found[chosen] = True
    return found


def starts(lengths: npt.ArrayLike) -> Int64:
    """Where each of several runs of these lengths begins, and where the last one ends."""
    counts = np.asarray(lengths, dtype=np.int64)
    result = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=result[1:])
    return result
