from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.plan import Plan, TokenGraph, cost, loads
from lpgcn.ragged import Ragged


@given(graph=..., data=st.data())
def test_costs_are_the_papers_formulas(neighbours, graph: TokenGraph, data: st.DataObject) -> None:
    owners = st.integers(0, graph.n_clients - 1)
    owner = data.draw(st.lists(owners, min_size=graph.n_tokens, max_size=graph.n_tokens))
    plan = Plan(np.array(owner), "drawn")
    sets = neighbours(graph, plan)
    sizes = {u: len(n) for u, n in sets.items()}

    found = cost(graph, plan, layers=3, dimension=8)

    reuse = []
    for u in sizes:
        uses = sum(len(set(graph.by_token[i]) - {u}) for i, o in enumerate(owner) if o == u)
        reuse.append((uses - sizes[u]) / sizes[u] if sizes[u] else 0.0)
    assert loads(graph, plan).tolist() == [sizes.get(u, 0) for u in range(graph.n_clients)]
    assert found.convolution_clients == len(sizes)
    assert found.neighbours == sum(sizes.values())
    assert found.load_max == max(sizes.values())
    assert found.items_max == max(owner.count(u) for u in sizes)
    assert found.bytes_per_client == pytest.approx(
        8 * 3 * 4 * sum(sizes.values()) / graph.n_clients
    )
    assert found.utilization == pytest.approx(sum(reuse) / len(sizes))


def test_the_papers_example_of_three_clients() -> None:
    # Clients 0: {0, 1}, 1: {1}, 2: {1, 2}; 0 owns item 0 and 2 owns the others (paper, Figure 7).
    graph = TokenGraph(Ragged(np.array([0, 2, 3, 5]), np.array([0, 1, 1, 1, 2])), 3)
    found = cost(graph, Plan(np.array([0, 2, 2]), "paper"), layers=1, dimension=1)
    assert (found.neighbours, found.load_max, found.convolution_clients) == (2, 2, 2)
    assert found.kilobytes == pytest.approx(4 * 2 / 3 / 1000)
