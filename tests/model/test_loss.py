"""The loss of a batch against the formula and autograd in float64, and its sums row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.model.loss import LossGradient, Pairs, pair_gradients


@st.composite
def samples(draw: st.DrawFn) -> tuple[tuple[int, int, int], ...]:
    """(user, positive, negative) with users 0–4, positives 0–5, negatives 6–9, some drawn twice."""
    triple = st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(6, 9))
    return tuple(draw(st.lists(triple, min_size=1, max_size=30)))


@given(samples())
def test_pairs_are_those_of_the_samples_each_once(drawn: tuple[tuple[int, int, int], ...]) -> None:
    users, positives, negatives = np.array(drawn).T
    pairs = Pairs.from_samples(users, positives, negatives, 10)
    expected = sorted({(u, i) for u, i, _ in drawn} | {(u, j) for u, _, j in drawn})
    assert list(zip(pairs.users, pairs.items, strict=True)) == expected
    assert [expected[pair] for pair in pairs.positive] == [(u, i) for u, i, _ in drawn]
    assert [expected[pair] for pair in pairs.negative] == [(u, j) for u, _, j in drawn]


@settings(deadline=None, max_examples=50)
@given(drawn=samples(), dim=st.integers(1, 20), scale=st.sampled_from([0.01, 1.0, 30.0]))
def test_loss_and_gradients_are_those_of_autograd(
    drawn: tuple[tuple[int, int, int], ...], dim: int, scale: float
) -> None:
    random = np.random.default_rng(dim)
    user_vectors, item_vectors = (
        torch.from_numpy(scale * random.standard_normal((rows, dim))).requires_grad_()
        for rows in (5, 10)
    )
    users, positives, negatives = np.array(drawn).T
    size = len(drawn)
    margin = (user_vectors[users] * (item_vectors[positives] - item_vectors[negatives])).sum(1)
    losses = -torch.nn.functional.logsigmoid(margin)
    expected = torch.autograd.grad(losses.mean(), (user_vectors, item_vectors))

    pairs = Pairs.from_samples(users, positives, negatives, 10)
    vectors = user_vectors.detach(), item_vectors.detach()
    found = pair_gradients(pairs, *vectors, size)
    np.testing.assert_allclose(found.loss, losses.detach(), rtol=1e-12, atol=1e-12)
    by_item = np.argsort(pairs.items, kind="stable")
    coefficient, count = found.coefficient[by_item], found.count[by_item].astype(np.float64)
    at_users = LossGradient.gather(
        pairs.users, pairs.items, found.coefficient, found.count / 2, vectors[1]
    )
    at_items = LossGradient.gather(
        pairs.items[by_item], pairs.users[by_item], coefficient, count, vectors[0]
    )
    for gathered, gradient in zip((at_users, at_items), expected, strict=True):
        whole = torch.zeros_like(gradient).index_copy_(
            0, torch.from_numpy(gathered.rows), gathered.gradient
        )
        assert (whole - gradient).abs().max() < 1e-12 * max(1, scale)
    assert at_users.in_samples.tolist() == [sum(users == user) for user in at_users.rows]
    assert at_items.in_samples.tolist() == [
        sum(positives == item) + sum(negatives == item) for item in at_items.rows
    ]


def test_a_margin_of_any_size_has_a_finite_loss() -> None:
    pairs = Pairs.from_samples(*np.array([[0, 0, 1], [0, 1, 0]]).T, 2)
    items = torch.tensor([[1e4], [-1e4]], dtype=torch.float64)
    found = pair_gradients(pairs, torch.ones(1, 1, dtype=torch.float64), items, 2)
    assert found.loss.tolist() == [0.0, 2e4]
    assert found.coefficient.tolist() == [0.5, -0.5]
    assert found.count.tolist() == [2, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_scores_have_the_same_bits_row_by_row(dtype: torch.dtype) -> None:
    """(a·b).sum(1), on which scores and norms stand, for any number of rows and threads."""
    random = np.random.default_rng(0)
    threads = torch.get_num_threads()
    try:
        for dim in [*range(1, 36), 63, 64, 65, 100, 128, 129, 256, 300]:
            left, right = torch.from_numpy(random.standard_normal((2, 2500, dim))).to(dtype)
            torch.set_num_threads(2)
            whole = (left * right).sum(1)
            for n_threads, rows in ((1, 1), (2, 1), (2, 2), (1, 3), (2, 5), (1, 17), (2, 33)):
                torch.set_num_threads(n_threads)
                chosen = torch.from_numpy(random.integers(0, 2500, rows))
                assert torch.equal((left[chosen] * right[chosen]).sum(1), whole[chosen]), dim
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 9, 31])
def test_losses_of_a_few_samples_have_the_bits_of_losses_of_many(length: int) -> None:
    """Vector registers or not, NumPy's exp and logaddexp give one result for one number."""
    margin = 8 * np.random.default_rng(1).standard_normal(600)
    slope, loss = np.exp(-np.logaddexp(0.0, margin)), np.logaddexp(0.0, -margin)
    for first in range(0, 600 - length, 7):
        part = margin[first : first + length]
        assert np.array_equal(np.exp(-np.logaddexp(0.0, part)), slope[first : first + length])
        assert np.array_equal(np.logaddexp(0.0, -part), loss[first : first + length])
