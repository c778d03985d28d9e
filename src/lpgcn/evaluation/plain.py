"""The ranking in NumPy: for the one user of a client."""

from __future__ import annotations

from typing import Final

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.model.kernels import Floats
from lpgcn.model.kernels.plain import Plain
from lpgcn.ragged import Ragged

BUFFER_BYTES: Final = 1 << 24
"""Products are computed for as many users at a time as this has room for, and at least one."""


class PlainRanker:
    """See `Ranker`."""

    def rank(
        self, user_vectors: Floats, item_vectors: Floats, masked: Ragged, apart: Float64, k: int
    ) -> tuple[Int64, Float64]:
        n_users, n_items = len(user_vectors), len(item_vectors)
        top = np.full((n_users, k), -1, dtype=np.int64)
        scores = np.full((n_users, k), -np.inf)
        chunk = max(1, BUFFER_BYTES // (n_items * item_vectors.itemsize))
        buffer = np.empty((min(chunk, n_users), n_items), dtype=item_vectors.dtype)
        for start in range(0, n_users, chunk):
            users = user_vectors[start : start + chunk]
            products = np.matmul(users, item_vectors.T, out=buffer[: len(users)])
            for user, row in enumerate(products, start):
                row[masked[user]] = -np.inf
                items = _proposed(row, k, float(apart[user]))
                best, of_best = _ordered(user_vectors[user], item_vectors, items)
                top[user, : len(items)], scores[user, : len(items)] = best[:k], of_best[:k]
        return top, scores

    def best(self, scores: Floats, masked: Ragged, k: int) -> tuple[Int64, Float64]:
        scores[masked.rows, masked.values] = -np.inf
        place = scores.shape[1] - k
        kth = np.partition(scores, place, axis=1)[:, place]
        top = np.full((len(scores), k), -1, dtype=np.int64)
        best = np.full((len(scores), k), -np.inf)
        for row, least in enumerate(kth):
            # Items ascend, and equal scores stay in that order; masked ones are never among them.
            items = np.flatnonzero((scores[row] >= least) & (scores[row] > -np.inf))
            items = items[np.argsort(-scores[row, items], kind="stable")[:k]]
            top[row, : len(items)], best[row, : len(items)] = items, scores[row, items]
        return top, best


def _proposed(products: Floats, k: int, apart: float) -> Int64:
    """The items that may be among the best k, ascending.

    k items have a product of at least that of the k-th, so k items have a definitive score of at
    least that less δ, and whoever is better has a product of at least that less 2δ.
    """
    place = len(products) - k
    kth = float(np.partition(products, place)[place])
    # Masked items are -inf and never proposed, even where fewer than k others remain.
    least = max(kth - 2 * apart, float(np.finfo(products.dtype).min))
    return np.flatnonzero(products >= least)


def _ordered(user: Floats, item_vectors: Floats, items: Int64) -> tuple[Int64, Float64]:
    """Items by definitive score; `items` ascend, and equal scores stay in that order."""
    scores = Plain().dots(user[None], item_vectors, np.zeros_like(items), items)
    order = np.argsort(-scores, kind="stable")
    return items[order], scores[order]
