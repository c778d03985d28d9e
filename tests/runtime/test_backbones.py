"""Every backbone with dense maps against its paper's formula on the whole graph, by autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import leaky_relu, logsigmoid

from lpgcn.config import Config
from lpgcn.data import Ids, Interactions, Split
from lpgcn.data.features import sized
from lpgcn.model.backbones import backbone_of
from lpgcn.model.grid import Grid
from lpgcn.model.weights import gradient_grid
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.machine import Machine

Weights = dict[str, Tensor]
MACHINE = Machine.with_threads(1)


def split_of(pairs: set[tuple[int, int]], n_users: int, n_items: int) -> Split:
    users, items = zip(*sorted(pairs), strict=True)
    train = Interactions.from_pairs(users, items, n_users, n_items)
    held = Interactions.from_pairs([0], [n_items - 1], n_users, n_items)
    ids = Ids(np.arange(n_users)), Ids(np.arange(n_items))
    return Split("random", train, held, held, *ids)


@st.composite
def splits(draw: st.DrawFn) -> Split:
    """Every user has an item, item 0 has all users, some items none."""
    n_users, n_items = draw(st.integers(1, 6)), draw(st.integers(4, 9))
    pairs = st.tuples(st.integers(0, n_users - 1), st.integers(1, n_items - 2))
    return split_of({(u, 0) for u in range(n_users)} | draw(st.sets(pairs)), n_users, n_items)


def adjacency(split: Split) -> Tensor:
    """A, users first."""
    n = split.n_users
    matrix = torch.zeros(n + split.n_items, n + split.n_items, dtype=torch.float64)
    matrix[split.train.users, n + split.train.items] = 1
    return matrix + matrix.T


def symmetric(matrix: Tensor) -> Tensor:
    """D^-½ A D^-½."""
    scale = matrix.sum(1).clamp(min=1).rsqrt()
    return scale[:, None] * matrix * scale


def gcn(adjacent: Tensor, start: Tensor, w: Weights, layers: int) -> Tensor:
    """Z = Â ReLU(Â X W_0) W_1."""
    renormalised = symmetric(adjacent + torch.eye(len(adjacent), dtype=torch.float64))
    for layer in range(layers):
        start = renormalised @ start @ w[f"W{layer}"]
        start = start if layer == layers - 1 else start.relu()
    return start


def sage(adjacent: Tensor, start: Tensor, w: Weights, layers: int) -> Tensor:
    """h = σ(CONCAT(h, mean of the neighbours) · W)."""
    mean = adjacent / adjacent.sum(1, keepdim=True).clamp(min=1)
    for layer in range(layers):
        both = torch.cat((w[f"own{layer}"], w[f"near{layer}"]))
        start = torch.cat((start, mean @ start), dim=1) @ both
        start = start if layer == layers - 1 else start.relu()
    return start


def lr_gccf(adjacent: Tensor, start: Tensor, w: Weights, layers: int) -> Tensor:
    """E^(l+1) = S E^(l) W_l, all of them side by side."""
    propagated = symmetric(adjacent + torch.eye(len(adjacent), dtype=torch.float64))
    found = [start]
    for layer in range(layers):
        found.append(propagated @ found[-1] @ w[f"W{layer}"])
    return torch.cat(found, dim=1)


def ngcf(adjacent: Tensor, start: Tensor, w: Weights, layers: int) -> Tensor:
    """Messages from one neighbour to another, as Eqs. 3 and 4 have them, edge by edge."""
    p, found = symmetric(adjacent), [start]
    edges = adjacent.nonzero().tolist()
    for layer in range(layers):
        e, one, two = found[-1], w[f"sum{layer}"], w[f"product{layer}"]
        received = list(e @ one)
        for u, i in edges:
            received[u] = received[u] + p[u, i] * (e[i] @ one + (e[i] * e[u]) @ two)
        found.append(leaky_relu(torch.stack(received), 0.2))
    return torch.cat(found, dim=1)


def lightgcn(adjacent: Tensor, start: Tensor, w: Weights, layers: int) -> Tensor:
    """The mean of all layers, Ê^(l+1) = D^-½ A D^-½ E^(l)."""
    found = [start]
    for _ in range(layers):
        found.append(symmetric(adjacent) @ found[-1])
    return torch.stack(found).mean(0)


FORMULAS: dict[str, Callable[..., Tensor]] = {
    "gcn": gcn, "sage": sage, "lr-gccf": lr_gccf, "ngcf": ngcf,
}  # fmt: skip
LINEAR: dict[str, Callable[..., Tensor]] = {"lightgcn": lightgcn, "lightgcn+": lightgcn}


def initial(split: Split, named: Weights) -> Tensor:
    """E^(0), users first: tables, or users that are built, and what features add."""
    users, items = named.get("users"), named["items"]
    if users is None:
        between = adjacency(split)[: split.n_users, split.n_users :]
        users = between.sum(1, keepdim=True).rsqrt() * (between @ named["item_users"])
    if split.user_features is not None:
        users = users + torch.from_numpy(split.user_features) @ named["user_map"]
    if split.item_features is not None:
        items = items + torch.from_numpy(split.item_features) @ named["item_map"]
    return torch.cat((users, items))


def gradients(split: Split, config: Config, engine: Centralized, samples: Any) -> Any:
    """Of all parameters, and the loss, by autograd."""
    named = {
        name.removesuffix(".parameter"): torch.from_numpy(value.copy()).requires_grad_()
        for name, value in engine.state().items()
        if name.endswith(".parameter")
    }
    start = initial(split, named)
    final = (FORMULAS | LINEAR)[config.model](adjacency(split), start, named, config.layers)
    users, positives, negatives = (
        torch.from_numpy(rows)
        for rows in (samples[0], *(split.n_users + one for one in samples[1:]))
    )
    margin = (final[users] * (final[positives] - final[negatives])).sum(1)
    squares = sum(start[rows].pow(2).sum() for rows in (users, positives, negatives))
    loss = (-logsigmoid(margin).sum() + config.reg / 2 * squares) / len(users)
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
    return loss.item(), dict(zip(named, found, strict=True))


@pytest.mark.parametrize("model", FORMULAS)
@settings(max_examples=12)
@given(
    split=splits(),
    layers=st.integers(1, 3),
    dim=st.sampled_from([1, 2, 9]),
    batch_size=st.integers(1, 30),
    seed=st.integers(0, 1000),
)
def test_agrees_with_autograd(
    model: str, split: Split, layers: int, dim: int, batch_size: int, seed: int
) -> None:
    """Adam's mean tells the gradients of every step: each adds a tenth of itself."""
    config = Config(
        model=model, layers=layers, dim=dim, lr=0.05, reg=0.05, batch_size=batch_size, seed=seed,
        dtype="float64", init_deviation=0.2,
    )  # fmt: skip
    compare(split, config)


