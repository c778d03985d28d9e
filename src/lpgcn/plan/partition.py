"""Owners that need not list their items: a plan is a partition of a hypergraph.

Vertices are tokens, hyperedges are clients, parts are owners, and Σ_u (number of parts that u's
tokens span) is the traffic: the connectivity objective (KM1) of hypergraph partitioning, for which
Mt-KaHyPar is the state of the art. It balances parts by a sum of vertex weights, but a load is no
such sum: a client counts once in a part, however many of its tokens are there. So a first partition
tells what each token adds to its part's load, each client's 1 shared out among its tokens there;
with these weights the sum *is* the load, and a second partition balances it. What is still over the
limit is repaired, and single moves lower the traffic further.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from math import ceil, log
from pathlib import Path
from typing import Final

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.plan.graph import TokenGraph
from lpgcn.plan.local_search import anywhere, improve, repair
from lpgcn.plan.options import Draw, PartitionerError, Progress
from lpgcn.plan.parts import Limits, Parts
from lpgcn.random import Purpose, integers, permutation

_PROCESS: Final = Path(__file__).with_name("mtkahypar_process.py")
_IMBALANCE: Final = 0.03
_SCOUT_LISTINGS: Final = 150_000
"""The first partition sees about so many listings; it only has to tell the weights and the size."""
_FILLINGS: Final = (0.96, 0.9)
"""Mean load as a share of the limit, for each number of parts that is tried."""
_EXPONENT: Final = 0.45
"""Traffic grows about as n_parts^0.45 before a partition has told the exponent of this graph."""


def installed() -> bool:
    """Whether Mt-KaHyPar is there, without loading it."""
    return find_spec("mtkahypar") is not None


def partition(
    graph: TokenGraph,
    limits: Limits,
    *,
    most_parts: int,
    seed: int,
    progress: Progress,
) -> Int64:
    """The part of every token, in at most `most_parts` parts; in limits if the search found how.

    Several numbers of parts are tried at once, each in a process of its own.
    """
    clients = int(np.count_nonzero(graph.listed.lengths))
    if limits.max_load >= clients and limits.max_items >= graph.n_tokens:
        return np.zeros(graph.n_tokens, np.int64)

    def n_parts(exponent: float, filling: float) -> int:
        return min(most_parts, _parts_for(graph, clients, limits, exponent, filling))

    progress("partitioning a sample of the clients", 0.0)
    first = mtkahypar(_sample(graph, seed), graph.degrees, n_parts(_EXPONENT, _FILLINGS[0]), seed)
    scout = refined(graph, first, limits, most_parts)
    weights = shares(graph, scout.part_of)
    exponent = _exponent(scout, clients)
    sizes = sorted({n_parts(exponent, filling) for filling in _FILLINGS})
    progress(f"partitioning into {' and '.join(map(str, sizes))} parts", 0.15)
    with ThreadPoolExecutor(len(sizes)) as pool:
        found = list(pool.map(lambda size: mtkahypar(graph, weights, size, seed), sizes))
    progress("moving tokens", 0.8)
    plans = [scout, *(refined(graph, part_of, limits, most_parts) for part_of in found)]
    return min(plans, key=lambda parts: (parts.over(limits).size, parts.neighbours())).part_of


def balanced(graph: TokenGraph, n_parts: int, max_items: int, seed: int) -> Int64:
    """The part of every token, in `n_parts` parts of about the same load.

    Where nothing limits the load, single moves would end with all tokens in one part; here none may
    make a part heavier than the heaviest of the partition.
    """
    first = mtkahypar(_sample(graph, seed), graph.degrees, n_parts, seed)
    second = mtkahypar(graph, shares(graph, first), n_parts, seed)
    heaviest = Parts(graph, second, n_parts, np.zeros(graph.n_tokens, np.bool_)).loads().max()
    return refined(graph, second, Limits(int(heaviest), max_items), n_parts).part_of


def refined(graph: TokenGraph, part_of: Int64, limits: Limits, most_parts: int) -> Parts:
    """The parts within their limits, with empty parts added as far as it takes, then improved."""
    strangers = np.zeros(graph.n_tokens, np.bool_)
    candidates = anywhere(graph.n_tokens)
    n_parts = int(part_of.max(initial=0)) + 1
    while True:
        n_parts = min(most_parts, n_parts + n_parts // 4 + 4)
        parts = Parts(graph, part_of, n_parts, strangers)
        fits = repair(parts, limits, candidates)
        part_of = parts.part_of
        if fits:
            improve(parts, limits, candidates)
        if fits or n_parts == most_parts:
            return parts


def shares(graph: TokenGraph, part_of: Int64) -> Int64:
    """What each token adds to its part's load: Σ over its clients of 1 / (their tokens there).

    In 16ths of a client, because Mt-KaHyPar's weights are whole numbers.
    """
    keys = graph.clients * (part_of.max(initial=0) + 1) + part_of[graph.tokens]
    pairs, counts = np.unique(keys, return_counts=True)
    each = 1.0 / counts[np.searchsorted(pairs, keys)]
    return np.rint(16 * np.bincount(graph.tokens, each, graph.n_tokens)).astype(np.int64)


def _parts_for(
    graph: TokenGraph, clients: int, limits: Limits, exponent: float, filling: float
) -> int:
    """The number of parts k whose mean load, clients · k^exponent / k, fills the limit so far."""
    by_load = (clients / (filling * max(limits.max_load, 1))) ** (1 / (1 - exponent))
    by_items = graph.n_tokens / (filling * limits.max_items)
    return int(max(1, min(graph.n_tokens, ceil(max(by_load, by_items)))))


def _exponent(parts: Parts, clients: int) -> float:
    """The e of neighbours = clients · k^e, which holds for k = 1 with any e."""
    k = int(np.count_nonzero(parts.sizes))
    if k < 2 or not clients:
        return _EXPONENT
    return min(0.9, max(0.05, log(max(parts.neighbours(), 1) / clients) / log(k)))


def _sample(graph: TokenGraph, seed: int) -> TokenGraph:
    """The graph of some of the clients, drawn at random, with all tokens."""
    order = permutation(seed, Purpose.PLAN, graph.n_clients, Draw.PARTITIONER)
    kept = order[np.cumsum(graph.listed.lengths[order]) <= _SCOUT_LISTINGS]
    return TokenGraph(graph.listed.only(np.sort(kept)), graph.n_tokens)


def mtkahypar(graph: TokenGraph, weights: Int64, n_parts: int, seed: int) -> Int64:
    """One run of Mt-KaHyPar in a process of its own. Clients with one token are never cut."""
    if n_parts == 1:
        return np.zeros(graph.n_tokens, np.int64)
    draw = int(integers(seed, Purpose.PLAN, [0], 2**31 - 1, Draw.PARTITIONER)[0])
    edges = graph.listed.only(np.flatnonzero(graph.listed.lengths > 1))
    with tempfile.TemporaryDirectory(prefix="lpgcn-plan-") as folder:
        np.savez(
            Path(folder) / "problem.npz",
            pins=edges.values,
            offsets=edges.offsets,
            weights=np.maximum(weights, 1),
            n_parts=n_parts,
            imbalance=_IMBALANCE,
            seed=draw,
        )
        command = [sys.executable, "-P", str(_PROCESS), folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PartitionerError(
                f"Mt-KaHyPar failed on {graph.n_tokens} tokens and {n_parts} parts (status "
                f"{done.returncode}): {done.stderr.strip()[-500:]}; try the planner 'greedy'"
            )
        result: Int64 = np.load(Path(folder) / "parts.npy").astype(np.int64)
    return result
