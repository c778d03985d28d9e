"""The exchange on segments: every node pushes one vector, every owner adds up what arrives.

    user u pushes x_u to the owners of its items      m_i = Σ_{u ∈ U_i} x_u
    item i pushes y_i to the clients that hold it     m_u = Σ_{i ∈ I_u} y_i

A `Segments` says for each receiving node which of the arrived rows it adds, in which order. A
client is a `Segments` with one row, a convolution-client one with a few, the whole graph one with
all of them. `embedding_bag` adds the rows of a bag one after the other, so a sum has the same bits
alone or among all others and on any number of threads; `Tensor.sum` and sparse products have not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Int64 = npt.NDArray[np.int64]
_SUM: Final = 0
"""The mode of an embedding bag that adds."""


@dataclass(frozen=True)
class Segments:
    """Row r adds the arrived vectors `indices[offsets[r]:offsets[r + 1]]`, in that order."""

    indices: Tensor
    offsets: Tensor

    @classmethod
    def from_arrays(cls, offsets: Int64, indices: Int64) -> Segments:
        """Kept in 32 bits, which halves what an exchange reads besides the vectors."""
        return cls(_narrow(indices), _narrow(offsets))

    @classmethod
    def from_sorted_rows(cls, rows: Int64, indices: Int64, n_rows: int) -> Segments:
        """From one (row, index) pair per entry, already in the order of the rows."""
        return cls.from_arrays(np.searchsorted(rows, np.arange(n_rows + 1)), indices)

    @property
    def counts(self) -> Tensor:
        return self.offsets.diff()

    def only(self, rows: Int64) -> Segments:
        """The segments of some rows."""
        offsets = self.offsets.numpy()
        counts = offsets[rows + 1] - offsets[rows]
        ends = np.append(0, np.cumsum(counts, dtype=np.int64))
        entries = np.arange(ends[-1]) + np.repeat(offsets[rows] - ends[:-1], counts)
        return Segments(self.indices.index_select(0, torch.from_numpy(entries)), _narrow(ends))

    def sum(self, arrived: Tensor) -> Tensor:
        """m_r = Σ arrived[index] over the entries of row r; zero for a row without entries."""
        return self._bag(arrived, None)

    def weighted_sum(self, arrived: Tensor, weights: Tensor) -> Tensor:
        """m_r = Σ weights[entry]·arrived[index] over the entries of row r."""
        return self._bag(arrived, weights)

    def _bag(self, arrived: Tensor, weights: Tensor | None) -> Tensor:
        # `torch.nn.functional.embedding_bag` is this call behind checks that take longer than the
        # sum of one client.
        sums: Tensor = torch.embedding_bag(
            arrived, self.indices, self.offsets, False, _SUM, False, weights, True
        )[0]
        return sums


def _narrow(numbers: Int64) -> Tensor:
    if numbers.size and int(numbers.max()) >= 2**31:
        raise ValueError("a graph of 2^31 edges or nodes is too large for one process")
    return torch.from_numpy(numbers.astype(np.int32))


@dataclass(frozen=True)
class Graph:
    """Both directions of the bipartite graph: users add items in the order of the items' ids,
    items add users in the order of the users' indices."""

    items_of_users: Segments
    users_of_items: Segments

    @classmethod
    def from_pairs(cls, users: Int64, items: Int64, n_users: int, n_items: int) -> Graph:
        """From pairs sorted by user, then item."""
        by_item = np.argsort(items, kind="stable")
        return cls(
            Segments.from_sorted_rows(users, items, n_users),
            Segments.from_sorted_rows(items[by_item], users[by_item], n_items),
        )
