"""What a loss says about nodes: the gradient that backward propagation starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.model.grid import Grid, largest_magnitude
from lpgcn.model.kernels import Floats, Kernels
from lpgcn.ragged import Ragged


@dataclass(frozen=True)
class LossGradient:
    """B·∂Loss/∂e of the nodes that the batch touches, and in how many samples each of them is."""

    rows: Int64
    sums: Int64
    """In steps of the backward grid."""
    in_samples: Float64

    @classmethod
    def gather(
        cls,
        receivers: Int64,
        senders: Int64,
        coefficient: Floats,
        in_samples: Float64,
        sent: Floats,
        grid: Grid,
        kernels: Kernels,
    ) -> LossGradient:
        """Σ s·sent[sender] for every distinct receiver of pairs that are sorted by receiver."""
        first = np.flatnonzero(np.diff(receivers, prepend=-1))
        segments = Ragged(np.append(first, len(receivers)), senders)
        _check_products(coefficient, sent, int(segments.lengths.max(initial=0)), grid)
        sums = kernels.weighted_sums(segments, sent, coefficient, grid.steps)
        counts = np.add.reduceat(in_samples, first) if len(first) else in_samples[:0]
        return cls(receivers[first], sums, counts)

    @classmethod
    def of_one(
        cls, coefficient: Floats, in_samples: int, sent: Floats, grid: Grid, kernels: Kernels
    ) -> LossGradient:
        """Of a single node that is in all pairs, one for each of the rows that were sent."""
        segments = Ragged.single(np.arange(len(sent)))
        _check_products(coefficient, sent, len(sent), grid)
        sums = kernels.weighted_sums(segments, sent, coefficient, grid.steps)
        return cls(np.zeros(1, dtype=np.int64), sums, np.array([float(in_samples)]))

    @classmethod
    def none(cls, dim: int) -> LossGradient:
        """Of nodes that the batch does not touch."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, np.empty((0, dim), dtype=np.int64), np.empty(0))


def _check_products(weights: Floats, rows: Floats, count: int, grid: Grid) -> None:
    largest = largest_magnitude(weights) * largest_magnitude(rows) * grid.steps
    grid.check_sums(largest, count, "the gradient of the loss, last layer")
