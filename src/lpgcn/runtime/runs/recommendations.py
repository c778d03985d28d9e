"""What a model recommends: to one, or to many at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.data import Ids
from lpgcn.data.ids import Values
from lpgcn.evaluation import PlainRanker, Ranker, Scorer, Vectors, best_items, top_items
from lpgcn.evaluation.scorers.scorer import blocks
from lpgcn.model.kernels import Floats
from lpgcn.ragged import Ragged


@dataclass(frozen=True)
class Recommendation:
    """An item and its score y_ui."""

    item: int | str
    score: float


@dataclass(frozen=True)
class Neighbour:
    """An item or a user, and the cosine of its vector with another one's."""

    id: int | str
    similarity: float


@dataclass(frozen=True, eq=False)
class Recommendations:
    """Of many users, in four columns: best first for every user, ranks from 1."""

    users: Values
    ranks: Int64
    items: Values
    scores: Float64

    @classmethod
    def of(cls, users: Values, top: Int64, scores: Float64, item_ids: Ids) -> Recommendations:
        """Row r of `top`, whose −1 is no item, is about users[r]."""
        row, rank = np.nonzero(top >= 0)
        return cls(users[row], rank + 1, item_ids.values[top[row, rank]], scores[row, rank])

    def __len__(self) -> int:
        return len(self.users)


def ranked(
    scorer: Scorer,
    users: Int64,
    masked: Ragged,
    k: int,
    among: Int64 | None,
    ranker: Ranker | None = None,
) -> tuple[Int64, Float64]:
    """What `best_items` says, among some items only; row r of `masked` is about users[r]."""
    ranker = ranker or PlainRanker()
    if among is None:
        return best_items(scorer, users, masked, k, ranker)
    if not isinstance(scorer, Vectors):
        others = np.setdiff1d(np.arange(scorer.n_items), among)
        # Some users at a time: all that each of them may not have is written down.
        parts = [
            best_items(scorer, users[rows], _and_all(masked.only(rows), others), k, ranker)
            for rows in blocks(np.arange(len(users)), scorer.n_items) or [np.arange(0)]
        ]
        return np.concatenate([top for top, _ in parts]), np.concatenate([y for _, y in parts])
    place = np.full(scorer.n_items, -1)
    place[among] = np.arange(len(among))
    left = masked.where(place[masked.values] >= 0)
    top, scores = best_items(
        Vectors(scorer.users, scorer.items[among]),
        users,
        Ragged(left.offsets, place[left.values]),
        k,
        ranker,
    )
    return np.where(top >= 0, among[top], -1), scores


def _and_all(rows: Ragged, others: Int64) -> Ragged:
    """Every row with these others."""
    added = np.repeat(np.arange(len(rows)), len(others))
    return Ragged.from_pairs(
        np.concatenate((rows.rows, added)),
        np.concatenate((rows.values, np.tile(others, len(rows)))),
        len(rows),
    )


def nearest(vectors: Floats, ids: Ids, index: int, k: int) -> list[Neighbour]:
    """The k others with the largest cosine."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    directions = vectors / np.maximum(lengths, np.finfo(vectors.dtype).tiny)
    itself = Ragged.single(np.array([index]))
    top, cosines = top_items(directions[index : index + 1], directions, itself, k)
    return [
        Neighbour(ids[other], cosine)
        for other, cosine in zip(top[0].tolist(), cosines[0].tolist(), strict=True)
        if other >= 0
    ]
