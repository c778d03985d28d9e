"""What lists of recommendations are like, whether they are right or not: how much of the catalogue
they show, how evenly, and how well known it is.

These are about all lists together. A federation does not have them: there each user knows its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.evaluation.errors import EvaluationError

BEYOND_ACCURACY: Final = ("coverage", "gini", "novelty", "popularity")


def beyond_accuracy(
    top: Int64, popularity: Int64, n_users: int, ks: Sequence[int]
) -> dict[str, float]:
    """For each K as in BEYOND_ACCURACY, over the first K items of every row of `top`.

    `top` is what `top_items` gave; −1 is no item. `popularity` is |U_i| in training, of `n_users`
    users. With c_i the number of lists that have item i, n items and N = Σ c_i,

        coverage    |{i : c_i > 0}| / n
        Gini        Σ_j (2j − n − 1) c_(j) / (n N), c_(1) ≤ … ≤ c_(n): 0 if all are shown alike
        novelty     Σ_i c_i · −log2(max(|U_i|, 1) / n_users) / N, in bits (mean self-information)
        popularity  Σ_i c_i |U_i| / N
    """
    if not (top >= 0).any():
        raise EvaluationError("found no recommended item, expected one or more to measure them")
    surprise = -np.log2(np.maximum(popularity, 1) / n_users)
    values: dict[str, float] = {}
    for k in ks:
        shown = top[:, :k]
        counts = np.bincount(shown[shown >= 0], minlength=len(popularity))
        total = int(counts.sum())
        values[f"coverage@{k}"] = float((counts > 0).mean())
        values[f"gini@{k}"] = _gini(counts)
        values[f"novelty@{k}"] = float(counts @ surprise) / total
        values[f"popularity@{k}"] = int(counts @ popularity) / total
    return values


def _gini(counts: Int64) -> float:
    n = len(counts)
    weights = 2 * np.arange(1, n + 1) - n - 1
    return int(weights @ np.sort(counts)) / (n * int(counts.sum()))
