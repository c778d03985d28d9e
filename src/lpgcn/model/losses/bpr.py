"""The BPR loss of a batch and its gradients (Eq. 5), on the pairs of one client or of all.

    Loss = Σ_{(u,i,j)} [ −ln σ(e_u·e_i − e_u·e_j) + ½λ(‖e_u^(0)‖² + ‖e_i^(0)‖² + ‖e_j^(0)‖²) ] / B

A sample's derivative by e_u·e_i is −σ(e_u·e_j − e_u·e_i), by e_u·e_j the opposite, before the
division by B, which is left to the very end. These numbers are first added up to one s_ui for each
(user, item); then the loss is one more exchange, of products that are rounded to the grid:

    ∂Loss/∂e_u = Σ_i s_ui e_i        ∂Loss/∂e_i = Σ_u s_ui e_u

Scalars are computed in float64, and s_ui travels in the precision of the vectors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.model.kernels import Floats, Kernels
from lpgcn.model.losses.exponential import exponential


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
    """σ(−margin)."""
    small = exponential(-np.abs(margin))
    return np.where(margin >= 0, small, 1.0) / (1.0 + small)


def _add_up(pairs: Int64, values: Float64, count: int) -> Float64:
    """The sum of the values of each pair, in the order of the samples."""
    sums: Float64 = np.bincount(pairs, values, count).astype(np.float64, copy=False)
    return sums
