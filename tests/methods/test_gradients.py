"""Methods without autograd against it: the formulas once more, in float64, with torch's Adam."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.methods.factorisation import Factorisation
from lpgcn.methods.fedgrec import FedGRec, FedGRecOptions
from lpgcn.methods.p_gcn import PGcn
from lpgcn.methods.semidfegl import SemiDfegl, SemiDfeglOptions
from lpgcn.model.batches import Batch
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.runs.source import Source

RATE, STEPS = 0.01, 6
CONFIG = Config(dim=5, dtype="float64", reg=0.02, batch_size=64, seed=3, layers=3)


@pytest.fixture(scope="module")
def split(tastes: Path) -> Split:
    return Source(dataset="tastes", train=str(tastes)).open()


def samples(
    sampler: Sampler, step: int, epoch: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    batch = sampler.batches.draw(epoch, step)
    assert isinstance(batch, Batch)
    pairs = sampler.pairs(batch)
    ids = sampler.item_ids[pairs.items]
    return (
        torch.from_numpy(pairs.users[pairs.positive]),
        torch.from_numpy(ids[pairs.positive]),
        torch.from_numpy(ids[pairs.negative]),
    )


def loss_of(
    users: torch.Tensor, items: torch.Tensor, drawn: Any, initial: tuple[Any, Any]
) -> torch.Tensor:
    """Eq. 5: BPR on final vectors, the regulariser on those of layer 0."""
    u, i, j = drawn
    margin = (users[u] * (items[i] - items[j])).sum(1)
    first_users, first_items = initial
    squares = sum((one**2).sum() for one in (first_users[u], first_items[i], first_items[j]))
    return (-torch.nn.functional.logsigmoid(margin).sum() + 0.5 * CONFIG.reg * squares) / len(u)


def leaf(table: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(table)).requires_grad_()


@pytest.mark.parametrize("users_a_round", [None, 20])
def test_factorisation(split: Split, users_a_round: int | None) -> None:
    learner = Factorisation(split, CONFIG, Machine.with_threads(1), users_a_round)
    sampler = Sampler(split.train, CONFIG, users_a_round=users_a_round)
    before = learner.state()
    users, items = leaf(before["users.parameter"]), leaf(before["items.parameter"])
    adam = torch.optim.Adam([users, items], RATE)
    own = [torch.optim.Adam([leaf(row)], RATE) for row in before["users.parameter"]]
    rounds = min(STEPS, learner.steps_per_epoch)
    for step in range(rounds):
        losses = learner.step(0, step, RATE)
        drawn = samples(sampler, step)
        adam.zero_grad()
        loss = loss_of(users, items, drawn, (users, items))
        loss.backward()
        assert losses.total / losses.samples == pytest.approx(loss.item(), abs=1e-6)
        if users_a_round is None:
            adam.step()
            continue
        # In a round everybody else's vector and its Adam stay as they are.
        gradient, users.grad = users.grad, None
        adam.step()
        for user in torch.unique(drawn[0]).tolist():
            row = own[user].param_groups[0]["params"][0]
            assert gradient is not None
            row.grad = gradient[user].clone()
            own[user].step()
            with torch.no_grad():
                users[user] = row
    found = learner.scorer()
    assert np.abs(found.users - users.detach().numpy()).max() < 1e-6
    assert np.abs(found.items - items.detach().numpy()).max() < 1e-6
    assert np.abs(found.items - before["items.parameter"]).max() > RATE


def test_p_gcn(split: Split) -> None:
    """Every client with its own graph: what it receives from others is detached."""
    learner = PGcn(split, CONFIG.changed(model="p-gcn"), 20, Machine.with_threads(1))
    sampler = Sampler(split.train, CONFIG, users_a_round=20)
    before = learner.state()
    v, w = leaf(before["items.parameter"]), leaf(before["item_users.parameter"])
    adam = torch.optim.Adam([v, w], RATE)
    edges = torch.zeros(split.n_users, split.n_items, dtype=torch.float64)
    edges[split.train.users, split.train.items] = 1
    of_users, of_items = edges.sum(1).clamp(min=1), edges.sum(0).clamp(min=1)
    spread = edges / (of_users[:, None] * of_items).sqrt()
    for step in range(min(STEPS, learner.steps_per_epoch)):
        learner.step(0, step, RATE)
        built = (edges / of_users.sqrt()[:, None]) @ w
        users, items = [built], [v]
        for _ in range(CONFIG.layers):
            users, items = [*users, spread @ items[-1]], [*items, spread.T @ users[-1]]
        own_users = users[0] + users[1] + sum(one.detach() for one in users[2:])
        own_items = items[0] + sum(one.detach() for one in items[1:])
        factor = 1 / (CONFIG.layers + 1)
        adam.zero_grad()
        loss_of(
            own_users * factor, own_items * factor, samples(sampler, step), (built, v)
        ).backward()
        adam.step()
    after = learner.state()
    assert np.abs(after["items.parameter"] - v.detach().numpy()).max() < 1e-6
    assert np.abs(after["item_users.parameter"] - w.detach().numpy()).max() < 1e-6


def spread_over(edges: torch.Tensor) -> torch.Tensor:
    """D^-½ A D^-½; a node without edges has none to divide."""
    of_users, of_items = edges.sum(1).clamp(min=1), edges.sum(0).clamp(min=1)
    return edges / (of_users[:, None] * of_items).sqrt()


def test_fedgrec(split: Split) -> None:
    """Latent vectors are renewed every third round, one order from the one below, and have no
    gradient; who is not in a round keeps its vector."""
    options = FedGRecOptions(users_a_round=20, rounds_between=3)
    learner = FedGRec(split, CONFIG, options, Machine.with_threads(1))
    sampler = Sampler(split.train, CONFIG, users_a_round=20)
    before = learner.state()
    users, items = leaf(before["users.parameter"]), leaf(before["items.parameter"])
    own = [torch.optim.Adam([leaf(row)], RATE) for row in before["users.parameter"]]
    adam = torch.optim.Adam([items], RATE)
    edges = torch.zeros(split.n_users, split.n_items, dtype=torch.float64)
    edges[split.train.users, split.train.items] = 1
    spread, factor = spread_over(edges), 1 / (CONFIG.layers + 1)
    latent_users, latent_items = [], []
    for _ in range(CONFIG.layers):
        below = [users.detach(), *latent_users], [items.detach(), *latent_items]
        latent_users = [spread @ one for one in below[1][: CONFIG.layers]]
        latent_items = [spread.T @ one for one in below[0][: CONFIG.layers]]
    steps = learner.steps_per_epoch
    for count in range(8):
        losses = learner.step(count // steps, count % steps, RATE)
        if count and count % 3 == 0:
            below = [users.detach(), *latent_users], [items.detach(), *latent_items]
            latent_users = [spread @ one for one in below[1][: CONFIG.layers]]
            latent_items = [spread.T @ one for one in below[0][: CONFIG.layers]]
        drawn = samples(sampler, count % steps, count // steps)
        users.grad = items.grad = None
        loss = loss_of(
            factor * (users + sum(latent_users)),
            factor * (items + sum(latent_items)),
            drawn,
            (users, items),
        )
        loss.backward()
        assert losses.total / losses.samples == pytest.approx(loss.item(), abs=1e-6)
        adam.step()
        for user in torch.unique(drawn[0]).tolist():
            row = own[user].param_groups[0]["params"][0]
            assert users.grad is not None
            row.grad = users.grad[user].clone()
            own[user].step()
            with torch.no_grad():
                users[user] = row
    found = learner.scorer()
    expected = factor * (users + sum(latent_users)), factor * (items + sum(latent_items))
    assert np.abs(found.users - expected[0].detach().numpy()).max() < 1e-6
    assert np.abs(found.items - expected[1].detach().numpy()).max() < 1e-6


def test_semidfegl(split: Split) -> None:
    """LightGCN on a graph with an item for each group; the groups are those of the state."""
    options = SemiDfeglOptions(users_a_round=20, groups=3, predicted=4, epochs_between=2)
    learner = SemiDfegl(split, CONFIG, options, Machine.with_threads(1))
    sampler = Sampler(split.train, CONFIG, users_a_round=20)
    before, n = learner.state(), split.n_items
    users, items = leaf(before["users.parameter"]), leaf(before["items.parameter"])
    adam = torch.optim.Adam([users, items], RATE)
    factor, steps, seen = 1 / (CONFIG.layers + 1), learner.steps_per_epoch, set()
    for count in range(3 * steps):
        epoch, step = divmod(count, steps)
        learner.step(epoch, step, RATE)
        group, predicted = (learner.state()[name] for name in ("group", "predicted"))
        assert set(group.tolist()) == {0, 1, 2}
        seen.add(group.tobytes())
        edges = torch.zeros(split.n_users, 3 * n, dtype=torch.float64)
        edges[split.train.users, split.train.items + n * group[split.train.users]] = 1
        for user in range(split.n_users):
            edges[user, predicted[group[user]] + n * group[user]] = 1
        spread, tiled = spread_over(edges), items.repeat(3, 1)
        of_users, of_items = [users], [tiled]
        for _ in range(CONFIG.layers):
            of_users, of_items = (
                [*of_users, spread @ of_items[-1]],
                [*of_items, spread.T @ of_users[-1]],
            )
        u, i, j = samples(sampler, step, epoch)
        offset = n * torch.from_numpy(group)[u]
        adam.zero_grad()
        loss_of(
            factor * sum(of_users), factor * sum(of_items), (u, i + offset, j + offset),
            (users, tiled),
        ).backward()  # fmt: skip
        adam.step()
    after = learner.state()
    assert len(seen) > 1
    assert np.abs(after["users.parameter"] - users.detach().numpy()).max() < 1e-6
    assert np.abs(after["items.parameter"] - items.detach().numpy()).max() < 1e-6
