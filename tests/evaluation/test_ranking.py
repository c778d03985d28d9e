"""The ranking against a definition that sorts the definitive scores of all items."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.array_types import Float64, Int64
from lpgcn.evaluation import EvaluationError, PlainRanker, Ranker, plain, top_items
from lpgcn.evaluation.compiled import PANEL, CompiledRanker
from lpgcn.model.kernels import Floats
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.kernels.threads import Threads
from lpgcn.ragged import Ragged

RANKERS: list[Ranker] = [PlainRanker(), CompiledRanker(Threads(2)), CompiledRanker(Threads(1))]
DIMENSIONS = st.sampled_from([1, 2, 3, 7, 8, 20, 64, 65])
KINDS = st.sampled_from([np.float32, np.float64])

every_ranker = pytest.mark.parametrize("ranker", RANKERS, ids=["plain", "compiled", "one thread"])


def vectors(
    rows: int, dimension: int, seed: int, *, levels: int = 0, kind: npt.DTypeLike = np.float32
) -> Floats:
    """Normal entries, or integers within ±levels, of which many products are equal."""
    draw = np.random.default_rng(seed)
    if levels:
        return draw.integers(-levels, levels + 1, (rows, dimension)).astype(kind)
    return draw.standard_normal((rows, dimension)).astype(kind)


def masks(n_users: int, n_items: int, seed: int, share: float) -> Ragged:
    """In no order, and some items twice."""
    draw = np.random.default_rng(seed)
    users, items = np.nonzero(draw.random((n_users, n_items)) < share)
    rows = [draw.permutation(items[users == user]) for user in range(n_users)]
    return Ragged.from_arrays([np.concatenate([own, own[:2]]) for own in rows])


def by_definition(users: Floats, items: Floats, masked: Ragged, k: int) -> tuple[Int64, Float64]:
    every = np.arange(len(items))
    top = np.full((len(users), min(k, len(items))), -1)
    top_scores = np.full(top.shape, -np.inf)
    for user in range(len(users)):
        scores = Plain().dots(users, items, np.full_like(every, user), every)
        allowed = np.setdiff1d(every, masked[user])
        best = allowed[np.lexsort((allowed, -scores[allowed]))][:k]
        top[user, : len(best)], top_scores[user, : len(best)] = best, scores[best]
    return top, top_scores


def same_bits(one: tuple[Int64, Float64], other: tuple[Int64, Float64]) -> bool:
    return np.array_equal(one[0], other[0]) and one[1].tobytes() == other[1].tobytes()


@settings(max_examples=100)
@given(
    dimension=DIMENSIONS,
    n_users=st.integers(1, 40),
    n_items=st.sampled_from([1, 2, 19, PANEL - 1, PANEL, PANEL + 1, 2 * PANEL + 70]),
    k=st.integers(1, 60),
    share=st.sampled_from([0.0, 0.1, 0.9, 1.0]),
    levels=st.sampled_from([0, 0, 1, 3]),
    kind=KINDS,
    buffer_bytes=st.sampled_from([1, 10_000, plain.BUFFER_BYTES]),
    seed=st.integers(0, 2**32),
)
def test_everybody_gets_the_order_of_the_definitive_scores(
    dimension: int,
    n_users: int,
    n_items: int,
    k: int,
    share: float,
    levels: int,
    kind: npt.DTypeLike,
    buffer_bytes: int,
    seed: int,
) -> None:
    users = vectors(n_users, dimension, seed, levels=levels, kind=kind)
    items = vectors(n_items, dimension, seed + 1, levels=levels, kind=kind)
    masked = masks(n_users, n_items, seed, share)
    expected = by_definition(users, items, masked, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "BUFFER_BYTES", buffer_bytes)
        for ranker in RANKERS:
            assert same_bits(top_items(users, items, masked, k, ranker), expected)
    for user in range(n_users):
        alone = top_items(users[user : user + 1], items, masked.only(np.array([user])), k)
        assert same_bits(alone, (expected[0][user : user + 1], expected[1][user : user + 1]))


def test_at_the_size_of_a_real_catalogue() -> None:
    """Several parts, and matrix products whose kernels differ from those for one user."""
    users, items = vectors(600, 64, 1), vectors(40_981, 64, 2)
    masked = masks(600, 40_981, 3, 0.001)
    top, scores = top_items(users, items, masked, 20, CompiledRanker(Threads(2)))
    for user in range(0, 600, 20):
        alone = top_items(users[user : user + 1], items, masked.only(np.array([user])), 20)
        assert same_bits(alone, (top[user : user + 1], scores[user : user + 1]))


@every_ranker
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_near_ties_are_ordered_by_definitive_scores(ranker: Ranker, kind: npt.DTypeLike) -> None:
    """Hundreds of items within a few units in the last place of each other."""
    unit = 2 * float(np.finfo(kind).eps)
    noise = unit * vectors(3000, 64, 4, kind=kind) + unit * vectors(3000, 1, 3, kind=kind)
    users, items = vectors(30, 64, 1, kind=kind), vectors(1, 64, 2, kind=kind) + noise
    masked = masks(30, 3000, 5, 0.2)
    found = top_items(users, items.astype(kind), masked, 20, ranker)
    assert same_bits(found, by_definition(users, items.astype(kind), masked, 20))


@every_ranker
def test_a_user_with_equal_scores_gets_the_first_items(ranker: Ranker) -> None:
    masked = Ragged.from_arrays([np.array([2, 0]), np.array([], dtype=np.int64)])
    users = np.zeros((2, 5), dtype=np.float32)
    top, scores = top_items(users, vectors(900, 5, 0), masked, 4, ranker)
    assert top.tolist() == [[1, 3, 4, 5], [0, 1, 2, 3]]
    assert (scores == 0).all()


@every_ranker
def test_equal_items_far_apart_keep_their_order(ranker: Ranker) -> None:
    """Whatever order the panels are visited in, which the long vectors at the end decide."""
    items = np.tile(vectors(4, 6, 0), (PANEL, 1))
    items[-30:] *= -3
    users, masked = vectors(9, 6, 1), masks(9, 4 * PANEL, 2, 0.1)
    expected = by_definition(users, items, masked, 50)
    assert same_bits(top_items(users, items, masked, 50, ranker), expected)


@every_ranker
def test_numbers_near_the_smallest_are_ranked(ranker: Ranker) -> None:
    """Products of float32 numbers that are 0 in float32 and not in float64."""
    users, items = vectors(5, 8, 0) * np.float32(1e-25), vectors(500, 8, 1) * np.float32(1e-25)
    masked = masks(5, 500, 2, 0.1)
    expected = by_definition(users, items, masked, 20)
    assert same_bits(top_items(users, items, masked, 20, ranker), expected)


@every_ranker
def test_an_absurd_k_is_the_whole_catalogue(ranker: Ranker) -> None:
    users, items, masked = vectors(3, 4, 0), vectors(300, 4, 1), masks(3, 300, 2, 0.5)
    found = top_items(users, items, masked, 10**15, ranker)
    assert same_bits(found, by_definition(users, items, masked, 300))


@every_ranker
def test_arrays_of_any_layout_and_no_users(ranker: Ranker) -> None:
    users, items, masked = vectors(7, 4, 0), vectors(50, 4, 1), masks(7, 50, 2, 0.5)
    expected = by_definition(users, items, masked, 5)
    sideways = np.asfortranarray(users), items.astype(np.float64)
    assert same_bits(top_items(*sideways, masked, 5, ranker), expected)
    nobody = top_items(users[:0], items, masked.only(np.arange(0)), 5, ranker)
    assert nobody[0].shape == nobody[1].shape == (0, 5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e30])
def test_vectors_that_cannot_be_multiplied_are_refused(bad: float) -> None:
    users = vectors(3, 4, 0)
    users[1, 2] = bad
    with pytest.raises(EvaluationError, match="diverged"):
        top_items(users, users, masks(3, 3, 0, 0.0), 2)


@pytest.mark.parametrize(
    ("offsets", "items", "k", "message"),
    [
        ([0, 0, 0], [], 0, "best 0 of 6"),
        ([0, 0], [], 1, "masked items of 1 users, expected 2"),
        ([0, 1, 1], [6], 1, "from 6 to 6, expected 0 to 5"),
        ([0, 1, 1], [-1], 1, "from -1 to -1, expected 0 to 5"),
    ],
)
def test_wrong_input_is_named(offsets: list[int], items: list[int], k: int, message: str) -> None:
    masked = Ragged(np.array(offsets, dtype=np.int64), np.array(items, dtype=np.int64))
    with pytest.raises(EvaluationError, match=message):
        top_items(vectors(2, 3, 0), vectors(6, 3, 1), masked, k)


@pytest.mark.parametrize("k", [5.0, None, "5"])
def test_a_number_of_items_is_a_whole_number(k: Any) -> None:
    with pytest.raises(EvaluationError, match="number of best items; expected a whole number"):
        top_items(vectors(2, 3, 0), vectors(6, 3, 1), masks(2, 6, 0, 0.0), k)


def test_vectors_of_different_models_are_named() -> None:
    with pytest.raises(EvaluationError, match="user vectors of 3 and item vectors of 4"):
        top_items(vectors(2, 3, 0), vectors(6, 4, 1), masks(2, 6, 0, 0.0), 1)


def test_a_client_needs_numpy_only() -> None:
    code = "import sys, lpgcn.evaluation; print({'torch', 'numba', 'llvmlite'} & {*sys.modules})"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert shown.stdout.strip() == "set()"
