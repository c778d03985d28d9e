"""Item-kNN against its formula in dense NumPy, and against `implicit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpgcn.array_types import Float64
from lpgcn.data import Interactions, Split
from lpgcn.evaluation.scorers import SparseSimilarity
from lpgcn.methods.item_knn import ItemKnn, ItemKnnOptions
from lpgcn.model.kernels.threads import Threads
from lpgcn.runtime.runs.source import Source

WEIGHTINGS = ["cosine", "tf-idf", "bm25", "count"]


def random_train(n_users: int, n_items: int, share: float, seed: int) -> Interactions:
    has = np.random.default_rng(seed).random((n_users, n_items)) < share
    has[:, 3] = False
    return Interactions.from_pairs(*np.nonzero(has), n_users, n_items)


def fitted(train: Interactions, threads: int = 2, **options: Any) -> SparseSimilarity:
    learner = ItemKnn(train, ItemKnnOptions(**options), Threads(threads))
    for step in range(learner.steps_per_epoch):
        learner.step(0, step, 0.0)
    return learner.scorer()


def by_formula(train: Interactions, options: ItemKnnOptions) -> Float64:
    """S from a matrix with the weight of every interaction, as textbooks have it."""
    x = np.zeros((train.n_users, train.n_items))
    x[train.users, train.items] = 1
    idf = np.log(train.n_items) - np.log1p(x.sum(axis=1, keepdims=True))
    had = x.sum(axis=0)
    if options.weighting == "tf-idf":
        x *= idf
    if options.weighting == "bm25":
        a, b = options.bm25_saturation, options.bm25_length
        x *= (a + 1) / (a * (1 - b + b * had / had.mean()) + 1) * idf
    norm = np.ones(train.n_items)
    if options.weighting in ("cosine", "tf-idf"):
        norm = np.maximum(np.linalg.norm(x, axis=0), 1e-300)
    similarity: Float64 = x.T @ x / (np.outer(norm, norm) + options.shrinkage + 1e-300)
    np.fill_diagonal(similarity, 0)
    return similarity


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("neighbours", [1, 5, 500])
def test_neighbours_and_similarities_are_those_of_the_formula(
    weighting: Any, neighbours: int
) -> None:
    train = random_train(60, 40, 0.15, seed=2)
    # A product of two scales with a shrinkage is another thing than a scaled similarity.
    shrinkage = 0.0 if weighting == "bm25" else 2.5
    options = ItemKnnOptions(neighbours=neighbours, weighting=weighting, shrinkage=shrinkage)
    expected, found = (
        by_formula(train, options),
        fitted(train, neighbours=neighbours, weighting=weighting, shrinkage=shrinkage),
    )
    for item in range(train.n_items):
        entries = slice(*found.similar.offsets[item : item + 2])
        near, value = found.similar.values[entries], found.similarity[entries]
        falling = np.sort(expected[item])[::-1]
        assert np.allclose(value, falling[falling > 0][:neighbours], rtol=1e-12)
        assert np.allclose(value, expected[item, near], rtol=1e-12)
        assert len(set(near.tolist())) == len(near)


def test_of_equal_ones_the_lowest_are_the_nearest() -> None:
    """Everybody has everything."""
    train = Interactions.from_pairs(*np.nonzero(np.ones((3, 6))), 3, 6)
    similar = fitted(train, neighbours=2).similar
    assert [similar[item].tolist() for item in range(6)] == [[1, 2], [0, 2], *[[0, 1]] * 4]


def test_neither_threads_nor_parts_change_the_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    train = random_train(80, 200, 0.1, seed=4)
    one = fitted(train, threads=1, weighting="tf-idf")
    monkeypatch.setattr("lpgcn.methods.item_knn._ITEMS_A_PART", 33)
    other = fitted(train, threads=3, weighting="tf-idf")
    assert np.array_equal(one.similar.values, other.similar.values)
    assert one.similarity.tobytes() == other.similarity.tobytes()


@pytest.fixture(scope="module")
def ml_100k(real_data: Path) -> Split:
    return Source(dataset="ml-100k").open()


@pytest.mark.filterwarnings("ignore:Method expects CSR input")
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_similarities_are_those_of_implicit(ml_100k: Split, weighting: Any) -> None:
    """Its neighbours count the item itself, hence one more. Where the last neighbour has the same
    similarity as others, which of them is kept is a choice."""
    from implicit import nearest_neighbours
    from scipy.sparse import csr_matrix

    train, k = ml_100k.train, 50
    kind = {"cosine": "Cosine", "tf-idf": "TFIDF", "bm25": "BM25", "count": "ItemItem"}[weighting]
    theirs = getattr(nearest_neighbours, f"{kind}Recommender")
    settings = {"K1": 100, "B": 0.8} if weighting == "bm25" else {}
    theirs = theirs(K=k + 1, num_threads=1, **settings)
    ones = csr_matrix(
        (np.ones(len(train)), (train.users, train.items)), (train.n_users, train.n_items)
    )
    theirs.fit(ones, show_progress=False)
    ours = fitted(train, neighbours=k, weighting=weighting)
    kept = theirs.similarity.toarray()
    np.fill_diagonal(kept, 0)
    found = np.zeros_like(kept)
    found[ours.similar.rows, ours.similar.values] = ours.similarity
    # Sorted, a row has the same similarities, whichever of equal ones were kept. Where an item is
    # not among its own nearest, which counts can do, they keep one more of the others.
    mine, other = (np.sort(table, axis=1)[:, ::-1][:, :k] for table in (found, kept))
    assert np.allclose(mine, other, rtol=1e-9, atol=1e-12)
    last = np.where((found > 0).sum(axis=1) < k, 0, mine[:, -1])
    clear = (found > last[:, None] * (1 + 1e-9)) | (kept > last[:, None] * (1 + 1e-9))
    assert np.allclose(found[clear], kept[clear], rtol=1e-9)
    # Counts are whole numbers, and often equal.
    assert clear.sum() > (0.5 if weighting == "count" else 0.9) * (found > 0).sum()
