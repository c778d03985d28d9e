"""NCF and FedNCF against the formula, in NumPy, and against each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lpgcn.array_types import Float64, Int64
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.methods.ncf import NeuralFiltering
from lpgcn.methods.traffic import SUMMED_BYTES
from lpgcn.model.batches import Batch
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.runs.source import Source

CONFIG = Config(dim=5, dtype="float64", reg=0.3, init_deviation=0.4, batch_size=37)
NAMES = ("users", "items", "weight_0", "bias_0", "weight_1", "bias_1", "output")


@pytest.fixture(scope="module")
def split(tastes: Path) -> Split:
    return Source(dataset="tastes", train=str(tastes)).open()


def learner(split: Split, users_a_round: int | None = None) -> NeuralFiltering:
    return NeuralFiltering(split, CONFIG, Machine.with_threads(1), users_a_round)


def tables(state: Tables) -> dict[str, Float64]:
    return {name: state[f"{name}.parameter"] for name in NAMES}


def score(table: dict[str, Float64], users: Float64, items: Float64) -> Float64:
    joined = np.hstack((users, items))
    first = np.maximum(joined @ table["weight_0"] + table["bias_0"], 0)
    second = np.maximum(first @ table["weight_1"] + table["bias_1"], 0)
    found: Float64 = (second @ table["output"])[:, 0]
    return found


Samples = tuple[Int64, Int64, Int64]


def samples(split: Split, users_a_round: int | None) -> Samples:
    sampler = Sampler(split.train, CONFIG, users_a_round=users_a_round)
    batch = sampler.batches.draw(0, 0)
    assert isinstance(batch, Batch)
    pairs = sampler.pairs(batch)
    ids = sampler.item_ids[pairs.items]
    return pairs.users[pairs.positive], ids[pairs.positive], ids[pairs.negative]


def loss(table: dict[str, Float64], drawn: Samples) -> float:
    """Sample by sample, as it is written."""
    user, positive, negative = drawn
    u, i, j = table["users"][user], table["items"][positive], table["items"][negative]
    margin = score(table, u, i) - score(table, u, j)
    decay = 0.5 * CONFIG.reg * (np.square(u) + np.square(i) + np.square(j)).sum()
    return float((np.log1p(np.exp(-margin)).sum() + decay) / len(user))


@pytest.mark.parametrize("users_a_round", [None, 20])
def test_the_gradients_are_those_of_the_formula(split: Split, users_a_round: int | None) -> None:
    made = learner(split, users_a_round)
    before, drawn = tables(made.state()), samples(split, users_a_round)
    losses = made.step(0, 0, 0.01)
    assert losses.total / losses.samples == pytest.approx(loss(before, drawn))
    state = made.state()
    for name in NAMES:
        # After one step Adam's mean is a tenth of the gradient.
        gradient = 10 * state[f"{name}.mean"]
        for row in range(0, len(gradient), 3):
            shifted = []
            for change in (1e-6, -1e-6):
                table = {**before, name: before[name].copy()}
                table[name][row, -1] += change
                shifted.append(loss(table, drawn))
            slope = (shifted[0] - shifted[1]) / 2e-6
            assert gradient[row, -1] == pytest.approx(slope, abs=2e-8)


def test_the_scorer_has_the_scores_of_the_formula(split: Split) -> None:
    made = learner(split)
    for step in range(3):
        made.step(0, step, 0.05)
    table = tables(made.state())
    pairs = [table["users"].repeat(split.n_items, 0), np.tile(table["items"], (split.n_users, 1))]
    found = made.scorer().scores(np.arange(split.n_users))
    assert np.allclose(found, score(table, *pairs).reshape(found.shape), rtol=1e-12)


def test_a_round_changes_only_vectors_of_its_users_and_all_that_is_shared(split: Split) -> None:
    made = learner(split, 20)
    before = tables(made.state())
    user, *_ = samples(split, 20)
    made.step(0, 0, 0.05)
    after = tables(made.state())
    changed = (after["users"] != before["users"]).any(axis=1)
    assert np.array_equal(np.flatnonzero(changed), np.unique(user))
    assert len(np.unique(user)) == 20
    for name in NAMES[2:-1]:
        assert (after[name] != before[name]).any()


def test_what_a_client_sends(split: Split) -> None:
    """Item vectors and the perceptron, in float64 down and as summands up."""
    traffic = learner(split, 20).traffic()
    assert traffic is not None
    numbers = split.n_items * 5 + 10 * 10 + 10 + 10 * 5 + 5 + 5
    assert (traffic.up, traffic.down) == (SUMMED_BYTES * numbers, 8 * numbers)
    assert (traffic.n_clients, traffic.taking_part) == (60, 20)
    assert learner(split).traffic() is None
