"""PerFedRec against its formulas, and its clusters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lpgcn.array_types import Float64
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.methods.clustering import moved, spherical_k_means
from lpgcn.methods.perfedrec import PerFedRec, PerFedRecOptions
from lpgcn.model.batches import Batch
from lpgcn.random import Purpose, normal
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.runs.source import Source

CONFIG = Config(dim=4, dtype="float64", reg=0.2, init_deviation=0.5)
OPTIONS = PerFedRecOptions(users_a_round=20, clusters=3, cluster_every=5)
NAMES = ("users", "items", "local", "matrices", "item_differences", "matrix_differences")


@pytest.fixture(scope="module")
def split(tastes: Path) -> Split:
    return Source(dataset="tastes", train=str(tastes)).open()


@pytest.fixture
def made(split: Split) -> PerFedRec:
    """After some steps, so that no difference is zero."""
    found = PerFedRec(split, CONFIG, OPTIONS, Machine.with_threads(1))
    for step in range(3):
        found.step(0, step, 0.05)
    return found


def tables(state: Tables) -> dict[str, Float64]:
    return {name: state[f"{name}.parameter"] for name in NAMES}


def scores(user: int, cluster: int, table: dict[str, Float64], split: Split) -> Float64:
    """The mean of the three models' scores of all items."""
    d, n = 4, split.n_items
    own, items = split.train.items_of(user), table["items"]
    weight = (len(own) * split.train.item_degrees[own]) ** -0.5
    other = items + table["item_differences"][cluster * n : (cluster + 1) * n]
    matrices = table["matrices"].reshape(2, d, d)
    changed = matrices + table["matrix_differences"].reshape(-1, 2, d, d)[cluster]
    factors = [np.diag(part) for part in table["local"][user].reshape(2, d)]
    total = np.zeros(n)
    for vectors, (first, second) in ((items, matrices), (other, changed), (items, factors)):
        m, e = weight @ vectors[own], table["users"][user]
        inside = m @ first + (m * e) @ second
        total += vectors @ (e + np.where(inside > 0, inside, 0.2 * inside)) / 3
    return total


def loss(table: dict[str, Float64], clusters: np.ndarray, split: Split, step: int) -> float:
    sampler = Sampler(split.train, CONFIG, users_a_round=20)
    batch = sampler.batches.draw(1, step)
    assert isinstance(batch, Batch)
    pairs, total = sampler.pairs(batch), 0.0
    ids = sampler.item_ids[pairs.items]
    found = {int(u): scores(int(u), clusters[u], table, split) for u in np.unique(batch.users)}
    for u, i, j in zip(batch.users, ids[pairs.positive], ids[pairs.negative], strict=True):
        total += np.log1p(np.exp(found[int(u)][j] - found[int(u)][i]))
        squares = np.square(table["users"][u]).sum()
        for item in (i, j):
            squares += np.square(table["items"][item]).sum()
            row = clusters[u] * split.n_items + item
            squares += np.square(table["item_differences"][row]).sum()
        total += 0.1 * squares
    return float(total) / batch.size


def test_the_gradients_are_those_of_the_formula(made: PerFedRec, split: Split) -> None:
    before = made.state()
    table, clusters = tables(before), before["cluster"]
    losses = made.step(1, 1, 0.01)
    assert losses.total / losses.samples == pytest.approx(loss(table, clusters, split, 1))
    after = made.state()
    for name in NAMES:
        gradient = 10 * after[f"{name}.mean"] - 9 * before[f"{name}.mean"]
        stepped = after[f"{name}.steps"] > before[f"{name}.steps"]
        for row in np.flatnonzero(stepped)[::7]:
            shifted = []
            for change in (1e-6, -1e-6):
                changed = {**table, name: table[name].copy()}
                changed[name][row, 1] += change
                shifted.append(loss(changed, clusters, split, 1))
            slope = (shifted[0] - shifted[1]) / 2e-6
            assert gradient[row, 1] == pytest.approx(slope, abs=5e-8)


def test_the_scorer_has_the_scores_of_the_formula(made: PerFedRec, split: Split) -> None:
    state = made.state()
    expected = [
        scores(user, state["cluster"][user], tables(state), split) for user in range(split.n_users)
    ]
    assert np.allclose(made.scorer().scores(np.arange(split.n_users)), expected, rtol=1e-10)


def test_what_is_a_clients_own_changes_in_its_rounds_only(made: PerFedRec, split: Split) -> None:
    before = made.state()
    made.step(1, 0, 0.05)
    after = made.state()
    batch = Sampler(split.train, CONFIG, users_a_round=20).batches.draw(1, 0)
    assert isinstance(batch, Batch)
    for name in ("users", "local"):
        changed = (after[f"{name}.parameter"] != before[f"{name}.parameter"]).any(axis=1)
        assert np.array_equal(np.flatnonzero(changed), np.unique(batch.users))


def test_users_are_put_into_clusters_every_few_epochs(made: PerFedRec) -> None:
    at_first = made.state()["cluster"]
    assert set(at_first) <= {0, 1, 2} and len(set(at_first)) > 1
    made.step(4, 0, 0.3)
    assert np.array_equal(made.state()["cluster"], at_first)
    made.step(5, 0, 0.3)
    assert not np.array_equal(made.state()["cluster"], at_first)


def test_a_cluster_keeps_its_number_while_its_vectors_move() -> None:
    """All differences belong to numbers."""
    centres = np.array([[0.0, 9.0], [9.0, 0.0], [-9.0, -9.0]])
    truth = np.arange(90) % 3
    noise = normal(0, Purpose.USER_CLUSTER, np.arange(90), count=2)
    before, found = spherical_k_means(centres[truth] + noise, 3, 0, Purpose.USER_CLUSTER)
    assert len(set(zip(before, truth, strict=True))) == 3
    turned = (centres[truth] + noise) @ np.array([[0.0, 1.0], [-1.0, 0.0]])
    assert np.array_equal(moved(turned, before, found)[0], before)
    # One that nobody is with stays where it was, and harms nobody.
    aside = np.vstack((found, -found[:1]))
    after, kept = moved(centres[truth] + noise, before, aside)
    assert np.array_equal(after, before) and np.array_equal(kept[3], aside[3])
