"""Clusters of directions: found where they are plain, and drawn by the seed alone."""

from __future__ import annotations

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.methods.clustering import spherical_k_means
from lpgcn.random import Purpose

WHICH = np.random.default_rng(2).integers(0, 4, 200)
ROWS: Float64 = np.eye(6)[WHICH] * np.random.default_rng(3).uniform(0.1, 9, (200, 1))
ROWS += np.random.default_rng(4).normal(0, 0.01, ROWS.shape)


def clustered(rows: Float64, k: int, seed: int = 0, step: int = 0) -> tuple[Int64, Float64]:
    return spherical_k_means(rows, k, seed, Purpose.USER_CLUSTER, step)


def test_plain_clusters_are_found_whatever_the_lengths() -> None:
    found, centres = clustered(ROWS, 4)
    pairs = set(zip(WHICH.tolist(), found.tolist(), strict=True))
    assert len(pairs) == 4
    for which, cluster in pairs:
        assert centres[cluster, which] > 0.99


def test_everybody_is_with_the_nearest_centre_which_is_the_mean_direction() -> None:
    rows = np.random.default_rng(5).normal(size=(300, 3))
    found, centres = clustered(rows, 5)
    cosines = rows @ centres.T / np.linalg.norm(rows, axis=1, keepdims=True)
    assert np.array_equal(found, cosines.argmax(axis=1))
    assert np.allclose(np.linalg.norm(centres, axis=1), 1)
    # Better than where it began and than any centres at random.
    other = np.random.default_rng(6).normal(size=(50, 5, 3))
    other /= np.linalg.norm(other, axis=2, keepdims=True)
    directions = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    worse = np.einsum("nd,tkd->tnk", directions, other).max(axis=2).sum(axis=1)
    assert cosines.max(axis=1).sum() > worse.max()


def test_the_seed_and_the_step_decide_where_it_begins() -> None:
    rows = np.random.default_rng(5).normal(size=(300, 3))
    first = clustered(rows, 5, seed=1)
    assert np.array_equal(first[0], clustered(rows, 5, seed=1)[0])
    assert any(not np.array_equal(first[0], clustered(rows, 5, seed=s)[0]) for s in (2, 3))
    assert any(not np.array_equal(first[0], clustered(rows, 5, seed=1, step=s)[0]) for s in (2, 3))


def test_equal_rows_are_one_cluster() -> None:
    found, centres = clustered(np.ones((7, 2)), 3)
    assert len(set(found.tolist())) == 1
    assert np.isfinite(centres).all()
