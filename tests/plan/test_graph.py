from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from lpgcn.plan import TokenGraph, TokenGraphError
from lpgcn.ragged import Ragged


@given(...)
def test_rows_and_columns_hold_the_same_listings(graph: TokenGraph) -> None:
    by_client = {(u, int(i)) for u in range(graph.n_clients) for i in graph.listed[u]}
    by_token = {(int(u), i) for i in range(graph.n_tokens) for u in graph.by_token[i]}
    assert by_client == by_token
    assert sorted(by_client) == list(zip(graph.clients, graph.tokens, strict=True))
    assert graph.degrees.tolist() == [graph.by_token[i].size for i in range(graph.n_tokens)]
    assert all((np.diff(graph.by_token[i]) > 0).all() for i in range(graph.n_tokens))


def test_pairs_in_any_order_and_twice_make_one_graph() -> None:
    clients, tokens = np.array([1, 0, 1, 1]), np.array([2, 1, 0, 2])
    graph = TokenGraph.from_pairs(clients, tokens, n_clients=3, n_tokens=4)
    assert [graph.listed[client].tolist() for client in range(3)] == [[1], [0, 2], []]


@pytest.mark.parametrize(
    ("offsets", "tokens", "complaint"),
    [
        ([0, 3], [0, 1], "number of listings"),
        ([0, 2, 1, 3], [0, 1, 2], "never fall"),
        ([0, 2], [0, 5], r"in \[0, 3\)"),
        ([0, 2], [1, 0], "rise strictly"),
        ([0, 2], [1, 1], "rise strictly"),
    ],
)
def test_what_is_no_graph_is_refused(offsets: list[int], tokens: list[int], complaint: str) -> None:
    with pytest.raises(TokenGraphError, match=complaint):
        TokenGraph(Ragged(np.array(offsets), np.array(tokens)), 3)
