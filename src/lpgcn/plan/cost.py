"""What a plan costs: the paper's C and R (RQ5), and the load on each convolution-client.

N_ũ, the neighbours of a convolution-client ũ, are the distinct clients other than ũ that list one
of its items. |N_ũ| is the number of vectors that ũ receives in a layer: its load. It counts virtual
listings too, because the server cannot tell them apart and ships them all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.plan.graph import Plan, TokenGraph

_BARS: Final = 20

KILOBYTE = 1000
"""The paper's unit: with 1000 bytes its formula gives its own 19.8 KB (Gowalla) and 22.0 KB
(Yelp2018) to 1 %, with 1024 it is 3 % short on both."""


@dataclass(frozen=True)
class PlanCost:
    """The figures of one plan. Loads and items are over convolution-clients only."""

    planner: str
    clients: int
    tokens: int
    convolution_clients: int
    """k = |Ũ|."""
    neighbours: int
    """Σ_ũ |N_ũ|: vectors that convolution-clients receive in one layer."""
    bytes_per_client: float
    """C = d·L·B·Σ_ũ |N_ũ| / |U| (RQ5)."""
    utilization: float
    """R = Σ_ũ r_ũ / |Ũ| (RQ5)."""
    load_mean: float
    load_95: float
    load_max: int
    items_mean: float
    items_max: int

    @property
    def share(self) -> float:
        """k as a share of all clients."""
        return self.convolution_clients / max(self.clients, 1)

    @property
    def kilobytes(self) -> float:
        return self.bytes_per_client / KILOBYTE


def loads(graph: TokenGraph, plan: Plan) -> Int64:
    """|N_u| of every client u as an owner; 0 for those that own nothing."""
    owners = plan.owner[graph.tokens]
    strangers = owners != graph.clients
    keys = owners[strangers] * graph.n_clients + graph.clients[strangers]
    pairs, _ = np.unique(keys, return_counts=True)  # Sorts, which is faster: see TokenGraph.
    return np.bincount(pairs // max(graph.n_clients, 1), minlength=graph.n_clients)


@dataclass(frozen=True)
class LoadHistogram:
    """How many convolution-clients have which load |N_ũ|."""

    edges: list[int]
    """Rising: a bar reaches from one to below the next."""
    clients: list[int]
    """One number for each bar; who receives nothing is counted with 1."""


def load_histogram(graph: TokenGraph, plan: Plan) -> LoadHistogram:
    """Bars of equal ratio, because loads differ by orders of magnitude."""
    load = np.maximum(loads(graph, plan)[plan.convolution_clients], 1)
    wanted = np.geomspace(load.min(), load.max() + 1, _BARS + 1)
    edges = np.unique(wanted.round().astype(np.int64))
    return LoadHistogram(edges.tolist(), np.histogram(load, edges)[0].tolist())


def cost(
    graph: TokenGraph,
    plan: Plan,
    *,
    layers: int,
    dimension: int = 64,
    bytes_per_element: int = 4,
) -> PlanCost:
    """C, R, k and loads of a plan.

    r_ũ = (Σ_{i ∈ Ĩ_ũ} |U_i \\ ũ| − |N_ũ|) / |N_ũ|: how often ũ uses a received vector again. It is
    taken as 0 where nothing is received.
    """
    owners = plan.owner[graph.tokens]
    uses = np.bincount(owners[owners != graph.clients], minlength=graph.n_clients)
    chosen = plan.convolution_clients
    load = loads(graph, plan)[chosen]
    items = np.bincount(plan.owner, minlength=graph.n_clients)[chosen]
    reuse = (uses[chosen] - load) / np.maximum(load, 1)
    total = int(load.sum())
    return PlanCost(
        planner=plan.planner,
        clients=graph.n_clients,
        tokens=graph.n_tokens,
        convolution_clients=chosen.size,
        neighbours=total,
        bytes_per_client=dimension * layers * bytes_per_element * total / max(graph.n_clients, 1),
        utilization=float(reuse.mean()) if chosen.size else 0.0,
        load_mean=float(load.mean()) if chosen.size else 0.0,
        load_95=float(np.percentile(load, 95)) if chosen.size else 0.0,
        load_max=int(load.max(initial=0)),
        items_mean=float(items.mean()) if chosen.size else 0.0,
        items_max=int(items.max(initial=0)),
    )
