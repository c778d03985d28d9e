from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.data import load
from lpgcn.plan import (
    ImpossibleLimitError,
    Plan,
    PlanError,
    PlanOptions,
    TokenGraph,
    cost,
    cover,
    loads,
    make_plan,
    planner,
)
from lpgcn.plan import partition as partition_module
from lpgcn.ragged import Ragged


def round_robin(graph: TokenGraph, weights, n_parts: int, seed: int):
    """A partitioner without Mt-KaHyPar, and without sense: what is left is repair and search."""
    return (np.arange(graph.n_tokens) + seed) % n_parts


@pytest.fixture(scope="module")
def quick_partition():
    """`make_plan` without starting processes: what surrounds Mt-KaHyPar, on many graphs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_module, "mtkahypar", round_robin)
        yield


@st.composite
def options(draw: st.DrawFn, graph: TokenGraph) -> PlanOptions:
    clients = st.integers(0, graph.n_clients - 1)
    return PlanOptions(
        planner=draw(st.sampled_from(["cover", "greedy", "partition"])),
        max_load=draw(st.sampled_from(["auto", None, *range(graph.n_clients + 1)])),
        max_items_per_client=draw(st.none() | st.integers(1, graph.n_tokens)),
        never_convolve=draw(st.frozensets(clients, max_size=graph.n_clients // 2)),
        convolution_clients=draw(st.none() | st.integers(1, graph.n_clients)),
    )


def attempted(graph: TokenGraph, wanted: PlanOptions, seed: int) -> Plan | PlanError:
    try:
        return make_plan(graph, wanted, seed)
    except PlanError as failure:
        return failure


@settings(max_examples=300)
@given(graph=..., seed=st.integers(0, 2**40), data=st.data())
@pytest.mark.usefixtures("quick_partition")
def test_every_token_has_an_owner_within_the_limits_or_an_error_names_one(
    neighbours, graph: TokenGraph, seed: int, data: st.DataObject
) -> None:
    wanted = data.draw(options(graph))
    plan = attempted(graph, wanted, seed)
    if isinstance(plan, ImpossibleLimitError):
        assert 0 <= plan.token < graph.n_tokens
        assert str(plan.token) in str(plan)
        return
    if isinstance(plan, PlanError):
        assert "room for" in str(plan)
        return
    assert plan.owner.shape == (graph.n_tokens,)
    owners = set(plan.owner.tolist())
    assert owners <= set(range(graph.n_clients)) - wanted.never_convolve
    assert len(owners) <= (wanted.convolution_clients or graph.n_clients)
    counts = np.bincount(plan.owner)
    assert counts.max() <= (wanted.max_items_per_client or graph.n_tokens)
    heaviest = max(len(found) for found in neighbours(graph, plan).values())
    if wanted.max_load == "auto":
        paper = cover(graph, seed, never_convolve=wanted.never_convolve)
        assert heaviest <= loads(graph, paper).max()
    elif wanted.max_load is not None:
        assert heaviest <= wanted.max_load
    again = make_plan(graph, wanted, seed)
    assert plan.owner.tolist() == again.owner.tolist()


@settings(max_examples=200)
@given(graph=..., seed=st.integers(0, 2**40), data=st.data())
@pytest.mark.usefixtures("quick_partition")
def test_no_planner_is_worse_than_cover_at_equal_limits(
    graph: TokenGraph, seed: int, data: st.DataObject
) -> None:
    wanted = replace(data.draw(options(graph)), planner="cover")
    paper = attempted(graph, wanted, seed)
    if isinstance(paper, PlanError):
        return
    for name in ("greedy", "partition"):
        plan = make_plan(graph, replace(wanted, planner=name), seed)
        assert loads(graph, plan).sum() <= loads(graph, paper).sum()


@given(graph=..., seed=st.integers(0, 2**40))
def test_cover_without_limits_is_the_papers_plan(graph: TokenGraph, seed: int) -> None:
    for max_load in ("auto", None):
        plan = make_plan(graph, PlanOptions(planner="cover", max_load=max_load), seed)
        assert plan.owner.tolist() == cover(graph, seed).owner.tolist()


@given(graph=..., seed=st.integers(0, 2**40))
def test_owners_of_greedy_list_their_items(graph: TokenGraph, seed: int) -> None:
    plan = make_plan(graph, PlanOptions(planner="greedy"), seed)
    for token, owner in enumerate(plan.owner.tolist()):
        assert owner in graph.by_token[token] or not graph.degrees[token]


def test_an_item_with_more_clients_than_the_limit_is_named() -> None:
    everybody_lists_token_2 = np.array([0, 2, 1, 2, 2, 2])
    graph = TokenGraph(Ragged(np.array([0, 2, 4, 5, 6]), everybody_lists_token_2), 3)
    with pytest.raises(ImpossibleLimitError, match="token 2 is listed by 4 clients") as failure:
        make_plan(graph, PlanOptions(planner="greedy", max_load=2), 0)
    assert failure.value.token == 2
    assert loads(graph, make_plan(graph, PlanOptions(planner="greedy", max_load=3), 0)).max() == 3


def test_without_mtkahypar_auto_is_greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "installed", lambda: False)
    graph = TokenGraph(Ragged(np.array([0, 2, 3]), np.array([0, 1, 1])), 2)
    assert make_plan(graph, PlanOptions(planner="auto"), 0).planner in {"greedy", "cover"}
    with pytest.raises(PlanError, match=r"lpgcn\[plan\]"):
        make_plan(graph, PlanOptions(planner="partition"), 0)


def test_no_tokens_no_owners() -> None:
    graph = TokenGraph(Ragged.from_lengths([0, 0], np.zeros(0, np.int64)), 0)
    assert make_plan(graph, PlanOptions(), 0).owner.size == 0


def test_options_below_their_least_value_are_refused() -> None:
    with pytest.raises(PlanError, match="max_items_per_client is 0"):
        PlanOptions(max_items_per_client=0)


def test_progress_is_told_in_order() -> None:
    graph = TokenGraph(Ragged(np.array([0, 2, 3]), np.array([0, 1, 1])), 2)
    heard: list[float] = []
    make_plan(graph, PlanOptions(planner="greedy"), 0, lambda stage, share: heard.append(share))
    assert len(heard) > 1
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "planner_name", "ratio"),
    [
        ("gowalla", "greedy", 0.68),
        ("yelp2018", "greedy", 0.64),
        ("gowalla", "partition", 0.39),
        ("yelp2018", "partition", 0.45),
    ],
)
def test_traffic_on_real_data(real_data, name: str, planner_name, ratio: float) -> None:
    train = load(name, real_data).train
    graph = TokenGraph.from_pairs(
        train.users, train.items, n_clients=train.n_users, n_tokens=train.n_items
    )

    def figures(plan: Plan):
        return cost(graph, plan, layers=1)

    paper = figures(cover(graph, 0))
    found = figures(make_plan(graph, PlanOptions(planner=planner_name), 0))
    assert found.load_max <= paper.load_max
    assert found.neighbours <= ratio * paper.neighbours
