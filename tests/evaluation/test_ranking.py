"""The ranking against a definition that sorts the row-wise scores of all items."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lpgcn.evaluation import EvaluationError, ranking, top_items

DIMENSIONS = st.sampled_from([1, 2, 3, 7, 8, 20, 64, 65])


def vectors(rows: int, dimension: int, seed: int, *, levels: int = 0) -> Tensor:
    """Normal entries, or integers within ±levels, of which many products are equal."""
    generator = torch.Generator().manual_seed(seed)
    if levels:
        return torch.randint(-levels, levels + 1, (rows, dimension), generator=generator).float()
    return torch.randn(rows, dimension, generator=generator)


def masks(n_users: int, n_items: int, seed: int, share: float) -> tuple[np.ndarray, np.ndarray]:
    users, items = np.nonzero(np.random.default_rng(seed).random((n_users, n_items)) < share)
    return np.searchsorted(users, np.arange(n_users + 1)), items


def ranked_by_definition(
    users: Tensor, items: Tensor, offsets: np.ndarray, masked: np.ndarray, k: int
) -> np.ndarray:
    top = np.full((len(users), k), -1)
    for user in range(len(users)):
        scores = (users[user] * items).sum(-1).numpy()
        allowed = np.setdiff1d(np.arange(len(items)), masked[offsets[user] : offsets[user + 1]])
        best = allowed[np.lexsort((allowed, -scores[allowed]))][:k]
        top[user, : len(best)] = best
    return top


@settings(deadline=None)
@given(DIMENSIONS, st.integers(1, 300), st.integers(1, 40), st.integers(0, 2**32))
def test_a_row_score_has_the_same_bits_alone_and_among_all(
    dimension: int, rows: int, columns: int, seed: int
) -> None:
    users, items = vectors(rows, dimension, seed), vectors(500, dimension, seed + 1)
    wanted = torch.from_numpy(np.random.default_rng(seed).integers(0, 500, (rows, columns)))
    together = ranking.row_scores(users, items, wanted)
    row, column = seed % rows, seed % columns
    alone = ranking.row_scores(users[row : row + 1], items, wanted[row : row + 1])
    single = (users[row] * items[wanted[row, column]]).sum(-1)
    assert torch.equal(together[row], alone[0])
    assert torch.equal(together[row, column], single)


@settings(max_examples=60, deadline=None)
@given(
    dimension=DIMENSIONS,
    n_users=st.integers(1, 40),
    n_items=st.integers(1, 400),
    k=st.integers(1, 60),
    share=st.sampled_from([0.0, 0.1, 0.9, 1.0]),
    levels=st.sampled_from([0, 0, 1, 3]),
    chunk_bytes=st.sampled_from([1, 10_000, ranking.SCORE_BUFFER_BYTES]),
    seed=st.integers(0, 2**32),
)
def test_everybody_gets_the_order_of_the_row_scores(
    dimension: int,
    n_users: int,
    n_items: int,
    k: int,
    share: float,
    levels: int,
    chunk_bytes: int,
    seed: int,
) -> None:
    users = vectors(n_users, dimension, seed, levels=levels)
    items = vectors(n_items, dimension, seed + 1, levels=levels)
    offsets, masked = masks(n_users, n_items, seed, share)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "SCORE_BUFFER_BYTES", chunk_bytes)
        top, scores = top_items(users, items, offsets, masked, k)
    assert np.array_equal(top.numpy(), ranked_by_definition(users, items, offsets, masked, k))
    assert torch.equal(scores.isneginf(), top == -1)
    for user in range(n_users):
        own = masked[offsets[user] : offsets[user + 1]]
        alone = top_items(users[user : user + 1], items, np.array([0, len(own)]), own, k)
        assert torch.equal(alone[0][0], top[user])
        assert torch.equal(alone[1][0], scores[user])


def test_at_the_size_of_a_real_catalogue() -> None:
    """Several chunks of a matrix product whose kernels differ from those for one user."""
    users, items = vectors(1800, 64, 1), vectors(40_981, 64, 2)
    offsets, masked = masks(1800, 40_981, 3, 0.001)
    top, scores = top_items(users, items, offsets, masked, 20)
    for user in range(0, 1800, 60):
        own = masked[offsets[user] : offsets[user + 1]]
        alone = top_items(users[user : user + 1], items, np.array([0, len(own)]), own, 20)
        assert torch.equal(alone[0][0], top[user])
        assert torch.equal(alone[1][0], scores[user])


def test_near_ties_beyond_the_margin_are_ordered_by_row_scores() -> None:
    """Hundreds of items within a few units in the last place of each other."""
    users = vectors(30, 64, 1)
    items = vectors(1, 64, 2) * (1 + 3e-7 * vectors(3000, 1, 3)) + 1e-7 * vectors(3000, 64, 4)
    offsets, masked = masks(30, 3000, 5, 0.2)
    top, _ = top_items(users, items, offsets, masked, 20)
    assert np.array_equal(top.numpy(), ranked_by_definition(users, items, offsets, masked, 20))


def test_a_user_with_equal_scores_gets_the_first_items() -> None:
    top, scores = top_items(
        torch.zeros(2, 5), vectors(900, 5, 0), np.array([0, 2, 2]), np.array([0, 2]), 4
    )
    assert top.tolist() == [[1, 3, 4, 5], [0, 1, 2, 3]]
    assert scores.eq(0).all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e30])
def test_vectors_that_cannot_be_multiplied_are_refused(bad: float) -> None:
    users = vectors(3, 4, 0)
    users[1, 2] = bad
    with pytest.raises(EvaluationError, match="diverged"):
        top_items(users, users, np.zeros(4, dtype=np.int64), np.zeros(0, dtype=np.int64), 2)


@pytest.mark.parametrize(
    ("offsets", "items", "k", "message"),
    [
        ([0, 0, 0], [], 0, "best 0 of 6"),
        ([0, 0], [], 1, "found 2 offsets .* expected 3"),
        ([0, 1, 1], [6], 1, "from 6 to 6, expected 0 to 5"),
        ([0, 1, 1], [-1], 1, "from -1 to -1, expected 0 to 5"),
    ],
)
def test_wrong_input_is_named(offsets: list[int], items: list[int], k: int, message: str) -> None:
    with pytest.raises(EvaluationError, match=message):
        top_items(
            vectors(2, 3, 0),
            vectors(6, 3, 1),
            np.array(offsets, dtype=np.int64),
            np.array(items, dtype=np.int64),
            k,
        )
