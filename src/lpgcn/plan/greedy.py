"""Owners that list their items, chosen for little traffic: the paper's cover, improved by search.

The paper draws an item's owner at random among the cover's clients that list it. Here the item goes
to the one of them with the longest list, where it meets the most items that the same people like;
what is over a limit moves out again at the least traffic; then single moves lower the traffic until
none does (see `lpgcn.plan.local_search`).
"""

from __future__ import annotations

import numpy as np

from lpgcn.array_types import Bits, Int64
from lpgcn.plan.graph import TokenGraph
from lpgcn.plan.local_search import improve, repair
from lpgcn.plan.parts import Limits, Parts
from lpgcn.ragged import Ragged


def fitted(graph: TokenGraph, owner: Int64, chosen: Bits, limits: Limits) -> Int64:
    """The owners after as few moves as it takes to keep the limits, or to come near them."""
    parts, candidates = _parts_of_clients(graph, owner, chosen)
    repair(parts, limits, candidates)
    return np.flatnonzero(chosen)[parts.part_of]


def greedy(graph: TokenGraph, owner: Int64, chosen: Bits, limits: Limits) -> Int64:
    """Owners among the chosen clients, every token's among those that list it if there are any.

    `owner` is where tokens start that no chosen client lists.
    """
    parts, candidates = _parts_of_clients(graph, _longest_list(graph, owner, chosen), chosen)
    if repair(parts, limits, candidates):
        improve(parts, limits, candidates)
    return np.flatnonzero(chosen)[parts.part_of]


def _longest_list(graph: TokenGraph, owner: Int64, chosen: Bits) -> Int64:
    """For every token the chosen client with the longest list that it is on; else its `owner`."""
    choices = graph.by_token.where(chosen[graph.by_token.values])
    listed = choices.lengths > 0
    longest_first = np.argsort(-graph.listed.lengths, kind="stable")
    rank = np.argsort(longest_first)[choices.values]
    result = owner.copy()
    if rank.size:
        result[listed] = longest_first[np.minimum.reduceat(rank, choices.offsets[:-1][listed])]
    return result


def _parts_of_clients(graph: TokenGraph, owner: Int64, chosen: Bits) -> tuple[Parts, Ragged]:
    """One part per chosen client; a token may go to those that list it, anywhere if none does."""
    choices = graph.by_token.where(chosen[graph.by_token.values])
    part_of_client = np.cumsum(chosen) - 1
    n_parts = int(np.count_nonzero(chosen))
    parts = Parts(graph, part_of_client[owner], n_parts, choices.lengths > 0)
    return parts, Ragged(choices.offsets, part_of_client[choices.values])
