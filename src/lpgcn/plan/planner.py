"""Making a plan: the chosen planner, within the limits, never worse than the paper's own plan."""

from __future__ import annotations

from typing import Final

import numpy as np

from lpgcn.array_types import Bits, Int64
from lpgcn.config import PlannerName
from lpgcn.plan.cost import loads
from lpgcn.plan.cover import allowed_clients, candidate_clients, cover, random_owners
from lpgcn.plan.graph import Plan, TokenGraph
from lpgcn.plan.greedy import fitted, greedy
from lpgcn.plan.options import (
    Draw,
    ImpossibleLimitError,
    PartitionerError,
    PlanError,
    PlanOptions,
    Progress,
)
from lpgcn.plan.partition import balanced, installed, partition
from lpgcn.plan.parts import Limits
from lpgcn.random import Purpose, permutation

_ORDER: Final[dict[PlannerName, tuple[PlannerName, ...]]] = {
    "cover": ("cover",),
    "greedy": ("greedy", "cover"),
    "partition": ("partition", "cover", "greedy"),
}
"""The planner asked for, and those whose plan is taken instead where it is better."""


def make_plan(
    graph: TokenGraph, options: PlanOptions, seed: int, progress: Progress | None = None
) -> Plan:
    """An owner for every token: the plan of least traffic that was found within the limits.

    The plan's `planner` says where it is from, which may be a simpler planner than was asked for.
    It depends on the graph, the options and the seed only.
    """
    report = progress or (lambda _stage, _share: None)
    limits = _limits(graph, options, seed)
    _check_possible(graph, options, limits)
    asked = _resolved(options.planner)
    if not graph.n_tokens:
        return Plan(np.zeros(0, np.int64), asked)
    found: list[tuple[int, Plan]] = []
    failures: list[PlanError] = []
    for planner in _ORDER[asked]:
        if planner == "greedy" and found and found[0][1].planner == asked:
            break
        try:
            plan = Plan(_owners(graph, planner, options, limits, seed, report), planner)
            load = loads(graph, plan)
            _check_kept(graph, plan, load, limits, options)
        except (ImpossibleLimitError, PartitionerError) as failure:
            if isinstance(failure, PartitionerError) and options.planner != "auto":
                raise
            failures.append(failure)
        else:
            found.append((int(load.sum()), plan))
            found.sort(key=lambda pair: pair[0])
    if not found:
        raise failures[0]
    report("planned", 1.0)
    return found[0][1]


def _resolved(planner: PlannerName) -> PlannerName:
    if planner == "partition" and not installed():
        raise PlanError(
            "the planner 'partition' needs Mt-KaHyPar, which is not installed; "
            "run `pip install 'lpgcn[plan]'`, or use the planner 'greedy'"
        )
    if planner == "auto":
        return "partition" if installed() else "greedy"
    return planner


def _owners(
    graph: TokenGraph,
    planner: PlannerName,
    options: PlanOptions,
    limits: Limits,
    seed: int,
    report: Progress,
) -> Int64:
    if planner == "partition":
        return _partitioned(graph, options, limits, seed, report)
    report("choosing owners among the clients that list an item", 0.0)
    chosen = candidate_clients(
        graph,
        seed,
        never_convolve=options.never_convolve,
        n_candidates=options.convolution_clients,
    )
    owner = _among(graph, chosen, planner, limits, seed)
    plan = Plan(owner, planner)
    if options.convolution_clients is None and not _keeps(plan, loads(graph, plan), limits):
        # The limits may need more owners than the smallest cover has.
        chosen[allowed_clients(graph, options.never_convolve)] = True
        owner = _among(graph, chosen, planner, limits, seed)
    return owner


def _among(
    graph: TokenGraph, chosen: Bits, planner: PlannerName, limits: Limits, seed: int
) -> Int64:
    search = greedy if planner == "greedy" else fitted
    return search(graph, random_owners(graph, chosen, seed), chosen, limits)


