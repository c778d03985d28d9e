"""What a run sent, in the numbers that people compare."""

from __future__ import annotations

import msgspec

from lpgcn.config import Config
from lpgcn.model.batches import AnyBatch
from lpgcn.plan import Plan
from lpgcn.plan.cost import LoadHistogram, load_histogram
from lpgcn.protocol.ledger import Ledger, Traffic
from lpgcn.protocol.paper_traffic import paper_traffic
from lpgcn.protocol.server.script import Script
from lpgcn.protocol.server.topology import Topology
from lpgcn.runtime.planning import plan_cost

_TRAINING = ("forward", "loss", "backward")


class PlanFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Of a federation in which some clients compute items for others; bytes are means over all."""

    planner: str
    convolution_clients: int
    cost_per_client: float
    """The paper's C, in bytes per client and step."""
    max_load: int
    """The neighbours of the convolution-client that has most."""
    paper_up_per_step: float
    """What the paper's formulation would upload: one gradient per item and layer."""
    paper_down_per_step: float
    loads: LoadHistogram | None = None
    """Of the convolution-clients; None in what an older version wrote."""


class TrafficSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of serialised messages; means over all clients, whether they take part or not."""

    steps: int
    """Of the whole run, as its ledger is."""
    rounds_per_step: int
    """How often the server asks its clients something and waits for them."""
    up_per_step: float
    """Upload per client and training step."""
    down_per_step: float
    ledger: list[Traffic]
    plan: PlanFigures | None = None

    @property
    def share_of_paper(self) -> float | None:
        """A step's bytes, up and down, by those of the paper's formulation under the same plan;
        None without a plan or a step."""
        if self.plan is None or not self.steps:
            return None
        paper = self.plan.paper_up_per_step + self.plan.paper_down_per_step
        return (self.up_per_step + self.down_per_step) / max(paper, 1)


def summarise(
    config: Config, plan: Plan, topology: Topology, ledger: Ledger, steps: int, batch: AnyBatch
) -> TrafficSummary:
    """`batch` is a typical one; the paper's samples are counted on it."""
    graph = topology.token_graph()
    planned = plan_cost(graph, plan, config)
    paper_up, paper_down = paper_traffic(topology, config, batch).bytes(config)
    per_step = max(1, steps) * topology.n_clients
    return TrafficSummary(
        steps=steps,
        rounds_per_step=sum(1 for _ in Script(topology, config).step(batch)),
        up_per_step=ledger.bytes("up", *_TRAINING) / per_step,
        down_per_step=ledger.bytes("down", *_TRAINING) / per_step,
        ledger=ledger.lines(),
        plan=PlanFigures(
            planner=plan.planner,
            convolution_clients=planned.convolution_clients,
            cost_per_client=planned.bytes_per_client,
            max_load=planned.load_max,
            paper_up_per_step=paper_up / topology.n_clients,
            paper_down_per_step=paper_down / topology.n_clients,
            loads=load_histogram(graph, plan),
        ),
    )
