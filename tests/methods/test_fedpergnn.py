"""FedPerGNN against its formulas, client by client; what its noise is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lpgcn.array_types import Float64
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.methods.fedpergnn import (
    FedPerGnn,
    FedPerGnnOptions,
    added_up,
    laplace,
    pseudo_gradients,
)
from lpgcn.model.batches import Batch
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, normal, uniform
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.runs.source import Source

CONFIG = Config(dim=4, dtype="float64", reg=0.2, init_deviation=0.5)
OPEN = FedPerGnnOptions(users_a_round=20, clip=1e9, noise=0, pseudo_items=0)
"""Nothing is hidden."""


@pytest.fixture(scope="module")
def split(tastes: Path) -> Split:
    return Source(dataset="tastes", train=str(tastes)).open()


def learner(split: Split, options: FedPerGnnOptions = OPEN) -> FedPerGnn:
    return FedPerGnn(split, CONFIG, options, Machine.with_threads(1))


def tables(state: Tables) -> tuple[Float64, Float64]:
    return state["users.parameter"], state["items.parameter"]


def final(user: int, users: Float64, items: Float64, known: Float64, split: Split) -> Float64:
    """h_u over the client's graph, an edge at a time; `known` are the vectors of an expansion."""
    train = split.train
    degree, item_degree = train.user_degrees, train.item_degrees
    vector = users[user].copy()
    for item in train.items_of(user):
        weight = (degree[user] * item_degree[item]) ** -0.5
        vector += weight * items[item] + weight**2 * users[user]
        for other in train.users[train.items == item]:
            if other != user:
                vector += weight * (degree[other] * item_degree[item]) ** -0.5 * known[other]
    return vector / 3


def loss(users: Float64, items: Float64, known: Float64, split: Split, epoch: int) -> float:
    sampler = Sampler(split.train, CONFIG, users_a_round=20)
    batch = sampler.batches.draw(epoch, 0)
    assert isinstance(batch, Batch)
    pairs, total = sampler.pairs(batch), 0.0
    ids = sampler.item_ids[pairs.items]
    vectors = {int(u): final(int(u), users, items, known, split) for u in np.unique(batch.users)}
    for u, i, j in zip(batch.users, ids[pairs.positive], ids[pairs.negative], strict=True):
        total += np.log1p(np.exp(-vectors[int(u)] @ (items[i] - items[j])))
        total += 0.1 * sum(np.square(one).sum() for one in (users[u], items[i], items[j]))
    return float(total) / batch.size


@pytest.mark.parametrize("epoch", [0, 1])
def test_the_gradients_are_those_of_the_formula(split: Split, epoch: int) -> None:
    """Before the first expansion neighbours are zero, then constants."""
    made = learner(split)
    users, items = tables(made.state())
    known = users * epoch
    losses = made.step(epoch, 0, 0.01)
    assert losses.total / losses.samples == pytest.approx(loss(users, items, known, split, epoch))
    state = made.state()
    for name, table in (("users", users), ("items", items)):
        # After one step Adam's mean is a tenth of the gradient.
        gradient = 10 * state[f"{name}.mean"]
        for row in range(1, len(table), 6):
            shifted = []
            for change in (1e-6, -1e-6):
                changed = {"users": users, "items": items, name: table.copy()}
                changed[name][row, 2] += change
                shifted.append(loss(changed["users"], changed["items"], known, split, epoch))
            slope = (shifted[0] - shifted[1]) / 2e-6
            assert gradient[row, 2] == pytest.approx(slope, abs=2e-8)


def test_the_scorer_convolves_the_same_graph(split: Split) -> None:
    made = learner(split)
    known, _ = tables(made.state())
    made.step(1, 0, 0.05)
    users, items = tables(made.state())
    expected = [final(user, users, items, known, split) @ items.T for user in range(split.n_users)]
    assert np.allclose(made.scorer().scores(np.arange(split.n_users)), expected, rtol=1e-10)


def test_no_client_says_more_than_the_clip_about_an_item(split: Split) -> None:
    """Twenty clients in a round, each with one gradient an item and as many pseudo ones."""
    clip, pseudo = 1e-3, 7
    made = learner(
        split, FedPerGnnOptions(users_a_round=20, clip=clip, noise=0, pseudo_items=pseudo)
    )
    losses = made.step(0, 0, 0.01)
    sums = 10 * made.state()["items.mean"] * losses.samples
    assert 0 < np.abs(sums).max() <= 20 * (1 + pseudo) * clip * (1 + 1e-12)
    free = learner(split)
    free.step(0, 0, 0.01)
    assert np.abs(10 * free.state()["items.mean"] * losses.samples).max() > 20 * 8 * clip


def test_noise_is_of_the_scale_that_was_asked_for(split: Split) -> None:
    """What is sent differs from what would be without noise by Laplace numbers, added up."""
    noisy = learner(split, FedPerGnnOptions(users_a_round=20, clip=1e9, noise=0.5, pseudo_items=0))
    plain = learner(split)
    samples = noisy.step(0, 0, 0.01).samples
    plain.step(0, 0, 0.01)
    means = [made.state()["items.mean"] for made in (noisy, plain)]
    apart = 10 * (means[0] - means[1]) * samples
    sampler = Sampler(split.train, CONFIG, users_a_round=20)
    batch = sampler.batches.draw(0, 0)
    assert isinstance(batch, Batch)
    ids = sampler.item_ids[sampler.pairs(batch).items[sampler.pairs(batch).negative]]
    touched = len(split.train.by_user.only(np.unique(batch.users)).values)
    touched += len(np.unique(batch.users * split.n_items + ids))
    # A Laplace number has variance 2b²; 24 items with 4 numbers each are a rough sample.
    assert np.square(apart).sum() == pytest.approx(touched * 4 * 2 * 0.5**2, rel=0.35)
    assert np.array_equal(*(made.state()["users.mean"] for made in (noisy, plain)))


def test_laplace_numbers() -> None:
    drawn = laplace(uniform(0, Purpose.PRIVACY_NOISE, np.arange(200_000))[:, 0], 0.3)
    assert np.isfinite(laplace(np.array([0.0, 0.5, 1 - 2.0**-32]), 0.3)).all()
    assert np.abs(drawn).mean() == pytest.approx(0.3, rel=0.01)
    assert drawn.mean() == pytest.approx(0, abs=0.004)
    assert (np.abs(drawn) > 0.6).mean() == pytest.approx(np.exp(-2), rel=0.03)


def test_pseudo_gradients_have_the_mean_and_the_covariance_of_a_clients_own() -> None:
    own = Ragged.from_lengths([5, 1, 9], np.arange(15))
    gradient = normal(1, Purpose.PSEUDO_ITEM, np.arange(15), count=3) * (1, 2, 0.1) + (3, 0, 1)
    mixing = normal(2, Purpose.PSEUDO_GRADIENT, np.arange(15), count=20_000)
    found = pseudo_gradients(gradient, own, mixing)
    assert found.shape == (3, 20_000, 3)
    for client in (0, 2):
        real = gradient[own[client]]
        assert np.allclose(found[client].mean(axis=0), real.mean(axis=0), atol=0.08)
        assert np.allclose(np.cov(found[client].T), np.cov(real.T), atol=0.25)
    assert np.allclose(found[1], gradient[5])


def test_gradients_are_added_up_by_item() -> None:
    rows, sums = added_up(np.array([4, 1, 4]), np.array([[1.0, 2.0], [5.0, 6.0], [10.0, 20.0]]))
    assert (rows.tolist(), sums.tolist()) == ([1, 4], [[5.0, 6.0], [11.0, 22.0]])