def _partitioned(
    graph: TokenGraph, options: PlanOptions, limits: Limits, seed: int, report: Progress
) -> Int64:
    """Parts given to allowed clients at random."""
    allowed = allowed_clients(graph, options.never_convolve)
    most_parts = min(allowed.size, options.convolution_clients or allowed.size)
    if options.convolution_clients is not None and options.max_load is None:
        part_of = balanced(graph, most_parts, limits.max_items, seed)
    else:
        part_of = partition(
            graph,
            limits,
            most_parts=most_parts,
            seed=seed,
            progress=report,
        )
    owners = allowed[permutation(seed, Purpose.PLAN, allowed.size, Draw.PART_OWNER)]
    used, part = np.unique(part_of, return_inverse=True)
    return owners[: used.size][part]


def _limits(graph: TokenGraph, options: PlanOptions, seed: int) -> Limits:
    max_items = options.max_items_per_client or graph.n_tokens
    if options.max_load is None:
        return Limits(graph.n_clients, max_items)
    if options.max_load != "auto":
        return Limits(options.max_load, max_items)
    paper = cover(graph, seed, never_convolve=options.never_convolve)
    return Limits(int(loads(graph, paper).max(initial=0)), max_items)


def _check_possible(graph: TokenGraph, options: PlanOptions, limits: Limits) -> None:
    """Refuse limits that no plan can keep: a token's own clients, or more tokens than room."""
    allowed = allowed_clients(graph, options.never_convolve)
    room = limits.max_items * min(allowed.size, options.convolution_clients or allowed.size)
    if room < graph.n_tokens:
        raise PlanError(
            f"{graph.n_tokens} tokens need an owner, but the limits leave room for {room}: "
            f"max_items_per_client is {limits.max_items}; raise it, or allow more clients"
        )
    may_own = np.zeros(graph.n_clients, np.bool_)
    may_own[allowed] = True
    listed_by_owner = np.bincount(graph.tokens[may_own[graph.clients]], minlength=graph.n_tokens)
    least = graph.degrees - (listed_by_owner > 0)
    if least.max(initial=0) > limits.max_load:
        token = int(least.argmax())
        raise ImpossibleLimitError(
            f"{_named(options, limits)}, but token {token} is listed by "
            f"{graph.degrees[token]} clients, so that its owner must receive {least[token]} "
            f"vectors a layer; set max_load to {least[token]} or more",
            token,
        )


def _keeps(plan: Plan, load: Int64, limits: Limits) -> bool:
    items = np.bincount(plan.owner, minlength=load.size)
    return bool((load <= limits.max_load).all() and (items <= limits.max_items).all())


def _named(options: PlanOptions, limits: Limits) -> str:
    """The limits that were set, in words."""
    named = []
    if options.max_load is not None:
        why = " (auto: the heaviest load of the paper's own plan)"
        named.append(f"max_load is {limits.max_load}{why if options.max_load == 'auto' else ''}")
    if options.max_items_per_client is not None:
        named.append(f"max_items_per_client is {limits.max_items}")
    if options.convolution_clients is not None:
        named.append(f"convolution_clients is {options.convolution_clients}")
    return ", ".join(named)


def _check_kept(
    graph: TokenGraph, plan: Plan, load: Int64, limits: Limits, options: PlanOptions
) -> None:
    if _keeps(plan, load, limits):
        return
    items = np.bincount(plan.owner, minlength=graph.n_clients)
    worst = int(np.argmax(np.maximum(load - limits.max_load, items - limits.max_items)))
    tokens = np.flatnonzero(plan.owner == worst)
    token = int(tokens[graph.degrees[tokens].argmax()])
    raise ImpossibleLimitError(
        f"no place was found for token {token}, which {graph.degrees[token]} clients list: the "
        f"best plan of '{plan.planner}' gives its owner {items[worst]} tokens and a load of "
        f"{load[worst]}, but {_named(options, limits)}; allow more (max_load none is no limit)",
        token,
    )
