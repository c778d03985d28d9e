"""EASE^R against a dense solution, its inverse in blocks, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from lpgcn.array_types import Float64
from lpgcn.config import Config
from lpgcn.data import Interactions
from lpgcn.errors import LpgcnError
from lpgcn.methods import ease
from lpgcn.methods.ease import Ease, NotEnoughMemoryError, check_memory, sweep
from lpgcn.methods.products import subtract_product
from lpgcn.model.kernels.threads import Threads

TRAIN = Interactions.from_pairs(
    *np.nonzero(np.random.default_rng(3).random((90, 50)) < 0.12), 90, 50
)


def dense(train: Interactions, regularisation: float) -> Float64:
    """Steck's own few lines."""
    x = np.zeros((train.n_users, train.n_items))
    x[train.users, train.items] = 1
    inverse = np.linalg.inv(x.T @ x + regularisation * np.eye(train.n_items))
    weights: Float64 = inverse / -np.diag(inverse)
    np.fill_diagonal(weights, 0)
    return weights


def fitted(train: Interactions, regularisation: float, dtype: str = "float64") -> Ease:
    learner = Ease(train, regularisation, dtype, Threads(2))
    for step in range(learner.steps_per_epoch):
        learner.step(0, step, 0.0)
    return learner


@pytest.mark.parametrize("block", [1, 7, 16, 50, 64])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
def test_the_weights_are_the_dense_solution(
    block: int, dtype: str, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ease, "BLOCK", block)
    found = fitted(TRAIN, 0.7, dtype).scorer()
    assert found.similarity.dtype == dtype
    assert np.allclose(found.similarity, dense(TRAIN, 0.7), rtol=0, atol=tolerance)
    assert not np.diag(found.similarity).any()


def test_scores_are_those_of_the_dense_solution() -> None:
    x = np.zeros((90, 50))
    x[TRAIN.users, TRAIN.items] = 1
    found = fitted(TRAIN, 5.0).scorer().scores(np.arange(90))
    assert np.allclose(found, x @ dense(TRAIN, 5.0), rtol=0, atol=1e-12)


def test_no_other_weights_without_a_diagonal_are_better() -> None:
    """The loss that it minimises, at random steps away from it."""
    x = np.zeros((90, 50))
    x[TRAIN.users, TRAIN.items] = 1
    best = fitted(TRAIN, 2.0).scorer().similarity
    draw = np.random.default_rng(1)
    for size in (1e-3, 1e-1):
        other = best + size * draw.standard_normal(best.shape) * (1 - np.eye(50))
        loss, its = (((x - x @ b) ** 2).sum() + 2.0 * (b**2).sum() for b in (best, other))
        assert loss < its


def test_sweeping_all_blocks_in_any_order_gives_minus_the_inverse() -> None:
    half = np.random.default_rng(8).standard_normal((300, 300))
    whole = half @ half.T / 300 + np.eye(300)
    matrix, bounds = np.tril(whole), [0, 80, 160, 240, 300]
    far = np.triu(np.ones((300, 300)), 100) > 0
    matrix[far] = 77.0
    for number in (2, 0, 3, 1):
        sweep(matrix, bounds, number, Threads(2))
    assert np.allclose(np.tril(matrix), -np.tril(np.linalg.inv(whole)), rtol=0, atol=1e-12)
    assert (matrix[far] == 77.0).all()


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize(("n", "columns", "width"), [(1, 1, 1), (67, 67, 5), (130, 33, 9)])
def test_products_are_subtracted(n: int, columns: int, width: int, lower: bool) -> None:
    draw = np.random.default_rng(n)
    left, right = draw.standard_normal((n, width)), draw.standard_normal((columns, width))
    found = draw.standard_normal((n, columns))
    expected = found - left @ right.T
    again = found.copy()
    subtract_product(found, left, right, Threads(2), lower=lower)
    subtract_product(again, left, right, Threads(1), lower=lower)
    kept = np.tril(np.ones_like(found)) > 0 if lower else np.ones_like(found) > 0
    assert np.allclose(found[kept], expected[kept], rtol=0, atol=1e-13)
    assert found.tobytes() == again.tobytes()


def test_a_model_that_was_not_kept_is_computed_again_in_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ease, "BLOCK", 16)
    begun = Ease(TRAIN, 1.0, "float32", Threads(1))
    begun.step(0, 0, 0.0)
    resumed = Ease(TRAIN, 1.0, "float32", Threads(1))
    resumed.restore(begun.state())
    assert sum(array.nbytes for array in begun.state().values()) < 100
    for step in range(1, 4):
        resumed.step(0, step, 0.0)
    expected = fitted(TRAIN, 1.0, "float32").scorer().similarity
    assert resumed.scorer().similarity.tobytes() == expected.tobytes()


def test_memory_is_looked_at_first() -> None:
    check_memory(40_981, 4, 8_000_000_000)
    check_memory(10**9, 4, None)
    with pytest.raises(NotEnoughMemoryError, match=r"needs 14\.1 GB .* found 8\.0 GB .* float32"):
        check_memory(40_981, 8, 8_000_000_000)
    with pytest.raises(LpgcnError, match="--k-core") as refused:
        check_memory(91_599, 4, 24_000_000_000)
    assert "float32" not in str(refused.value)


def test_a_refusal_comes_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ease, "available_memory", lambda: 1000)
    with pytest.raises(NotEnoughMemoryError):
        Ease(TRAIN, 1.0, Config().dtype, Threads(1))
