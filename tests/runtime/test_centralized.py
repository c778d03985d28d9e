"""The engine against an independent LightGCN / LightGCN+ from the formulas, with autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from lpgcn.config import Config, Model
from lpgcn.data import Ids, Interactions, Split, load
from lpgcn.model.grid import GridError
from lpgcn.model.sampling import SamplingError
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.machine import Machine

STEPS = 20
MACHINE = Machine.with_threads(1)

TOLERANCE = 2.0**-35
"""A thousand steps of the backward grid, 2^-45. A gradient is off by a few of them; Adam divides by
its size, so that a small one is off by more. The largest of 600 tables was 3.9e-12, 2^-38."""

LOSS_TOLERANCE = 2.0**-31
"""A sample and the three nodes in it are each rounded to a multiple of 2^-32."""


def split_of(pairs: list[tuple[int, int]], n_users: int, n_items: int) -> Split:
    users, items = zip(*pairs, strict=True)
    none = Interactions.from_pairs([], [], n_users, n_items)
    return Split(
        "random",
        Interactions.from_pairs(users, items, n_users, n_items),
        none,
        none,
        Ids(np.arange(n_users)),
        Ids(np.arange(n_items)),
    )


@st.composite
def splits(draw: st.DrawFn) -> Split:
    """Small graphs: every user has an item, item 0 has all, item 1 one, some items none."""
    n_users = draw(st.integers(1, 8))
    n_items = draw(st.integers(4, 12))
    pairs = {(user, 0) for user in range(n_users)} | {(0, 1)}
    extra = st.tuples(st.integers(0, n_users - 1), st.integers(2, n_items - 2))
    pairs |= set(draw(st.lists(extra, max_size=30)))
    return split_of(sorted(pairs), n_users, n_items)


class Autograd:
    """LightGCN (Eqs. 1–5) with a dense normalised adjacency matrix and torch's own Adam."""

    def __init__(self, split: Split, config: Config, start: Tables) -> None:
        self.config = config
        self.parameters = {
            name: torch.from_numpy(value).requires_grad_() for name, value in start.items()
        }
        self.optimizer = torch.optim.Adam(self.parameters.values(), lr=config.lr, foreach=False)
        train = split.train
        self.interactions = torch.zeros(split.n_users, split.n_items, dtype=torch.float64)
        self.interactions[train.users, train.items] = 1
        user_degree = self.interactions.sum(1, keepdim=True)
        item_degree = self.interactions.sum(0, keepdim=True).clamp(min=1)
        self.normalised = self.interactions / (user_degree * item_degree).sqrt()
        self.user_degree = user_degree

    def initial(self) -> tuple[Tensor, Tensor]:
        items = self.parameters["items"]
        if "users" in self.parameters:
            return self.parameters["users"], items
        return self.interactions @ self.parameters["item_users"] / self.user_degree.sqrt(), items

    def step(self, users: Tensor, positives: Tensor, negatives: Tensor) -> float:
        user0, item0 = self.initial()
        user, item = user0, item0
        user_layers, item_layers = [user], [item]
        for _ in range(self.config.layers):
            user, item = self.normalised @ item, self.normalised.T @ user
            user_layers.append(user)
            item_layers.append(item)
        final_user = torch.stack(user_layers).mean(0)[users]
        final_item = torch.stack(item_layers).mean(0)
        margin = (final_user * (final_item[positives] - final_item[negatives])).sum(1)
        squares = sum(
            rows.pow(2).sum() for rows in (user0[users], item0[positives], item0[negatives])
        )
        loss = (
            -torch.nn.functional.logsigmoid(margin).sum() + self.config.reg / 2 * squares
        ) / len(users)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


@settings(max_examples=25, deadline=None)
@given(
    split=splits(),
    model=st.sampled_from(["lightgcn", "lightgcn+"]),
    layers=st.integers(1, 4),
    dim=st.sampled_from([1, 3, 16, 20]),
    batch_size=st.integers(1, 40),
    virtual_items=st.sampled_from(["0", "2", "1.0x"]),
    seed=st.integers(0, 1000),
)
def test_agrees_with_autograd(
    split: Split,
    model: Model,
    layers: int,
    dim: int,
    batch_size: int,
    virtual_items: str,
    seed: int,
) -> None:
    config = Config(
        model=model,
        layers=layers,
        dim=dim,
        lr=0.01,
        reg=0.05,
        batch_size=batch_size,
        virtual_items=virtual_items,
        seed=seed,
        dtype="float64",
    )
    engine = Centralized(split, config, MACHINE)
    oracle = Autograd(split, config, engine.parameters())
    done = 0
    for epoch in range(STEPS):
        expected_loss = 0.0
        for step in range(engine.steps_per_epoch):
            batch = engine.sampler.batches.draw(epoch, step)
            pairs, size = engine.sampler.pairs(batch), batch.size
            items = np.concatenate((np.arange(split.n_items), engine.sampler.catalogue))
            users = torch.from_numpy(pairs.users[pairs.positive])
            expected_loss += size * oracle.step(
                users,
                torch.from_numpy(items[pairs.items[pairs.positive]]),
                torch.from_numpy(items[pairs.items[pairs.negative]]),
            )
            engine.step(epoch, step, config.lr)
            done += 1
        assert engine.take_loss() == pytest.approx(
            expected_loss / len(split.train), abs=LOSS_TOLERANCE
        )
        if done >= STEPS:
            break
    for name, value in engine.parameters().items():
        assert np.abs(value - oracle.parameters[name].detach().numpy()).max() < TOLERANCE


def test_threads_do_not_matter() -> None:
    split, states = load("demo"), []
    config = Config(layers=2, dim=32, batch_size=4096)
    for threads in (1, 3):
        engine = Centralized(split, config, Machine.with_threads(threads))
        for step in range(2):
            engine.step(0, step, 0.01)
        found = engine.measure("valid")
        states.append((engine.take_loss(), found, engine.vectors(), engine.state()))
    (loss, found, vectors, state), (*same, other_vectors, other) = states
    assert [loss, found] == same
    assert vectors.users.tobytes() == other_vectors.users.tobytes()
    assert vectors.items.tobytes() == other_vectors.items.tobytes()
    assert {name: value.tobytes() for name, value in state.items()} == {
        name: value.tobytes() for name, value in other.items()
    }


@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
def test_training_that_diverges_says_where(model: Model) -> None:
    split = split_of([(0, 0), (0, 1), (1, 0)], 2, 3)
    engine = Centralized(split, Config(model=model, dim=2, batch_size=3), MACHINE)
    engine.step(0, 0, 1e3)
    with pytest.raises(GridError, match=r"(layer 0 forward|building users), the (users|items): "):
        engine.step(1, 0, 1e3)


def test_a_user_without_items_is_refused() -> None:
    with pytest.raises(SamplingError, match=r"user 1 .* has no training items"):
        Centralized(split_of([(0, 0)], 2, 3), Config(), MACHINE)
