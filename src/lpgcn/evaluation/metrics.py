"""Recall, NDCG, Precision, HitRate, MRR and MAP at K, per user, and their exact means over users.

A value of a user has the same bits whether it is computed alone or among all users, and a mean does
not depend on the order of the users: values are rounded to multiples of 2^-32 and added as integers
modulo 2^64. A federation adds the same integers under additive masks and gets the same mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from lpgcn import fixed_point
from lpgcn.array_types import Bits, Float64, Int64, UInt64
from lpgcn.evaluation.errors import EvaluationError, NothingHeldOutError
from lpgcn.evaluation.ranking import PLAIN, Ranker, best_items
from lpgcn.evaluation.scorers import Scorer
from lpgcn.ragged import Ragged

METRICS: Final = ("recall", "ndcg", "precision", "hitrate", "mrr", "map")


@dataclass(frozen=True)
class Evaluation:
    """Means over the `n_users` users that have held-out items, by name, e.g. `recall@20`."""

    values: dict[str, float]
    n_users: int

    @classmethod
    def from_totals(
        cls, names: Iterable[str], totals: Iterable[int | np.uint64], count: int
    ) -> Evaluation:
        """The means of `count` users from one sum of their `to_fixed_point` values for each name.

        mean = total / (2^32 · count), rounded once.
        """
        if count < 1:
            raise NothingHeldOutError(
                "found no user with held-out items, expected at least one: "
                "give the part of the data that is measured some interactions"
            )
        sums = dict(zip(names, map(int, totals), strict=True))
        for name, total in sums.items():
            if not 0 <= total <= fixed_point.ONE * count:
                raise EvaluationError(
                    f"found a sum of {total / fixed_point.ONE:.6g} for the {name} of {count} "
                    "users, expected 0 to 1 for each: somebody added something else, or the masks "
                    "of the sum do not cancel"
                )
        means = {name: total / (fixed_point.ONE * count) for name, total in sums.items()}
        return cls(means, count)


@dataclass(frozen=True)
class UserMetrics:
    """Every metric of every user that has held-out items: what means are made of, and what tests of
    significance need. A federation never has it: there each user knows its own only."""

    users: Int64
    values: dict[str, Float64]
    top: Int64 = field(repr=False)
    """The list of each, as `top_items` gave it."""

    def mean(self) -> Evaluation:
        totals = (to_fixed_point(values).sum(dtype=np.uint64) for values in self.values.values())
        return Evaluation.from_totals(self.values, totals, len(self.users))


def evaluate(
    scorer: Scorer,
    masked: Ragged,
    heldout: Ragged,
    ks: Sequence[int],
    ranker: Ranker = PLAIN,
) -> Evaluation:
    """Rank all items but the masked ones for every user with held-out items, and measure."""
    return user_metrics(scorer, masked, heldout, ks, ranker).mean()


def user_metrics(
    scorer: Scorer,
    masked: Ragged,
    heldout: Ragged,
    ks: Sequence[int],
    ranker: Ranker = PLAIN,
) -> UserMetrics:
    """What `evaluate` measures, user by user."""
    for listing, kind in ((masked, "masked"), (heldout, "held-out")):
        if len(listing) != scorer.n_users:
            raise EvaluationError(
                f"found {kind} items of {len(listing)} users, "
                f"expected {scorer.n_users}, as many as the model has"
            )
    _check_cutoffs(ks)
    users = np.flatnonzero(heldout.lengths)
    if len(users) < scorer.n_users:
        masked, heldout = masked.only(users), heldout.only(users)
    top, _ = best_items(scorer, users, masked, max(ks), ranker)
    return UserMetrics(users, per_user(top, heldout, ks), top)


def per_user(top: Int64, heldout: Ragged, ks: Sequence[int]) -> dict[str, Float64]:
    """Every metric at every K for every row of `top`, best item first; for each K as in METRICS.

    With h_r = 1 if the item of rank r is held out (else 0), and H held-out items:
    Recall = Σ_{r≤K} h_r / H, Precision = Σ_{r≤K} h_r / K, HitRate = max_{r≤K} h_r,
    MRR = max_{r≤K} h_r / r, NDCG = Σ_{r≤K} h_r / log2(r+1) over Σ_{r≤min(K,H)} 1 / log2(r+1),
    MAP = Σ_{r≤K} h_r (Σ_{s≤r} h_s / r) / H, as trec_eval has it: over H, also where K is less.
    `top` is what `top_items` gave for a k of at least max K: ranks without a column hold no item.
    A row without held-out items gets 0 everywhere; leave it out of means.
    """
    _check_cutoffs(ks)
    n_ranks, n_heldout = top.shape[1], heldout.lengths
    hits = _hits(top, heldout)
    discounts = 1 / np.log2(np.arange(2, max(n_ranks, n_heldout.max(initial=1)) + 2))
    # A cumulative sum adds from left to right, so a row's bits depend on nothing but the row.
    n_hits = hits.cumsum(axis=1)
    dcg = np.where(hits, discounts[:n_ranks], 0.0).cumsum(axis=1)
    ideal_dcg = discounts.cumsum()
    precisions = np.where(hits, n_hits / np.arange(1, n_ranks + 1), 0.0).cumsum(axis=1)
    first = np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, np.inf)
    values: dict[str, Float64] = {}
    for k in ks:
        last = min(k, n_ranks) - 1
        found = n_hits[:, last]
        values[f"recall@{k}"] = found / np.maximum(n_heldout, 1)
        values[f"ndcg@{k}"] = dcg[:, last] / ideal_dcg[n_heldout.clip(1, k) - 1]
        values[f"precision@{k}"] = found / k
        values[f"hitrate@{k}"] = (found > 0).astype(np.float64)
        values[f"mrr@{k}"] = np.where(first <= k, 1 / first, 0.0)
        values[f"map@{k}"] = precisions[:, last] / np.maximum(n_heldout, 1)
    return values


def to_fixed_point(values: Float64) -> UInt64:
    """Values from 0 to 1 as multiples of 2^-32: a sum of fewer than 2^32 of them does not wrap."""
    if not np.all((values >= 0) & (values <= 1)):
        raise EvaluationError("found a metric value outside 0 to 1: it cannot be added exactly")
    return fixed_point.encode(values)


def _check_cutoffs(ks: Sequence[int]) -> None:
    if not len(ks) or min(ks) < 1:
        raise EvaluationError(f"found cutoffs {list(ks)}, expected at least one, all of 1 or more")


def _hits(top: Int64, heldout: Ragged) -> Bits:
    """Which ranked items are held out: a search for (row, item) among the sorted held-out pairs."""
    if not len(heldout.values):
        return np.zeros(top.shape, dtype=np.bool_)
    stride = int(max(top.max(initial=0), heldout.values.max())) + 1
    pairs = heldout.rows * stride + heldout.values
    pairs.sort()
    wanted = np.arange(len(top))[:, None] * stride + top
    nearest: Int64 = pairs[np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)]
    is_hit: Bits = (nearest == wanted) & (top >= 0)
    return is_hit
