"""Real or virtual, from the final vectors of items: the server with any one client.

Final vectors are a sketch of the *real* graph: those of items with the same users are alike. Within
a list the real items are alike, virtual ones are not, unless they were drawn to be:

    score_ut = ê_t · Σ_{s ∈ L_u, s ≠ t} w_s ê_s

with ê centred and of length 1, w = 1 at first, then the positive part of the score of s, scaled to
a mean of 1.

Must succeed with uniform virtual items, after any step; must be at chance on vectors of permuted
items.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lpgcn.array_types import Float64
from lpgcn.privacy.views import View
from lpgcn.protocol.suite import Kind
from lpgcn.ragged import Ragged

_ROUNDS: Final = 3


def latest(view: View) -> Float64 | None:
    """The newest final vector of every place that the view has, NaN where it has none."""
    table: Float64 | None = None
    for kind in (Kind.POOL, Kind.ITEM_FINAL):
        for _, places, vectors in view.vectors(kind):
            if table is None:
                table = np.full((view.n_items, vectors.shape[1]), np.nan)
            table[places] = vectors
    return table


def likeness(lists: Ragged, vectors: Float64) -> Float64:
    """The score of every entry; items without a vector are in the middle."""
    centred = np.nan_to_num(vectors - np.nanmean(vectors, axis=0))
    length = np.linalg.norm(centred, axis=1, keepdims=True)
    unit = np.divide(centred, length, out=np.zeros_like(centred), where=length > 0)
    each, rows = unit[lists.values], lists.rows
    weight = np.ones(len(rows))
    for _ in range(_ROUNDS):
        totals = np.zeros((len(lists), each.shape[1]))
        np.add.at(totals, rows, weight[:, None] * each)
        score = np.einsum("ij,ij->i", each, totals[rows] - weight[:, None] * each)
        weight = np.maximum(score, 0)
        mean = np.bincount(rows, weight, len(lists)) / np.maximum(lists.lengths, 1)
        weight = weight / np.maximum(mean[rows], 1e-300)
    others = np.maximum(lists.lengths - 1, 1)
    mean_score: Float64 = score / others[rows]
    return mean_score
