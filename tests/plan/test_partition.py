from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.plan import PlanOptions, TokenGraph, cost, loads, make_plan
from lpgcn.plan.options import PartitionerError
from lpgcn.plan.partition import installed, shares
from lpgcn.ragged import Ragged

needs_mtkahypar = pytest.mark.skipif(not installed(), reason="Mt-KaHyPar is not installed")


@given(graph=..., data=st.data())
def test_shares_add_up_to_the_touches_of_each_part(graph: TokenGraph, data: st.DataObject) -> None:
    places = st.integers(0, 3)
    drawn = data.draw(st.lists(places, min_size=graph.n_tokens, max_size=graph.n_tokens))
    part_of = np.array(drawn)
    touches = [
        len({int(u) for i in np.flatnonzero(part_of == part) for u in graph.by_token[i]})
        for part in range(4)
    ]
    found = np.bincount(part_of, weights=shares(graph, part_of), minlength=4)
    assert found / 16 == pytest.approx(touches, abs=graph.n_tokens / 32)


@pytest.fixture(scope="module")
def communities() -> TokenGraph:
    """Twelve groups of 40 clients; a client lists six of its group's ten tokens."""
    generator = np.random.default_rng(0)
    rows = [10 * (u // 40) + np.sort(generator.permutation(10)[:6]) for u in range(480)]
    return TokenGraph(Ragged.from_arrays(rows), 120)


@needs_mtkahypar
def test_communities_are_found(communities: TokenGraph) -> None:
    plan = make_plan(communities, PlanOptions(planner="partition", max_load=40), 5)
    assert plan.planner == "partition"
    found = cost(communities, plan, layers=1)
    assert found.convolution_clients == 12
    assert found.neighbours <= 480
    group_owners = plan.owner.reshape(12, 10)
    assert (group_owners == group_owners[:, :1]).all()


@needs_mtkahypar
def test_the_plan_depends_on_the_seed_alone(communities: TokenGraph) -> None:
    def owners(seed: int) -> list[int]:
        wanted = PlanOptions(planner="partition", max_load=100)
        return make_plan(communities, wanted, seed).owner.tolist()

    assert owners(1) == owners(1)
    assert owners(1) != owners(2)


@needs_mtkahypar
def test_clients_with_one_token_each_are_no_hyperedges() -> None:
    graph = TokenGraph(Ragged(np.arange(61), np.arange(60) % 7), 7)
    plan = make_plan(graph, PlanOptions(planner="partition", max_load=20), 0)
    assert loads(graph, plan).max() <= 20


@needs_mtkahypar
def test_where_the_partitioner_fails_auto_is_greedy(
    communities: TokenGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise PartitionerError("no memory")

    monkeypatch.setattr("lpgcn.plan.planner.partition", fails)
    assert make_plan(communities, PlanOptions(), 0).planner in {"greedy", "cover"}
    with pytest.raises(PartitionerError):
        make_plan(communities, PlanOptions(planner="partition"), 0)


@needs_mtkahypar
def test_without_a_load_limit_the_number_of_parts_is_what_was_asked(
    communities: TokenGraph, capfd: pytest.CaptureFixture[str]
) -> None:
    wanted = PlanOptions(planner="partition", max_load=None, convolution_clients=6)
    plan = make_plan(communities, wanted, 0)
    assert plan.convolution_clients.size == 6
    assert capfd.readouterr() == ("", "")


@needs_mtkahypar
def test_without_any_limit_one_client_owns_everything(communities: TokenGraph) -> None:
    plan = make_plan(communities, PlanOptions(planner="partition", max_load=None), 0)
    assert plan.convolution_clients.size == 1
