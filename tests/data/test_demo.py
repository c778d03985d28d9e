"""The built-in data set is what it says, and has something to learn."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from lpgcn.data import Split, load
from lpgcn.data.demo import demo


@pytest.fixture(scope="module")
def split() -> Split:
    return load("demo")


def recall_at_20(split: Split, scores: npt.NDArray[np.float64]) -> float:
    """Full ranking with the training items masked, written out user by user."""
    recalls = []
    for user in range(split.n_users):
        score = scores[user].copy()
        score[split.train.items_of(user)] = -np.inf
        wanted = set(split.test.items_of(user).tolist())
        if wanted:
            top = np.argsort(-score, kind="stable")[:20].tolist()
            recalls.append(len(wanted.intersection(top)) / len(wanted))
    return float(np.mean(recalls))


def test_sizes_and_names(split: Split) -> None:
    assert (split.n_users, split.n_items) == (1000, 1500)
    assert sum(len(part) for part in split.parts.values()) == pytest.approx(60_000, rel=0.01)
    assert set(split.user_ids) == {f"user-{number}" for number in range(1, 1001)}
    assert set(split.item_ids) == {f"item-{number}" for number in range(1, 1501)}
    assert split.train.user_degrees.min() >= 10
    keys = np.concatenate([part.keys for part in split.parts.values()])
    assert np.unique(keys).size == keys.size


def test_popularity_has_a_long_tail(split: Split) -> None:
    """The most popular tenth of the items has more than 30 % of the interactions."""
    degrees = np.sort(split.train.item_degrees)[::-1]
    assert degrees[:150].sum() > 0.3 * degrees.sum()
    assert degrees[0] > 10 * np.median(degrees)


def test_neighbours_beat_popularity_clearly(split: Split) -> None:
    """One step over the normalised graph, D_u^-½ R D_i^-1 Rᵀ D_u^-½ · R D_i^-½, nothing trained."""
    matrix = np.zeros((split.n_users, split.n_items))
    matrix[split.train.users, split.train.items] = 1
    normal = matrix / np.sqrt(np.maximum(matrix.sum(1, keepdims=True), 1))
    normal /= np.sqrt(np.maximum(matrix.sum(0), 1))
    popularity = np.tile(matrix.sum(0), (split.n_users, 1))
    assert recall_at_20(split, normal @ (normal.T @ normal)) > 2 * recall_at_20(split, popularity)


def test_the_same_seed_gives_the_same_data(split: Split) -> None:
    assert demo().fingerprint == split.fingerprint
    assert demo(seed=1).fingerprint != split.fingerprint
