"""The BPR loss of a batch and its gradients (Eq. 5), on the pairs of one client or of all.

    Loss = Σ_{(u,i,j)} [ −ln σ(e_u·e_i − e_u·e_j) + ½λ(‖e_u^(0)‖² + ‖e_i^(0)‖² + ‖e_j^(0)‖²) ] / B

A sample's derivative by e_u·e_i is −σ(e_u·e_j − e_u·e_i)/B, by e_u·e_j the opposite. These numbers
are first added up to one s_ui for each (user, item); then the loss is one more exchange:

    ∂Loss/∂e_u = Σ_i s_ui e_i        ∂Loss/∂e_i = Σ_u s_ui e_u

Scalars are computed in float64 by NumPy, whose results do not depend on how many there are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgcn.model.segments import Segments

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


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

    coefficient: Float64
    """s_ui."""
    count: Int64
    """In how many samples the pair is, for the regulariser."""
    loss: Float64
    """−ln σ(·) of every sample, not yet divided by B."""


def pair_gradients(
    pairs: Pairs, user_vectors: Tensor, item_vectors: Tensor, batch_size: int
) -> PairGradients:
    """Scores (Eq. 4), losses and s_ui of all pairs; `batch_size` is B of the whole batch."""
    users, items = torch.from_numpy(pairs.users), torch.from_numpy(pairs.items)
    product = user_vectors.index_select(0, users).mul_(item_vectors.index_select(0, items))
    score = product.sum(1).to(torch.float64).numpy()
    margin = score[pairs.positive] - score[pairs.negative]
    slope = np.exp(-np.logaddexp(0.0, margin)) / batch_size
    coefficient = _add_up(pairs.positive, -slope, len(pairs))
    coefficient += _add_up(pairs.negative, slope, len(pairs))
    count = np.bincount(np.concatenate((pairs.positive, pairs.negative)), minlength=len(pairs))
    return PairGradients(coefficient, count, np.logaddexp(0.0, -margin))


def _add_up(pairs: Int64, values: Float64, count: int) -> Float64:
    """The sum of the values of each pair, in the order of the samples."""
    sums: Float64 = np.bincount(pairs, values, count).astype(np.float64, copy=False)
    return sums


@dataclass(frozen=True)
class LossGradient:
    """∂Loss/∂e of the nodes that the batch touches, and in how many samples each of them is."""

    rows: Int64
    gradient: Tensor
    in_samples: Float64

    @classmethod
    def gather(
        cls,
        receivers: Int64,
        senders: Int64,
        coefficient: Float64,
        in_samples: Float64,
        sent: Tensor,
    ) -> LossGradient:
        """Σ s·sent[sender] for every distinct receiver of pairs that are sorted by receiver."""
        starts = np.flatnonzero(np.diff(receivers, prepend=-1))
        offsets = np.append(starts, len(receivers))
        weights = torch.from_numpy(coefficient).to(sent.dtype)
        gradient = Segments.from_arrays(offsets, senders).weighted_sum(sent, weights)
        counts = np.add.reduceat(in_samples, starts) if len(starts) else in_samples[:0]
        return cls(receivers[starts], gradient, counts)
