"""Recall, NDCG, Precision, HitRate and MRR at K, per user, and their exact means over users.

A value of a user has the same bits whether it is computed alone or among all users, and a mean does
not depend on the order of the users: values are rounded to multiples of 2^-32 and added as integers
modulo 2^64. A federation adds the same integers under additive masks and gets the same mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor

from lpgcn import fixed_point
from lpgcn.evaluation.errors import EvaluationError
from lpgcn.evaluation.ranking import Int64, top_items

Float64 = npt.NDArray[np.float64]
UInt64 = npt.NDArray[np.uint64]

METRICS: Final = ("recall", "ndcg", "precision", "hitrate", "mrr")


class UserItems(Protocol):
    """Items of every user: those of user u are `items[offsets[u]:offsets[u + 1]]`."""

    @property
    def offsets(self) -> Int64: ...
    @property
    def items(self) -> Int64: ...


@dataclass(frozen=True)
class Evaluation:
    """Means over the `n_users` users that have held-out items, by name, e.g. `recall@20`."""

    values: dict[str, float]
    n_users: int


def evaluate(
    user_vectors: Tensor,
    item_vectors: Tensor,
    masked: UserItems,
    heldout: UserItems,
    ks: Sequence[int],
) -> Evaluation:
    """Rank all items but the masked ones for every user with held-out items, and measure."""
    if len(heldout.offsets) != len(user_vectors) + 1:
        raise EvaluationError(
            f"found held-out items of {len(heldout.offsets) - 1} users, "
            f"expected {len(user_vectors)}, as many as there are user vectors"
        )
    users = np.flatnonzero(np.diff(heldout.offsets))
    if len(users) < len(user_vectors):
        user_vectors = user_vectors[users]
    top, _ = top_items(user_vectors, item_vectors, *_of_users(masked, users), k=max(ks))
    measured = per_user(top.numpy(), *_of_users(heldout, users), ks)
    return Evaluation(
        values={
            name: mean_from_fixed_point(int(to_fixed_point(values).sum()), len(users))
            for name, values in measured.items()
        },
        n_users=len(users),
    )


def per_user(
    top: Int64, heldout_offsets: Int64, heldout_items: Int64, ks: Sequence[int]
) -> dict[str, Float64]:
    """Every metric at every K for every row of `top` (n, at least max K), best item first.

    With h_r = 1 if the item of rank r is held out (else 0), and H held-out items:
    Recall = Σ_{r≤K} h_r / H, Precision = Σ_{r≤K} h_r / K, HitRate = max_{r≤K} h_r,
    MRR = max_{r≤K} h_r / r, NDCG = Σ_{r≤K} h_r / log2(r+1) over Σ_{r≤min(K,H)} 1 / log2(r+1).
    A row without held-out items gets 0 everywhere; leave it out of means.
    """
    if not ks or min(ks) < 1 or max(ks) > top.shape[1]:
        raise EvaluationError(
            f"found cutoffs {list(ks)}, expected at least one, from 1 to the {top.shape[1]} ranks"
        )
    n_heldout = np.diff(heldout_offsets)
    hits = _hits(top, heldout_offsets, heldout_items)
    ranks = np.arange(1, top.shape[1] + 1)
    discounts = 1 / np.log2(ranks + 1)
    # A cumulative sum adds from left to right, so a row's bits depend on nothing but the row.
    n_hits = hits.cumsum(axis=1)
    dcg = np.where(hits, discounts, 0.0).cumsum(axis=1)
    ideal_dcg = discounts.cumsum()
    first = np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, np.inf)
    values: dict[str, Float64] = {}
    for k in ks:
        found = n_hits[:, k - 1]
        values[f"recall@{k}"] = found / np.maximum(n_heldout, 1)
        values[f"ndcg@{k}"] = dcg[:, k - 1] / ideal_dcg[n_heldout.clip(1, k) - 1]
        values[f"precision@{k}"] = found / k
        values[f"hitrate@{k}"] = (found > 0).astype(np.float64)
        values[f"mrr@{k}"] = np.where(first <= k, 1 / first, 0.0)
    return values


def to_fixed_point(values: Float64) -> UInt64:
    """Values from 0 to 1 as multiples of 2^-32: a sum of fewer than 2^32 of them does not wrap."""
    if not np.all((values >= 0) & (values <= 1)):
        raise EvaluationError("found a metric value outside 0 to 1: it cannot be added exactly")
    return fixed_point.encode(values)


def mean_from_fixed_point(total: int, count: int) -> float:
    """The mean of `count` fixed-point values whose sum is `total`, rounded once."""
    if count < 1:
        raise EvaluationError(
            "found no user with held-out items, expected at least one: "
            "give the part of the data that is measured some interactions"
        )
    return total / (fixed_point.ONE * count)


def _hits(top: Int64, heldout_offsets: Int64, heldout_items: Int64) -> npt.NDArray[np.bool_]:
    """Which ranked items are held out: a search for (row, item) among the sorted held-out pairs."""
    if not len(heldout_items):
        return np.zeros(top.shape, dtype=np.bool_)
    stride = int(max(top.max(initial=0), heldout_items.max())) + 1
    rows = np.arange(len(top))
    pairs = np.repeat(rows, np.diff(heldout_offsets)) * stride + heldout_items
    pairs.sort()
    wanted = rows[:, None] * stride + top
    nearest: Int64 = pairs[np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)]
    is_hit: npt.NDArray[np.bool_] = (nearest == wanted) & (top >= 0)
    return is_hit


def _of_users(listing: UserItems, users: Int64) -> tuple[Int64, Int64]:
    """Offsets and items of some users only."""
    starts, lengths = listing.offsets[users], np.diff(listing.offsets)[users]
    offsets = np.concatenate([np.zeros(1, dtype=np.int64), lengths.cumsum()])
    return offsets, listing.items[
        np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])
    ]
