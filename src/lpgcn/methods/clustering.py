"""Clusters of vectors by direction: spherical k-means (Dhillon & Modha, 2001), begun by k-means++.

In the end every vector x is with the centre c that has the greatest x·c / ‖x‖‖c‖. What is random
is where it begins, and that is drawn by (seed, purpose, step) alone.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.random import Purpose, uniform

ROUNDS: Final = 10


def spherical_k_means(
    rows: Float64, k: int, seed: int, purpose: Purpose, step: int = 0
) -> tuple[Int64, Float64]:
    """The cluster of every row, and the centres, of length 1; there are at least k rows."""
    directions = _directions(rows)
    return _rounds(directions, _begin(directions, uniform(seed, purpose, np.arange(k), step)[:, 0]))


def moved(rows: Float64, cluster: Int64, centres: Float64) -> tuple[Int64, Float64]:
    """What `spherical_k_means` says, begun by the clusters that there were when the rows were
    others: a cluster keeps its number."""
    directions = _directions(rows)
    return _rounds(directions, _centred(directions, cluster, centres))


def _rounds(directions: Float64, centres: Float64) -> tuple[Int64, Float64]:
    for _ in range(ROUNDS):
        centres = _centred(directions, np.argmax(directions @ centres.T, axis=1), centres)
    return np.argmax(directions @ centres.T, axis=1), centres


def _centred(directions: Float64, cluster: Int64, centres: Float64) -> Float64:
    """The centres of clusters; one that nobody is with stays where it is."""
    sums = np.zeros_like(centres)
    np.add.at(sums, cluster, directions)
    there = np.bincount(cluster, minlength=len(centres)) > 0
    return np.where(there[:, None], _directions(sums), centres)


def _directions(rows: Float64) -> Float64:
    found: Float64 = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
    return found


def _begin(directions: Float64, draws: Float64) -> Float64:
    """k-means++ (Arthur & Vassilvitskii, 2007): a row becomes a centre with a probability that
    rises with the square of its distance to the nearest one before, 2(1 − cosine)."""
    chosen: list[int] = []
    nearest = np.ones(len(directions))
    for draw in draws.tolist():
        running = np.cumsum(nearest)
        place = int(np.searchsorted(running, draw * running[-1], side="right"))
        chosen.append(min(place, len(directions) - 1))
        distance = np.maximum(1 - directions @ directions[chosen[-1]], 0)
        nearest = distance if len(chosen) == 1 else np.minimum(nearest, distance)
    return directions[chosen]
