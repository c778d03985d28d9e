"""The loss of a batch against the formula and autograd in float64, and its sums row by row."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from lpgcn.array_types import Float64
from lpgcn.model.grid import Grid
from lpgcn.model.kernels.compiled import Compiled
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.kernels.threads import Threads
from lpgcn.model.losses.bpr import PairGradients, Pairs, pair_gradients, slopes
from lpgcn.model.losses.gradient import LossGradient

Samples = tuple[tuple[int, int, int], ...]
KERNELS = {"plain": Plain(), "compiled": Compiled(Threads(1))}
N_USERS, N_ITEMS = 5, 10
PINNED_SLOPES = [
    "0x1.f3a59f801f582p-1", "0x1.0cca12729afb8p-1", "0x1.0000000000000p-1",
    "0x1.ffbe76c90fd9ap-2", "0x1.4885610b9b827p-2", "0x1.f42e59cdcdad4p-19",
    "0x1.300ff6c7c2e28p-938",
]  # fmt: skip


@st.composite
def samples(draw: st.DrawFn) -> Samples:
    """(user, positive, negative) with positives 0–5 and negatives 6–9; many are drawn twice."""
    triple = st.tuples(st.integers(0, N_USERS - 1), st.integers(0, 5), st.integers(6, 9))
    return tuple(draw(st.lists(triple, min_size=1, max_size=30)))


def pairs_of(drawn: Samples) -> Pairs:
    return Pairs.from_samples(*np.array(drawn).T, N_ITEMS)


def vectors(dim: int, scale: float, dtype: Any = np.float64) -> tuple[Any, Any]:
    random = np.random.default_rng(dim)
    return tuple(  # type: ignore[return-value]
        (scale * random.standard_normal((rows, dim))).astype(dtype) for rows in (N_USERS, N_ITEMS)
    )


@given(samples())
def test_pairs_are_those_of_the_samples_each_once(drawn: Samples) -> None:
    pairs = pairs_of(drawn)
    expected = sorted({(u, i) for u, i, _ in drawn} | {(u, j) for u, _, j in drawn})
    assert list(zip(pairs.users, pairs.items, strict=True)) == expected
    assert len(pairs) == len(expected)
    assert [expected[pair] for pair in pairs.positive] == [(u, i) for u, i, _ in drawn]
    assert [expected[pair] for pair in pairs.negative] == [(u, j) for u, _, j in drawn]


def gathered(
    pairs: Pairs, found: PairGradients, both: tuple[Any, Any], grid: Grid, kernels: Any
) -> tuple[LossGradient, LossGradient]:
    """At the users, and at the items."""
    by_item = np.argsort(pairs.items, kind="stable")
    count = found.count.astype(np.float64)
    return (
        LossGradient.gather(
            pairs.users, pairs.items, found.coefficient, count / 2, both[1], grid, kernels
        ),
        LossGradient.gather(
            pairs.items[by_item],
            pairs.users[by_item],
            found.coefficient[by_item],
            count[by_item],
            both[0],
            grid,
            kernels,
        ),
    )


@pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS)
@given(drawn=samples(), dim=st.integers(1, 20), scale=st.sampled_from([0.01, 1.0, 30.0]))
@example(drawn=((0, 1, 6), (0, 1, 6), (0, 1, 7), (1, 1, 6)), dim=3, scale=1.0)
def test_loss_and_gradients_are_those_of_autograd(
    kernels: Any, drawn: Samples, dim: int, scale: float
) -> None:
    """To half a step of the grid for each of the products of a sum."""
    both = vectors(dim, scale)
    oracle = tuple(torch.from_numpy(one).requires_grad_() for one in both)
    users, positives, negatives = np.array(drawn).T
    margin = (oracle[0][users] * (oracle[1][positives] - oracle[1][negatives])).sum(1)
    losses = -torch.nn.functional.logsigmoid(margin)
    expected = torch.autograd.grad(losses.sum(), oracle)

    pairs, grid = pairs_of(drawn), Grid.backward("float64", len(drawn))
    found = pair_gradients(pairs, *both, kernels)
    np.testing.assert_allclose(found.loss, losses.detach(), rtol=1e-12, atol=1e-12)
    for at, gradient in zip(gathered(pairs, found, both, grid, kernels), expected, strict=True):
        whole = np.zeros_like(gradient)
        whole[at.rows] = at.sums * grid.unit
        products = 2 * len(drawn)
        # A score is a sum of d products of this scale, whose rounding moves the slope.
        slope = 4 * dim * scale**2 * np.finfo(np.float64).eps
        allowed = grid.unit / 2 + (1e-14 + slope) * scale
        assert np.abs(whole - gradient.numpy()).max() <= products * allowed


@given(samples())
def test_every_node_is_in_as_many_samples_as_name_it(drawn: Samples) -> None:
    both, pairs = vectors(3, 1.0), pairs_of(drawn)
    found = pair_gradients(pairs, *both, Plain())
    grid = Grid.backward("float64", len(drawn))
    at_users, at_items = gathered(pairs, found, both, grid, Plain())
    users, positives, negatives = np.array(drawn).T
    assert at_users.rows.tolist() == sorted(set(users.tolist()))
    assert at_items.rows.tolist() == sorted({*positives.tolist(), *negatives.tolist()})
    assert at_users.in_samples.tolist() == [sum(users == user) for user in at_users.rows]
    assert at_items.in_samples.tolist() == [
        sum(positives == item) + sum(negatives == item) for item in at_items.rows
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(drawn=samples(), data=st.data())
def test_a_client_with_its_own_samples_has_the_bits_of_all(
    dtype: Any, drawn: Samples, data: st.DataObject
) -> None:
    """It has its own vector and those of the items in its samples, called by other numbers."""
    user = data.draw(st.sampled_from([sample[0] for sample in drawn]))
    both, grid = vectors(7, 1.0, dtype), Grid.backward(dtype, len(drawn))
    pairs = pairs_of(drawn)
    found = pair_gradients(pairs, *both, KERNELS["compiled"])
    whole, _ = gathered(pairs, found, both, grid, KERNELS["compiled"])

    own = [sample for sample in drawn if sample[0] == user]
    called = np.unique([sample[1:] for sample in own])
    local = [np.searchsorted(called, items) for items in np.array(own).T[1:]]
    mine = Pairs.from_samples(np.zeros(len(own), np.int64), *local, len(called))
    received = both[0][[user]], both[1][called]
    alone = pair_gradients(mine, *received, Plain())
    at_user, _ = gathered(mine, alone, received, grid, Plain())
    rows = pairs.users == user
    assert alone.coefficient.dtype == dtype
    assert alone.coefficient.tobytes() == found.coefficient[rows].tobytes()
    assert np.array_equal(alone.count, found.count[rows])
    assert alone.loss.tobytes() == found.loss[np.array([u == user for u, _, _ in drawn])].tobytes()
    assert np.array_equal(at_user.sums, whole.sums[whole.rows == user])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@given(count=st.integers(1, 20), dim=st.integers(1, 9), seed=st.integers(0, 99))
def test_a_single_node_in_all_pairs_is_gathered_as_any_other(
    dtype: Any, count: int, dim: int, seed: int
) -> None:
    random, grid = np.random.default_rng(seed), Grid.backward(dtype, count)
    coefficient = random.standard_normal(count).astype(dtype)
    sent = random.standard_normal((count, dim)).astype(dtype)
    one = LossGradient.of_one(coefficient, count, sent, grid, Plain())
    zeros, ones = np.zeros(count, np.int64), np.ones(count)
    other = LossGradient.gather(
        zeros, np.arange(count), coefficient, ones, sent, grid, KERNELS["compiled"]
    )
    assert np.array_equal(one.rows, other.rows)
    assert np.array_equal(one.sums, other.sums)
    assert np.array_equal(one.in_samples, other.in_samples)


def test_a_positive_that_is_drawn_twice_pulls_twice() -> None:
    both = vectors(4, 1.0)
    once, twice = (
        pair_gradients(pairs_of(((0, 1, 6),) * times), *both, Plain()) for times in (1, 2)
    )
    assert twice.coefficient.tolist() == (2 * once.coefficient).tolist()
    assert (once.count.tolist(), twice.count.tolist()) == ([1, 1], [2, 2])
    assert once.coefficient[0] == -once.coefficient[1]


def test_a_margin_of_any_size_has_a_finite_loss() -> None:
    pairs = Pairs.from_samples(*np.array([[0, 0, 1], [0, 1, 0]]).T, 2)
    found = pair_gradients(pairs, np.ones((1, 1)), np.array([[1e4], [-1e4]]), Plain())
    assert found.loss.tolist() == [0.0, 2e4]
    assert found.coefficient.tolist() == [1.0, -1.0]
    assert found.count.tolist() == [2, 2]


def test_nodes_that_no_sample_touches_have_no_rows() -> None:
    none = LossGradient.none(6)
    assert none.sums.shape == (0, 6)
    assert len(none.rows) == len(none.in_samples) == 0
    empty = np.empty(0, np.int64)
    nothing = LossGradient.gather(
        empty, empty, np.empty(0), np.empty(0), np.ones((3, 6)), Grid.forward("float64"), Plain()
    )
    assert nothing.sums.shape == none.sums.shape
    assert len(nothing.rows) == len(nothing.in_samples) == 0


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 9, 31])
def test_losses_of_a_few_samples_have_the_bits_of_losses_of_many(length: int) -> None:
    """Vector registers or not, one margin has one loss and one slope."""
    margins = 8 * np.random.default_rng(1).standard_normal(600)

    def gradients(margins: Float64) -> PairGradients:
        """Of one user, whose samples have these margins."""
        count = len(margins)
        samples = np.zeros(count, np.int64), np.arange(count), np.full(count, count)
        items = np.append(margins, 0.0)[:, None]
        return pair_gradients(
            Pairs.from_samples(*samples, count + 1), np.ones((1, 1)), items, Plain()
        )

    many = gradients(margins)
    for first in range(0, 600 - length, 7):
        part = slice(first, first + length)
        few = gradients(margins[part])
        assert few.loss.tobytes() == many.loss[part].tobytes()
        assert few.coefficient[:-1].tobytes() == many.coefficient[part].tobytes()


@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=30))
def test_slopes_are_those_of_the_logistic_function(margins: list[float]) -> None:
    found = slopes(np.array(margins))
    exact = [1 / (1 + Decimal(margin).exp()) for margin in margins]
    # Beyond 700 the slope is held; nothing in any precision remains of it there.
    assert all(
        abs(Decimal(one) - other) <= max(other * Decimal("4e-15"), Decimal("1e-300"))
        for one, other in zip(found.tolist(), exact, strict=True)
    )
    alone = [slopes(np.array([margin]))[0] for margin in margins]
    assert found.tolist() == alone


def test_slopes_have_these_bits_on_every_processor() -> None:
    found = slopes(np.array([-3.7, -0.1, 0.0, 1e-3, 0.75, 12.5, 650.0]))
    assert [one.hex() for one in found.tolist()] == PINNED_SLOPES
