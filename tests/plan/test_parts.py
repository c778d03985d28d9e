from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.plan import Plan, TokenGraph, loads
from lpgcn.plan.parts import Limits, Parts


@given(graph=..., data=st.data())
def test_moves_change_loads_as_foretold(graph: TokenGraph, data: st.DataObject) -> None:
    """Part u belongs to client u, and a token may go to clients that list it, else to any."""
    listing = [graph.by_token[i].tolist() for i in range(graph.n_tokens)]
    choices = [clients or list(range(graph.n_clients)) for clients in listing]
    start = np.array([data.draw(st.sampled_from(clients)) for clients in choices])
    parts = Parts(graph, start, graph.n_clients, graph.degrees > 0)
    no_limit = Limits(graph.n_clients, graph.n_tokens)
    for token in data.draw(st.lists(st.integers(0, graph.n_tokens - 1), max_size=20)):
        here, before = parts.part_of[token], loads(graph, Plan(parts.part_of, ""))
        target = data.draw(st.sampled_from(choices[token]))
        touched = parts.touched(token)
        relief = parts.relief(token, touched)
        best = parts.best_target(token, touched, np.array([target]), no_limit)
        if target == here:
            assert best is None
            continue
        parts.move(token, target, touched)
        after = loads(graph, Plan(parts.part_of, ""))
        assert parts.loads().tolist() == after.tolist()
        assert best == (target, after[target] - before[target])
        assert relief == before[here] - after[here]
        assert (
            parts.sizes.tolist() == np.bincount(parts.part_of, minlength=graph.n_clients).tolist()
        )


@given(graph=..., data=st.data())
def test_best_target_is_the_cheapest_that_the_limits_allow(
    graph: TokenGraph, data: st.DataObject
) -> None:
    n_parts = data.draw(st.integers(1, 5))
    places = st.integers(0, n_parts - 1)
    start = data.draw(st.lists(places, min_size=graph.n_tokens, max_size=graph.n_tokens))
    limits = Limits(data.draw(st.integers(0, 9)), data.draw(st.integers(1, 6)))
    parts = Parts(graph, np.array(start), n_parts, np.zeros(graph.n_tokens, np.bool_))
    token = data.draw(st.integers(0, graph.n_tokens - 1))

    def touching(tokens: list[int]) -> set[int]:
        return {int(u) for i in tokens for u in graph.by_token[i]}

    rises = {}
    for part in set(range(n_parts)) - {start[token]}:
        tokens = [i for i in range(graph.n_tokens) if start[i] == part]
        load = len(touching([*tokens, token]))
        if load <= limits.max_load and len(tokens) < limits.max_items:
            rises[part] = load - len(touching(tokens))
    best = parts.best_target(token, parts.touched(token), slice(None), limits)
    if best is None:
        assert not rises
    else:
        assert rises[best[0]] == best[1] == min(rises.values())
