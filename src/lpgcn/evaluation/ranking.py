"""The best k items of every user, over all items, in one order that everybody gets.

The score of item i for user u is y_ui = e_u · e_i, and the order is (score descending, item
ascending). The bits of a score must not depend on who computes it: a client ranks alone on its
device what a data centre ranks among all users. Those of a matrix product do depend on its shape
and on the processor; those of `Kernels.dots`, products in float64 that are added from the first
column to the last, do not, but it is slow. So a product only proposes: with δ_u the farthest that
the two can be apart, an item is among the best k of u only if its product is not more than δ_u
below the k-th best score. Those few are scored again, and the result is exactly the order of the
definitive scores of all items.

A scorer without vectors has no such bound. Its scores are taken as they are, in the same order.
"""

from __future__ import annotations

from numbers import Integral
from typing import Final, Protocol

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.evaluation.errors import EvaluationError
from lpgcn.evaluation.plain import PlainRanker
from lpgcn.evaluation.scorers import Scorer, Vectors
from lpgcn.evaluation.scorers.scorer import blocks
from lpgcn.model.kernels import Floats
from lpgcn.ragged import Ragged


class Ranker(Protocol):
    """What finds the best items: `PlainRanker`, or `compiled.CompiledRanker` with equal bits."""

    def rank(
        self, user_vectors: Floats, item_vectors: Floats, masked: Ragged, apart: Float64, k: int
    ) -> tuple[Int64, Float64]:
        """What `top_items` says; the vectors are contiguous and of one type, k is at most n_items.

        `apart` is, for each user, the δ_u of `_apart`.
        """
        ...

    def best(self, scores: Floats, masked: Ragged, k: int) -> tuple[Int64, Float64]:
        """The same for rows of finite scores of all items, which may be changed."""
        ...


PLAIN: Final = PlainRanker()


def top_items(
    user_vectors: Floats,
    item_vectors: Floats,
    masked: Ragged,
    k: int,
    ranker: Ranker = PLAIN,
) -> tuple[Int64, Float64]:
    """The best k unmasked items of every user and their scores, best first.

    Row u of `masked` has the masked items of row u of the users, in any order. Both results have
    min(k, n_items) columns; where fewer items remain, the rest is item -1 with score -inf.
    """
    _check(user_vectors, item_vectors, masked, k)
    kind = np.result_type(user_vectors, item_vectors, np.float32)
    users, items = (np.ascontiguousarray(v, dtype=kind) for v in (user_vectors, item_vectors))
    return ranker.rank(users, items, masked, _apart(users, items), min(k, len(items)))


def best_items(
    scorer: Scorer, users: Int64, masked: Ragged, k: int, ranker: Ranker = PLAIN
) -> tuple[Int64, Float64]:
    """What `top_items` says, for some users of a scorer; row r of `masked` is about users[r]."""
    if isinstance(scorer, Vectors):
        rows = scorer.users if _is_everybody(users, scorer) else scorer.users[users]
        return top_items(rows, scorer.items, masked, k, ranker)
    _check_masked(scorer.n_items, len(users), masked, k)
    found = [
        ranker.best(_scores(scorer, users[rows]), masked.only(rows), min(k, scorer.n_items))
        for rows in blocks(np.arange(len(users)), scorer.n_items)
    ]
    empty = np.empty((0, min(k, scorer.n_items)))
    top, scores = zip(*found, strict=True) if found else ((empty.astype(np.int64),), (empty,))
    return np.concatenate(top), np.concatenate(scores)


def _is_everybody(users: Int64, scorer: Scorer) -> bool:
    return len(users) == scorer.n_users and bool((users == np.arange(len(users))).all())


def _scores(scorer: Scorer, users: Int64) -> Floats:
    """All of them finite: what is not is said here, not warned of where it is added up."""
    with np.errstate(over="ignore", invalid="ignore"):
        scores = scorer.scores(users)
    if not np.isfinite(scores).all():
        raise EvaluationError(
            "found scores that are not finite, so items cannot be ranked: the training diverged; "
            "lower the learning rate"
        )
    return scores


def _check(users: Floats, items: Floats, masked: Ragged, k: int) -> None:
    if users.shape[1] != items.shape[1] or not users.shape[1]:
        raise EvaluationError(
            f"found user vectors of {users.shape[1]} and item vectors of {items.shape[1]} numbers, "
            "expected as many, and at least one: they belong to different models"
        )
    _check_masked(len(items), len(users), masked, k)


def _check_masked(n_items: int, n_users: int, masked: Ragged, k: int) -> None:
    if not isinstance(k, Integral):
        raise EvaluationError(
            f"found {k!r} as the number of best items; expected a whole number, such as 20"
        )
    if k < 1 or n_items < 1:
        raise EvaluationError(f"cannot rank the best {k} of {n_items} items: both must be positive")
    if len(masked) != n_users:
        raise EvaluationError(
            f"found masked items of {len(masked)} users, expected {n_users}: "
            "pass the masked items of exactly the users that are ranked"
        )
    found = masked.values
    if len(found) and not (found.min() >= 0 and found.max() < n_items):
        raise EvaluationError(
            f"found masked items from {found.min()} to {found.max()}, expected 0 to "
            f"{n_items - 1}: the model and the interactions belong to different data sets"
        )


def _apart(users: Floats, items: Floats) -> Float64:
    """δ_u: how far, at most, a score of user u by any matrix product is from the definitive one.

    Any order of summation is within γ_d ‖e_u‖‖e_i‖ of the exact dot product, γ_d = dε / (1 - dε)
    with ε half the machine epsilon (Higham, "Accuracy and Stability", §3.1). Two of them are within
    twice that; another factor 2 covers the rounding of this bound and of what is compared to it.
    """
    d, machine = users.shape[1], np.finfo(users.dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        largest = _norms(users) * _norms(items).max()
    if not (largest < machine.max / 2).all():
        raise EvaluationError(
            "found vectors that are not finite (or overflow when multiplied), so items cannot be "
            "ranked: the training diverged; lower the learning rate"
        )
    bound: Float64 = 2 * d * float(machine.eps) * largest + d * float(machine.tiny)
    return bound


def _norms(vectors: Floats) -> Float64:
    """‖e‖ of every row, never too small: a square may have lost as much as the tiniest number."""
    squares: Float64 = np.einsum("nd,nd->n", vectors, vectors).astype(np.float64)
    squares += vectors.shape[1] * float(np.finfo(vectors.dtype).tiny)
    return np.sqrt(squares)
