"""Every kind of scorer: its formula, its ranking, its way to a file and back."""

from __future__ import annotations

import numpy as np
import pytest

from lpgcn.array_types import Float64
from lpgcn.evaluation import EvaluationError, PlainRanker, Ranker, Scorer, best_items
from lpgcn.evaluation.compiled import CompiledRanker
from lpgcn.evaluation.scorers import (
    KINDS,
    ClusteredVectors,
    DenseSimilarity,
    Perceptron,
    SparseSimilarity,
    Vectors,
    restored,
)
from lpgcn.evaluation.scorers.scorer import blocks
from lpgcn.model.kernels import Floats
from lpgcn.model.kernels.threads import Threads
from lpgcn.ragged import Ragged

USERS, ITEMS = 23, 40
DRAW = np.random.default_rng(5)
HAS = DRAW.random((USERS, ITEMS)) < 0.2
HAS[7] = False
SEEN = Ragged.from_pairs(*np.nonzero(HAS), USERS)


def whole(*shape: int, most: int = 2) -> Floats:
    """Small whole numbers, of which many sums are equal and all are exact."""
    return DRAW.integers(-most, most + 1, shape).astype(np.float32)


SIMILARITY = whole(ITEMS, ITEMS)
NEAR = DRAW.random((ITEMS, ITEMS)) < 0.3
CLUSTER = DRAW.integers(0, 3, USERS)
LAYERS = (whole(8, 5), whole(5, 3)), (whole(5), whole(3)), whole(3)


def perceptron(left: Floats, right: Floats) -> Float64:
    """By the definition, pair by pair."""
    (first, second), (one, two), output = LAYERS
    found = np.empty((USERS, ITEMS))
    for u, i in np.ndindex(USERS, ITEMS):
        hidden = np.maximum(np.concatenate((left[u], right[i])) @ first + one, 0)
        found[u, i] = np.maximum(hidden @ second + two, 0) @ output
    return found


OF_USERS, OF_ITEMS, OF_CLUSTERS = whole(USERS, 4), whole(ITEMS, 4), whole(3, ITEMS, 4)
CASES: dict[str, tuple[Scorer, Floats | Float64]] = {
    "vectors": (Vectors(OF_USERS, OF_ITEMS), OF_USERS @ OF_ITEMS.T),
    "dense-similarity": (DenseSimilarity(SEEN, SIMILARITY), HAS @ SIMILARITY),
    "sparse-similarity": (
        SparseSimilarity(SEEN, Ragged.from_pairs(*np.nonzero(NEAR), ITEMS), SIMILARITY[NEAR]),
        HAS @ (SIMILARITY * NEAR),
    ),
    "perceptron": (Perceptron(OF_USERS, OF_ITEMS, *LAYERS), perceptron(OF_USERS, OF_ITEMS)),
    "clustered-vectors": (
        ClusteredVectors(OF_USERS, CLUSTER, OF_CLUSTERS),
        np.einsum("ud,uid->ui", OF_USERS, OF_CLUSTERS[CLUSTER]),
    ),
}
RANKERS: list[Ranker] = [PlainRanker(), CompiledRanker(Threads(2))]

every_kind = pytest.mark.parametrize("kind", CASES)
every_ranker = pytest.mark.parametrize("ranker", RANKERS, ids=["plain", "compiled"])


def by_definition(scores: Floats | Float64, masked: Ragged, k: int) -> list[list[int]]:
    """Sorted by score, the greatest first, then by item; without the masked ones."""
    return [
        sorted(
            (i for i in range(ITEMS) if i not in masked[row]), key=lambda i: (-scores[row, i], i)
        )[:k]
        for row in range(len(scores))
    ]


def test_there_is_a_case_of_every_kind() -> None:
    assert CASES.keys() == KINDS.keys()


@every_kind
def test_scores_are_those_of_the_formula(kind: str) -> None:
    scorer, expected = CASES[kind]
    users = np.array([5, 7, 7, 0, 22])
    assert (scorer.n_users, scorer.n_items) == (USERS, ITEMS)
    assert np.array_equal(scorer.scores(np.arange(USERS)), expected)
    assert np.array_equal(scorer.scores(users), expected[users])


@every_ranker
@every_kind
@pytest.mark.parametrize("k", [1, 7, ITEMS + 3])
def test_the_best_are_the_first_of_all_sorted(kind: str, ranker: Ranker, k: int) -> None:
    """Most scores are equal to some other, so that ties decide; one user has everything masked."""
    scorer, scores = CASES[kind]
    users = np.concatenate((np.arange(USERS), [3]))
    rows = [SEEN[user][::-1] for user in users.tolist()]
    rows[2] = np.arange(ITEMS)
    masked = Ragged.from_arrays(rows)
    top, best = best_items(scorer, users, masked, k, ranker)
    assert top.shape == best.shape == (len(users), min(k, ITEMS))
    for row, expected in enumerate(by_definition(scores[users], masked, k)):
        there = len(expected)
        assert top[row].tolist() == expected + [-1] * (top.shape[1] - there)
        assert best[row, :there].tolist() == [scores[users[row], item] for item in expected]
        assert (best[row, there:] == -np.inf).all()


@every_ranker
@every_kind
def test_blocks_of_users_change_nothing(
    kind: str, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    scorer, _ = CASES[kind]
    at_once = best_items(scorer, np.arange(USERS), SEEN, 10, ranker)
    monkeypatch.setattr(
        "lpgcn.evaluation.ranking.blocks",
        lambda users, n_items: [users[:1], users[1:4], users[4:]],
    )
    in_blocks = best_items(scorer, np.arange(USERS), SEEN, 10, ranker)
    for one, other in zip(at_once, in_blocks, strict=True):
        assert np.array_equal(one, other)


def test_blocks_have_every_user_once_and_fit_their_buffer() -> None:
    parts = blocks(np.arange(100), 10, buffer_bytes=8 * 10 * 7)
    assert np.array_equal(np.concatenate(parts), np.arange(100))
    assert max(map(len, parts)) == 7
    assert [len(part) for part in blocks(np.arange(3), 10, buffer_bytes=1)] == [1, 1, 1]


@every_kind
def test_a_scorer_comes_back_from_its_arrays(kind: str) -> None:
    scorer, expected = CASES[kind]
    again = restored(kind, scorer.arrays(), SEEN)
    assert type(again) is type(scorer)
    assert np.array_equal(again.scores(np.arange(USERS)), expected)


@every_ranker
@every_kind
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_refused(kind: str, ranker: Ranker, bad: float) -> None:
    scorer, _ = CASES[kind]
    arrays = {name: array.copy() for name, array in scorer.arrays().items()}
    name = {"similarity": "similarity"}.get(kind.rpartition("-")[2], "users")
    arrays[name].reshape(-1)[:] = bad
    with pytest.raises(EvaluationError, match="not finite"):
        best_items(restored(kind, arrays, SEEN), np.arange(USERS), SEEN, 5, ranker)


@every_kind
def test_scores_may_be_changed_by_who_asked(kind: str) -> None:
    scorer, expected = CASES[kind]
    scorer.scores(np.arange(USERS))[:] = 9
    assert np.array_equal(scorer.scores(np.arange(USERS)), expected)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(EvaluationError, match="expected one of vectors, "):
        restored("tea-leaves", {}, SEEN)
