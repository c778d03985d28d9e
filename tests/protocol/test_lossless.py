"""The federation gives the bits of the centralised model: parameters, loss and metrics."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import METRICS
from lpgcn.model.sampling import places
from lpgcn.plan import Plan, TokenGraph
from lpgcn.plan.partition import installed
from lpgcn.runtime.engines.centralized import Centralized, Samples
from lpgcn.runtime.planning import planner_for

Pairs = list[tuple[int, int]]
Make = Callable[..., Any]
SUITES = ("sealed", "paper")
MODELS = ("lightgcn", "lightgcn+")
TINY = Config(dim=3, layers=2, lr=0.05, reg=0.05, batch_size=7, at=(2,), virtual_items="2", seed=5)
TRAIN: Pairs = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 3), (3, 2), (3, 3), (3, 4)]
HELD_OUT: Pairs = [(0, 3), (1, 1), (1, 4), (3, 0)]
both_models = pytest.mark.parametrize("model", MODELS)
both_suites = pytest.mark.parametrize("suite", SUITES)


def assert_same_bits(federation: Any, steps: int = 3) -> None:
    """After some steps no parameter, Adam state, loss or metric differs at all."""
    config = federation.config
    reference = Centralized(federation.split, config)
    federation.train(steps)
    assert federation.server.batches.steps == reference.steps_per_epoch
    for done in range(steps):
        epoch, step = divmod(done, reference.steps_per_epoch)
        reference.step(epoch, step, config.lr)
    expected, found = reference.state(), federation.state()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), f"{name}: {(found[name] - value).abs().max()}"
    assert federation.server.take_loss() == reference.take_loss()
    for part in ("valid", "test"):
        if len(federation.split.parts[part]):
            measured = reference.measure(part)
            totals, count = federation.server.measure(part)
            names = [f"{metric}@{k}" for k in config.cutoffs for metric in METRICS]
            assert count == measured.n_users
            assert {n: t / count for n, t in zip(names, totals, strict=True)} == measured.values


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Pairs, int, int, Pairs]:
    """Every user has an item; some items have one user or none; some pairs are held out."""
    n_users, n_items = draw(st.integers(1, 6)), draw(st.integers(4, 10))
    pairs = st.tuples(st.integers(0, n_users - 1), st.integers(0, n_items - 3))
    train = {(user, user % 2) for user in range(n_users)} | draw(st.sets(pairs, max_size=14))
    everything = {(user, item) for user in range(n_users) for item in range(n_items)}
    heldout = draw(st.sets(st.sampled_from(sorted(everything - train)), max_size=5))
    return sorted(train), n_users, n_items, sorted(heldout)


@settings(max_examples=20, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    graph=graphs(),
    model=st.sampled_from(MODELS),
    suite=st.sampled_from(SUITES),
    layers=st.integers(1, 3),
    dim=st.sampled_from([1, 3, 16]),
    dtype=st.sampled_from(["float32", "float64"]),
    virtual_items=st.sampled_from(["0", "1", "5", "1.0x", "3.0x"]),
    virtual_draw=st.sampled_from(["uniform", "popularity"]),
    batch_size=st.integers(1, 20),
    mask=st.sampled_from(["train", "train+valid"]),
    seed=st.integers(0, 2**40),
    owners=st.none() | st.randoms(use_true_random=False),
)
def test_any_federation_gives_the_bits_of_the_centralised_model(
    federation_of: Make,
    split_of: Make,
    graph: tuple[Pairs, int, int, Pairs],
    owners: random.Random | None,
    **settings: Any,
) -> None:
    """With the paper's plan, or with any: what holds for arbitrary owners holds for planners."""
    split = split_of(*graph)

    def any_owners(graph: TokenGraph) -> Plan:
        assert owners is not None
        drawn = [owners.randrange(graph.n_clients) for _ in range(graph.n_tokens)]
        return Plan(np.array(drawn, dtype=np.int64), "any")

    planner = None if owners is None else any_owners
    assert_same_bits(federation_of(split, TINY.changed(**settings), planner))


