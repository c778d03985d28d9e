"""The BPR loss of a batch and its gradients (Eq. 5), on the pairs of one client or of all.

    Loss = Σ_{(u,i,j)} [ −ln σ(e_u·e_i − e_u·e_j) + ½λ(‖e_u^(0)‖² + ‖e_i^(0)‖² + ‖e_j^(0)‖²) ] / B

A sample's derivative by e_u·e_i is −σ(e_u·e_j − e_u·e_i), by e_u·e_j the opposite, before the
division by B, which is left to the very end. These numbers are first added up to one s_ui for each
(user, item); then the loss is one more exchange, of products that are rounded to the grid:

    ∂Loss/∂e_u = Σ_i s_ui e_i        ∂Loss/∂e_i = Σ_u s_ui e_u

Scalars are computed in float64, and s_ui travels in the precision of the vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from lpgcn.model.grid import Grid, largest_magnitude
from lpgcn.model.kernels import Float64, Floats, Int64, Kernels
from lpgcn.ragged import Ragged

_LOG2_E: Final = 1.4426950408889634
_LN2_HIGH: Final = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW: Final = float.fromhex("0x1.a39ef35793c76p-33")
"""Together ln 2; the high part has so few digits that its product with any k is exact."""
_TAYLOR: Final = tuple(1 / math.factorial(n) for n in range(13, -1, -1))
_FARTHEST: Final = 700.0
"""Beyond that the slope is nothing in any precision."""


@dataclass(frozen=True)
class Pairs:
    """Every (user, item) pair of some samples once, sorted by user, and how samples refer to them.

    `items` index the item vectors that are at hand; they ascend within a user.
    """

    users: Int64
    items: Int64
    positive: Int64
    """For each sample the pair of its positive."""
    negative: Int64

    @classmethod
    def from_samples(cls, users: Int64, positives: Int64, negatives: Int64, n_items: int) -> Pairs:
        """Samples in terms of the rows of the user and item vectors at hand."""
        keys = np.concatenate((users * n_items + positives, users * n_items + negatives))
        unique, inverse = np.unique(keys, return_inverse=True)
        half = len(users)
        return cls(unique // n_items, unique % n_items, inverse[:half], inverse[half:])

    def __len__(self) -> int:
        return len(self.users)


@dataclass(frozen=True)
class PairGradients:
    """What the loss says about every pair."""

    coefficient: Floats
    """s_ui, in the precision of the vectors."""
    count: Int64
    """In how many samples the pair is, for the regulariser."""
    loss: Float64
    """−ln σ(·) of every sample."""


def pair_gradients(
    pairs: Pairs, user_vectors: Floats, item_vectors: Floats, kernels: Kernels
) -> PairGradients:
    """Scores (Eq. 4), losses and s_ui of all pairs."""
    score = kernels.dots(user_vectors, item_vectors, pairs.users, pairs.items)
    margin = score[pairs.positive] - score[pairs.negative]
    slope = slopes(margin)
    coefficient = _add_up(pairs.negative, slope, len(pairs))
    coefficient -= _add_up(pairs.positive, slope, len(pairs))
    count = np.bincount(np.concatenate((pairs.positive, pairs.negative)), minlength=len(pairs))
    return PairGradients(coefficient.astype(user_vectors.dtype), count, np.logaddexp(0.0, -margin))


def slopes(margin: Float64) -> Float64:
    """σ(−margin), by one sequence of IEEE operations: e^-|m| is 2^k·e^r with |r| ≤ ½ ln 2, and e^r
    its Taylor series. NumPy's own `exp` has other last bits on other processors."""
    falling = -np.minimum(np.abs(margin), _FARTHEST)
    k = np.rint(falling * _LOG2_E)
    r = (falling - k * _LN2_HIGH) - k * _LN2_LOW
    series = np.full_like(r, _TAYLOR[0])
    for coefficient in _TAYLOR[1:]:
        series = series * r + coefficient
    small = np.ldexp(series, k.astype(np.int64))
    return np.where(margin >= 0, small, 1.0) / (1.0 + small)


def _add_up(pairs: Int64, values: Float64, count: int) -> Float64:
    """The sum of the values of each pair, in the order of the samples."""
    sums: Float64 = np.bincount(pairs, values, count).astype(np.float64, copy=False)
    return sums


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
