"""What settings cost: bytes by the ledger of a simulation, accuracy by training; each made once.

Lossless means that a federation ends in the vectors of a centralised run, so models are trained
centralised, in seconds. Suite and plan change nothing about a model, suite and model nothing about
a plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation.scorers.vectors import Vectors
from lpgcn.plan import Plan, TokenGraph
from lpgcn.protocol.accounting import Accounting
from lpgcn.protocol.server.server import Planner
from lpgcn.protocol.server.topology import Topology
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.planning import plan_options, planner_for
from lpgcn.runtime.traffic import summarise

_COUNTED: Final = 3
"""Steps whose bytes are counted."""


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """Final vectors, and how good they are."""

    vectors: Vectors
    recall: float
    """Recall@20 on the validation part."""


class Made:
    """Plans and models of one data set that settings have in common."""

    def __init__(self, split: Split) -> None:
        self._split = split
        self._plans: dict[tuple[object, ...], Plan] = {}
        self._models: dict[tuple[Config, int], TrainedModel] = {}

    def planner(self, config: Config) -> Planner:
        make, options = planner_for(self._split, config), plan_options(config, self._split)

        def plan(graph: TokenGraph) -> Plan:
            listed = graph.listed
            key = (listed.offsets.tobytes(), listed.values.tobytes(), repr(options), config.seed)
            if key not in self._plans:
                self._plans[key] = make(graph)
            return self._plans[key]

        return plan

    def model(self, config: Config, epochs: int) -> TrainedModel:
        """After so many epochs."""
        config = config.changed(mode="centralized", suite="sealed", planner="auto")
        if (config, epochs) not in self._models:
            engine = Centralized(self._split, config, Machine.with_threads(None))
            for epoch in range(epochs):
                for step in range(engine.steps_per_epoch):
                    engine.step(epoch, step, config.lr)
            recall = engine.measure("valid").values["recall@20"]
            self._models[config, epochs] = TrainedModel(engine.scorer(), recall)
        return self._models[config, epochs]

    def bytes_per_step(self, config: Config) -> float:
        """Of a mean client, up and down, in the first steps of a federation that is not run."""
        sampler = Sampler(self._split.train, config)
        plan = self.planner(config)(TokenGraph(sampler.listed_places, self._split.n_items))
        topology = Topology(sampler.listed_places, plan.owner, seed=config.seed)
        accounting = Accounting(topology, config)
        batches = [sampler.batches.draw(0, step) for step in range(_COUNTED)]
        for batch in batches:
            accounting.step(batch)
        found = summarise(config, plan, topology, accounting.ledger, _COUNTED, batches[0])
        return found.up_per_step + found.down_per_step
