from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.data import load
from lpgcn.plan import ImpossibleLimitError, PlanError, TokenGraph, cost, cover
from lpgcn.plan.cover import candidate_clients
from lpgcn.ragged import Ragged


def smallest_cover_size(graph: TokenGraph) -> int:
    """By trying every set of clients."""
    rows = [set(graph.listed[u].tolist()) for u in range(graph.n_clients)]
    everything = set().union(*rows)
    for size in range(graph.n_clients + 1):
        for group in combinations(rows, size):
            if set().union(*group) == everything:
                return size
    raise AssertionError


@given(graph=..., seed=st.integers(0, 2**40))
def test_cover_covers_needs_everybody_and_is_small(graph: TokenGraph, seed: int) -> None:
    chosen = candidate_clients(graph, seed)
    rows = [set(graph.listed[u].tolist()) for u in np.flatnonzero(chosen)]
    assert set().union(*rows) == set(graph.tokens.tolist())
    if graph.tokens.size:
        for u in range(len(rows)):
            assert set().union(*rows[:u], *rows[u + 1 :]) != set().union(*rows)
        harmonic = sum(1 / n for n in range(1, int(graph.listed.lengths.max()) + 1))
        assert len(rows) <= harmonic * smallest_cover_size(graph)


@given(graph=..., seed=st.integers(0, 2**40), data=st.data())
def test_owners_list_their_items_and_are_candidates(
    graph: TokenGraph, seed: int, data: st.DataObject
) -> None:
    banned = data.draw(st.frozensets(st.integers(0, graph.n_clients - 1)))
    if len(banned) == graph.n_clients:
        with pytest.raises(PlanError, match="never_convolve"):
            cover(graph, seed, never_convolve=banned)
        return
    chosen = candidate_clients(graph, seed, never_convolve=banned)
    plan = cover(graph, seed, never_convolve=banned)
    for token, owner in enumerate(plan.owner.tolist()):
        assert owner not in banned
        assert chosen[owner]
        assert owner in graph.by_token[token] or set(graph.by_token[token].tolist()) <= banned


def test_owners_are_drawn_evenly() -> None:
    # Client 0 must be in the cover for token 0 and client 1 for token 1; both list all the others.
    lists = [np.array([0, *range(2, 4002)]), np.array([1, *range(2, 4002)])]
    graph = TokenGraph(Ragged.from_arrays(lists), 4002)
    owner = cover(graph, 3).owner[2:]
    assert abs(owner.mean() - 0.5) < 4 * 0.5 / np.sqrt(owner.size)
    assert cover(graph, 4).owner.tolist() != cover(graph, 3).owner.tolist()


@given(graph=..., seed=st.integers(0, 2**40))
def test_candidates_widen_to_everybody(graph: TokenGraph, seed: int) -> None:
    smallest = candidate_clients(graph, seed)
    for size in range(1, graph.n_clients + 1):
        if size < smallest.sum():
            with pytest.raises(ImpossibleLimitError) as failure:
                candidate_clients(graph, seed, n_candidates=size)
            assert graph.degrees[failure.value.token] > 0
            continue
        wider = candidate_clients(graph, seed, n_candidates=size)
        assert wider.sum() == size
        assert (wider | ~smallest).all()


@pytest.mark.parametrize(
    ("name", "layers", "share", "kilobytes"),
    [("gowalla", 4, (7.5, 7.6), (19.3, 19.8)), ("yelp2018", 3, (7.2, 7.3), (21.6, 22.0))],
)
def test_the_papers_figures(real_data, name, layers, share, kilobytes) -> None:
    train = load(name, real_data).train
    graph = TokenGraph.from_pairs(
        train.users, train.items, n_clients=train.n_users, n_tokens=train.n_items
    )
    found = cost(graph, cover(graph, 2024), layers=layers)
    assert share[0] <= round(100 * found.share, 1) <= share[1]
    assert kilobytes[0] <= found.kilobytes <= kilobytes[1]