@pytest.mark.parametrize("planner", ["greedy", "partition"])
def test_our_planners_lose_nothing(federation_of: Make, split_of: Make, planner: str) -> None:
    if planner == "partition" and not installed():
        pytest.skip("Mt-KaHyPar is not installed")
    train = [(user, (5 * user + 3 * way) % 30) for user in range(20) for way in range(6)]
    split = split_of(sorted(set(train)), 20, 30, [(0, 29)])
    config = TINY.changed(planner=planner, max_load="12", virtual_items="1")
    federation = federation_of(split, config, planner_for(split, config))
    assert_same_bits(federation)
    assert federation.server.plan.planner == planner


@both_models
@both_suites
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_items_of_one_user_and_items_that_nobody_lists(
    federation_of: Make, split_of: Make, model: str, suite: str, dtype: str
) -> None:
    """Items 1 and 4 have one user; with α = 0 nobody lists 5 to 8, but some are negatives."""
    split = split_of(TRAIN, 4, 9, HELD_OUT)
    config = TINY.changed(model=model, suite=suite, dtype=dtype, virtual_items="0")
    federation = federation_of(split, config)
    assert_same_bits(federation, steps=4)
    listed = np.unique(federation.server.routes.listed.values)
    assert len(listed) == 5


def owned_by(split: Split, config: Config, owner_of: Callable[[Samples, int], int]) -> Any:
    """A planner that knows items by their ids, as no server could."""
    samples = Samples(split.train, config)

    def planner(graph: TokenGraph) -> Plan:
        owners = [owner_of(samples, int(item)) for item in samples.catalogue]
        return Plan(np.array(owners, dtype=np.int64), "test")

    return planner


def lists(samples: Samples, user: int, item: int) -> str:
    if item in samples.real.of(user):
        return "real"
    return "virtual" if item in samples.virtual.of(user) else "not listed"


@both_models
@both_suites
@pytest.mark.parametrize("relation", ["virtual", "not listed"])
def test_owners_whose_items_are_all_virtual_to_them_or_not_listed(
    federation_of: Make, split_of: Make, model: str, suite: str, relation: str
) -> None:
    split = split_of(TRAIN, 4, 9, HELD_OUT)
    config = TINY.changed(model=model, suite=suite, virtual_items="3")

    def owner_of(samples: Samples, item: int) -> int:
        """The last client to which the item is so; an item without one goes to client 0."""
        return max((u for u in range(4) if lists(samples, u, item) == relation), default=0)

    federation = federation_of(split, config, owned_by(split, config, owner_of))
    assert_same_bits(federation, steps=4)
    samples, owner = Samples(split.train, config), federation.server.plan.owner
    place = places(samples.catalogue)
    found = [{lists(samples, u, i) for i in range(9) if owner[place[i]] == u} for u in range(4)]
    assert sum(kinds == {relation} for kinds in found) >= 2


@both_models
@both_suites
def test_one_client_owns_everything(
    federation_of: Make, split_of: Make, model: str, suite: str
) -> None:
    split = split_of(TRAIN, 4, 9, HELD_OUT)
    config = TINY.changed(model=model, suite=suite)
    assert_same_bits(federation_of(split, config, owned_by(split, config, lambda _, __: 2)))


@both_models
@both_suites
@pytest.mark.parametrize("virtual_items", ["0", "6", "4.0x"])
def test_more_virtual_items_than_items(
    federation_of: Make, split_of: Make, model: str, suite: str, virtual_items: str
) -> None:
    """α exceeds every |I_u| and is cut so that one item stays unlisted."""
    split = split_of(TRAIN, 4, 6, HELD_OUT)
    config = TINY.changed(model=model, suite=suite, virtual_items=virtual_items)
    federation = federation_of(split, config)
    assert_same_bits(federation)
    expected = {2, 3} if virtual_items == "0" else {5}
    assert set(federation.server.routes.listed.lengths.tolist()) == expected


@both_models
@both_suites
@pytest.mark.parametrize("layers", [1, 3])
def test_one_client_in_all(
    federation_of: Make, split_of: Make, model: str, suite: str, layers: int
) -> None:
    split = split_of([(0, 1), (0, 4)], 1, 6, [(0, 2)])
    assert_same_bits(federation_of(split, TINY.changed(model=model, suite=suite, layers=layers)))
