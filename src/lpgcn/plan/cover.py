"""The paper's planner: a smallest cover, then a random owner per item (Algorithm 3, lines 2–5)."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import numpy as np

from lpgcn.array_types import Bits, Int64
from lpgcn.plan.graph import Plan, TokenGraph
from lpgcn.plan.options import Draw, ImpossibleLimitError, PlanError
from lpgcn.random import Purpose, integers, permutation


def cover(
    graph: TokenGraph,
    seed: int,
    *,
    never_convolve: AbstractSet[int] = frozenset(),
    n_candidates: int | None = None,
) -> Plan:
    """The smallest cover found, then for every token a random candidate among those that list it.

    A token that no allowed client lists goes to a random candidate. `n_candidates` widens the cover
    by random clients, which is how the paper varies k in RQ5.
    """
    candidates = candidate_clients(
        graph, seed, never_convolve=never_convolve, n_candidates=n_candidates
    )
    return Plan(random_owners(graph, candidates, seed), "cover")


def allowed_clients(graph: TokenGraph, never_convolve: AbstractSet[int]) -> Int64:
    """Clients that may own tokens, rising; at least one when there are tokens to own."""
    banned = np.fromiter(never_convolve, np.int64, len(never_convolve))
    allowed = np.setdiff1d(np.arange(graph.n_clients), banned)
    if graph.n_tokens and not allowed.size:
        raise PlanError(
            f"all {graph.n_clients} clients are in never_convolve, and {graph.n_tokens} tokens "
            "need an owner; take at least one client off that list"
        )
    return allowed


def candidate_clients(
    graph: TokenGraph,
    seed: int,
    *,
    never_convolve: AbstractSet[int] = frozenset(),
    n_candidates: int | None = None,
) -> Bits:
    """Ū as a mask over clients: the smallest cover found, widened to `n_candidates` (line 2)."""
    allowed = allowed_clients(graph, never_convolve)
    chosen, uncovered = smallest_cover(graph, seed, allowed)
    if not chosen.any():
        chosen[allowed[:1]] = True
    if n_candidates is None:
        return chosen
    size = int(chosen.sum())
    if n_candidates < size:
        raise ImpossibleLimitError(
            f"convolution_clients is {n_candidates}, but the smallest cover found has {size} "
            f"clients and token {uncovered[min(n_candidates, len(uncovered) - 1)]} would have no "
            f"owner that lists it; allow {size}, or use the planner 'partition', whose owners "
            "need not list their items",
            uncovered[min(n_candidates, len(uncovered) - 1)],
        )
    order = permutation(seed, Purpose.PLAN, graph.n_clients, Draw.EXTRA_CANDIDATES)
    extra = order[np.isin(order, allowed) & ~chosen[order]]
    chosen[extra[: n_candidates - size]] = True
    return chosen


def smallest_cover(graph: TokenGraph, seed: int, allowed: Int64) -> tuple[Bits, list[int]]:
    """Greedy set cover: again and again the client that lists the most tokens not yet covered.

    Ties fall to the client that is last in a random order. Clients whose tokens later choices cover
    as well are dropped at the end. Returns the cover as a mask over clients, and for each choice,
    in order, a token that only then became covered.
    """
    n = graph.n_clients
    order = permutation(seed, Purpose.PLAN, n, Draw.CLIENT_ORDER)
    chosen = np.zeros(n, dtype=np.bool_)
    # The gain is the high part of a score and the tie-break its low part: one argmax finds both.
    score = np.full(n, -1, dtype=np.int64)
    score[allowed] = graph.listed.lengths[allowed] * n + np.argsort(order)[allowed]
    covered = np.zeros(graph.n_tokens, dtype=np.bool_)
    first_tokens: list[int] = []
    while allowed.size and score[best := int(score.argmax())] >= n:
        new = graph.listed[best]
        new = new[~covered[new]]
        chosen[best] = covered[new] = True
        first_tokens.append(int(new[0]))
        for token in new:
            score[graph.by_token[token]] -= n
    return _without_redundant(graph, chosen), first_tokens


def _without_redundant(graph: TokenGraph, chosen: Bits) -> Bits:
    """The cover without clients that it does not need, those with the fewest tokens tried first."""
    times = np.bincount(graph.tokens[chosen[graph.clients]], minlength=graph.n_tokens)
    needed = chosen.copy()
    for client in np.argsort(graph.listed.lengths, kind="stable"):
        if needed[client] and (times[graph.listed[client]] > 1).all():
            needed[client] = False
            times[graph.listed[client]] -= 1
    return needed


def random_owners(graph: TokenGraph, candidates: Bits, seed: int) -> Int64:
    """ũ_i drawn from Ū ∩ (U_i ∪ U'_i) for every token, or from Ū if that is empty (line 4)."""
    choices = graph.by_token.where(candidates[graph.by_token.values])
    tokens = np.arange(graph.n_tokens)
    picked = integers(seed, Purpose.PLAN, tokens, np.maximum(choices.lengths, 1), Draw.OWNER)
    everyone = np.flatnonzero(candidates)
    owner = everyone[
        integers(seed, Purpose.PLAN, tokens, max(everyone.size, 1), Draw.UNLISTED_OWNER)
    ]
    listed = choices.lengths > 0
    owner[listed] = choices.values[(choices.offsets[:-1] + picked)[listed]]
    return owner
