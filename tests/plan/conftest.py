"""Small token graphs, and the plan's rules written once more with sets."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import strategies as st

from lpgcn.plan import Plan, TokenGraph

Neighbours = Callable[[TokenGraph, Plan], dict[int, set[int]]]


@st.composite
def token_graphs(draw: st.DrawFn, most_clients: int = 9, most_tokens: int = 12) -> TokenGraph:
    """Any bipartite graph: clients without tokens and tokens without clients included."""
    n_clients = draw(st.integers(1, most_clients))
    n_tokens = draw(st.integers(1, most_tokens))
    pairs = draw(st.sets(st.integers(0, n_clients * n_tokens - 1)))
    keys = np.array(sorted(pairs), dtype=np.int64)
    return TokenGraph.from_pairs(
        keys // n_tokens, keys % n_tokens, n_clients=n_clients, n_tokens=n_tokens
    )


st.register_type_strategy(TokenGraph, token_graphs())


@pytest.fixture(scope="session")
def neighbours() -> Neighbours:
    """N_ũ of every owner, straight from the paper's words."""

    def of(graph: TokenGraph, plan: Plan) -> dict[int, set[int]]:
        found: dict[int, set[int]] = {}
        for token, owner in enumerate(plan.owner.tolist()):
            listing = {u for u in range(graph.n_clients) if token in graph.listed[u]}
            found.setdefault(owner, set()).update(listing - {owner})
        return found

    return of
