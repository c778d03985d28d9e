"""Training pairs, by score: anybody who has e_u and the final vectors of items.

    score_ui = e_u · e_i

of a user's training items against as many other items of the same popularity, so that popularity
alone tells nothing. A model that ranks well must give them away: this is what any recommender with
vectors says about its training data, centralised or not. At chance on vectors that were not
trained.
"""

from __future__ import annotations

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.privacy.measures import Guess
from lpgcn.privacy.views import View
from lpgcn.protocol.suite import Kind
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, uniform


def latest_users(view: View) -> tuple[Int64, Float64]:
    """Users, or handles, whose e_u the view has, and the newest of each."""
    latest = dict[int, Float64]()
    for _, whose, vectors in view.vectors(Kind.USER_FINAL):
        latest.update(zip(whose.tolist(), vectors, strict=True))
    return np.array(list(latest), dtype=np.int64), np.array(list(latest.values()))


def against_alike(
    users: Int64, vectors: Float64, items: Float64, real: Ragged, popularity: Int64
) -> Guess:
    """For each of these users, whose e_u are the rows of `vectors`, its items and their twins: the
    item of most similar popularity that it does not have, at random among those that tie."""
    order = np.lexsort((uniform(0, Purpose.AUDIT, np.arange(len(popularity)))[:, 0], popularity))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    candidates, truth = [], []
    for user in users.tolist():
        own = real[user]
        twins = _twins(own, order, rank)
        candidates.append(np.concatenate((own, twins)))
        truth.append(np.arange(len(own) + len(twins)) < len(own))
    lists = Ragged.from_arrays(candidates)
    scores = np.einsum("ij,ij->i", vectors[lists.rows], items[lists.values])
    return Guess(lists, scores, np.concatenate(truth))


def _twins(own: Int64, order: Int64, rank: Int64) -> Int64:
    taken = np.zeros(len(order), dtype=np.bool_)
    taken[rank[own]] = True
    found = []
    for place in rank[own].tolist():
        for away in range(1, len(order)):
            near = [one for one in (place - away, place + away) if 0 <= one < len(order)]
            free = [one for one in near if not taken[one]]
            if free:
                taken[free[0]] = True
                found.append(order[free[0]])
                break
    return np.array(found, dtype=np.int64)