@pytest.mark.parametrize("model", FORMULAS | LINEAR)
@settings(max_examples=12)
@given(
    split=splits(),
    widths=st.sampled_from([(2, 0), (0, 3), (5, 1)]),
    layers=st.integers(1, 2),
    batch_size=st.integers(1, 30),
    seed=st.integers(0, 1000),
)
def test_features_agree_with_autograd(
    model: str, split: Split, widths: tuple[int, int], layers: int, batch_size: int, seed: int
) -> None:
    """Of tables, of W where users are built, and of both maps; the regulariser is one of e^(0)."""
    draw = np.random.default_rng(seed)
    users, items = (
        draw.normal(size=(count, width)) if width else None
        for count, width in zip((split.n_users, split.n_items), widths, strict=True)
    )
    split = replace(split, user_features=users, item_features=items)
    config = Config(
        model=model, layers=layers, dim=3, lr=0.05, reg=0.05, batch_size=batch_size, seed=seed,
        dtype="float64", init_deviation=0.2,
    )  # fmt: skip
    compare(split, sized(config, split))


def compare(split: Split, config: Config) -> None:
    """Of three steps, the loss and all gradients."""
    engine = Centralized(split, config, MACHINE)
    nodes = split.n_users + split.n_items
    for epoch in range(3):
        batch = engine.sampler.batches.draw(epoch, 0)
        pairs = engine.sampler.pairs(batch)
        items = engine.sampler.item_ids[pairs.items]
        samples = (pairs.users[pairs.positive], items[pairs.positive], items[pairs.negative])
        loss, expected = gradients(split, config, engine, samples)
        before = engine.state()
        engine.step(epoch, 0, config.lr)
        after = engine.state()
        assert engine.take_loss() == pytest.approx(loss, abs=2.0**-31)
        # Every node's part is rounded, and what it is made of has gone through a few roundings.
        allowed = nodes * (gradient_grid(config).unit + 2.0**8 * Grid.backward("float64", 30).unit)
        for name, value in expected.items():
            found = (after[f"{name}.mean"] - 0.9 * before[f"{name}.mean"]) / (1 - 0.9)
            wanted = np.zeros_like(found) if value is None else value.numpy()
            assert np.abs(found - wanted).max() < allowed, name


def test_the_size_of_final_vectors_is_that_of_the_readout() -> None:
    dims = {name: backbone_of(Config(model=name, layers=2, dim=5)).final_dim for name in FORMULAS}
    assert dims == {"gcn": 5, "sage": 5, "lr-gccf": 15, "ngcf": 15}
