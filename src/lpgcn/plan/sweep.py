"""What happens to a plan's cost when k or the load limit changes: the data of RQ5's figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lpgcn.config import PlannerName
from lpgcn.plan.cost import PlanCost
from lpgcn.plan.cover import candidate_clients, cover
from lpgcn.plan.graph import Plan, TokenGraph
from lpgcn.plan.options import ImpossibleLimitError, PlanOptions, Progress
from lpgcn.plan.planner import make_plan

Measure = Callable[[Plan], PlanCost]
"""`cost` for a given number of layers and size of vectors."""


@dataclass(frozen=True)
class LoadPoint:
    """The cost of a plan that was asked to keep a load limit."""

    max_load: int
    cost: PlanCost


def sweep_candidates(
    graph: TokenGraph,
    seed: int,
    measure: Measure,
    *,
    never_convolve: frozenset[int] = frozenset(),
    points: int = 9,
) -> list[PlanCost]:
    """The paper's figure: `cover` with candidates from the smallest cover to everybody (RQ5)."""
    smallest = int(candidate_clients(graph, seed, never_convolve=never_convolve).sum())
    most = graph.n_clients - len(never_convolve)
    sizes = np.unique(np.geomspace(smallest, most, points).round().astype(np.int64))
    return [
        measure(cover(graph, seed, never_convolve=never_convolve, n_candidates=size))
        for size in sizes.tolist()
    ]


def sweep_loads(
    graph: TokenGraph,
    planner: PlannerName,
    max_loads: Iterable[int],
    seed: int,
    measure: Measure,
    *,
    options: PlanOptions | None = None,
    progress: Progress | None = None,
) -> list[LoadPoint]:
    """Our figure: traffic against the load limit; limits that cannot be kept are left out."""
    points = []
    for limit in max_loads:
        wanted = replace(options or PlanOptions(), planner=planner, max_load=limit)
        try:
            plan = make_plan(graph, wanted, seed, progress)
        except ImpossibleLimitError:
            continue
        points.append(LoadPoint(limit, measure(plan)))
    return points


def load_limits(graph: TokenGraph, heaviest: int, points: int = 5) -> Sequence[int]:
    """Limits worth a sweep: from the most popular token's clients to four times the `heaviest`."""
    least = int(graph.degrees.max(initial=1))
    most = max(least + 1, min(graph.n_clients, 4 * heaviest))
    limits: list[int] = np.unique(np.geomspace(least, most, points).round().astype(int)).tolist()
    return limits
