"""Mult-VAE against its formulas, in dense NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lpgcn.array_types import Float64
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.methods.mult_vae import MultVae, MultVaeOptions
from lpgcn.random import Purpose, normal, permutation, uniform
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.runs.source import Source

CONFIG = Config(dtype="float64", seed=3)
OPTIONS = MultVaeOptions(hidden=7, latent=4, users_a_batch=25, anneal_epochs=4, beta=0.6)
EPOCH, STEP = 2, 1


@pytest.fixture(scope="module")
def split(tastes: Path) -> Split:
    return Source(dataset="tastes", train=str(tastes)).open()


@pytest.fixture
def made(split: Split) -> MultVae:
    """After some steps, so that no bias is zero."""
    found = MultVae(split, CONFIG, OPTIONS, Machine.with_threads(1))
    for step in range(3):
        found.step(0, step, 0.05)
    return found


def tables(state: Tables, key: str = "parameter") -> dict[str, Float64]:
    ending = f".{key}"
    return {name.removesuffix(ending): a for name, a in state.items() if name.endswith(ending)}


def inputs(split: Split) -> Float64:
    x = np.zeros((split.n_users, split.n_items))
    x[split.train.users, split.train.items] = 1
    return x


def encode(table: dict[str, Float64], x: Float64) -> tuple[Float64, Float64]:
    a = np.tanh(x @ table["encoder"] + table["encoder_bias"])
    return a @ table["mean"] + table["mean_bias"], a @ table["spread"] + table["spread_bias"]


def decode(table: dict[str, Float64], z: Float64) -> Float64:
    h = np.tanh(z @ table["hidden"] + table["hidden_bias"])
    scores: Float64 = h @ table["decoder"].T + table["decoder_bias"][:, 0]
    return scores


def loss(table: dict[str, Float64], split: Split) -> float:
    """Of the second batch of the third epoch, where β is .6·(2 + 1/3)/4."""
    users = np.sort(permutation(3, Purpose.ROUND, split.n_users, EPOCH)[25:50])
    x = inputs(split)
    kept = np.zeros(x.shape)
    drawn = uniform(3, Purpose.DROPOUT, np.arange(len(split.train)), EPOCH)[:, 0]
    kept[split.train.users, split.train.items] = drawn >= 0.5
    fed = x / np.linalg.norm(x, axis=1, keepdims=True) * kept / 0.5
    mean, log_variance = encode(table, fed[users])
    noise = normal(3, Purpose.LATENT, users, EPOCH, count=4)
    scores = decode(table, mean + np.exp(log_variance / 2) * noise)
    log_softmax = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    divergence = 0.5 * (mean**2 + np.exp(log_variance) - 1 - log_variance).sum(axis=1)
    beta = 0.6 * (2 + 1 / 3) / 4
    return float((beta * divergence - (x[users] * log_softmax).sum(axis=1)).mean())


def test_the_gradients_are_those_of_the_formula(made: MultVae, split: Split) -> None:
    before, means = tables(made.state()), tables(made.state(), "mean")
    losses = made.step(EPOCH, STEP, 0.01)
    assert losses.total / losses.samples == pytest.approx(loss(before, split))
    for name, after in tables(made.state(), "mean").items():
        gradient = 10 * after - 9 * means[name]
        for row in range(0, len(gradient), 3):
            shifted = []
            for change in (1e-6, -1e-6):
                table = {**before, name: before[name].copy()}
                table[name][row, -1] += change
                shifted.append(loss(table, split))
            slope = (shifted[0] - shifted[1]) / 2e-6
            assert gradient[row, -1] == pytest.approx(slope, abs=1e-7)


def test_the_scorer_is_the_decoder_of_the_mean(made: MultVae, split: Split) -> None:
    table, x = tables(made.state()), inputs(split)
    mean, _ = encode(table, x / np.linalg.norm(x, axis=1, keepdims=True))
    found = made.scorer().scores(np.arange(split.n_users))
    assert np.allclose(found, decode(table, mean), rtol=1e-12)


def test_beta_grows_over_epochs_to_its_cap(made: MultVae) -> None:
    assert made.steps_per_epoch == 3
    assert made.beta(0, 0) == 0
    assert made.beta(2, 0) == pytest.approx(0.3)
    assert made.beta(3, 2) < made.beta(4, 0) == made.beta(1000, 1) == 0.6


def test_an_epoch_has_everybody_once(split: Split) -> None:
    made = MultVae(split, CONFIG, OPTIONS, Machine.with_threads(1))
    assert sum(made.step(1, step, 0.01).samples for step in range(3)) == split.n_users
