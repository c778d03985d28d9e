"""All parties at once, without ciphers, and the exact traffic that the federation would have."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from lpgcn.checkpoints import Checkpoints
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import Evaluation
from lpgcn.model.batches import AnyBatch
from lpgcn.plan import TokenGraph
from lpgcn.protocol.accounting import Accounting
from lpgcn.protocol.ledger import Ledger, Traffic
from lpgcn.protocol.server.server import RANK_PHASES, Planner
from lpgcn.protocol.server.topology import Topology
from lpgcn.runtime.engines.centralized import Centralized, Sampler
from lpgcn.runtime.engines.engine import Part, Tables
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.traffic import TrafficSummary, summarise

_LEDGER: Final = "ledger"
_STEPS: Final = "counted"
_CONTACTS: Final = "contacts."


class Simulated(Centralized):
    """The centralised engine, and beside it the lists, the plan and the ledger of a federation."""

    def __init__(
        self,
        split: Split,
        config: Config,
        planner: Planner,
        machine: Machine,
        *,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        super().__init__(split, config, machine, checkpoints=checkpoints)
        listed = self.sampler.listed_places
        self.plan = planner(TokenGraph(listed, split.n_items))
        # Handles are only numbers here: nobody is there to whom they could tell anything.
        self.topology = Topology(listed, self.plan.owner, seed=config.seed)
        self._accounting = Accounting(self.topology, config)
        self._steps = 0

    @property
    def ledger(self) -> Ledger:
        return self._accounting.ledger

    def traffic(self) -> TrafficSummary:
        example = self.sampler.batches.draw(0, 0)
        return summarise(self._config, self.plan, self.topology, self.ledger, self._steps, example)

    def _train(self, batch: AnyBatch, learning_rate: float) -> None:
        super()._train(batch, learning_rate)
        self._accounting.step(batch)
        self._steps += 1

    def take_loss(self) -> float:
        self._accounting.report()
        return super().take_loss()

    def measure(self, part: Part) -> Evaluation:
        self._accounting.measure(RANK_PHASES[part])
        return super().measure(part)

    def keep(self) -> None:
        self._accounting.keep()
        super().keep()

    def go_back(self) -> None:
        self._accounting.go_back()
        super().go_back()

    def checkpoint(self, number: int, epoch: int, step: int) -> None:
        self._accounting.checkpoint()
        super().checkpoint(number, epoch, step)

    def _beside(self) -> Tables:
        lines = msgspec.json.encode(self.ledger.lines())
        contacts = self._accounting.contacts.items()
        return {
            _LEDGER: np.frombuffer(lines, dtype=np.uint8),
            _STEPS: np.array([self._steps]),
            **{f"{_CONTACTS}{name}": values for name, values in contacts},
        }

    def _resume_beside(self, found: Tables) -> None:
        if not found:
            self._accounting, self._steps = Accounting(self.topology, self._config), 0
            return
        lines = msgspec.json.decode(found[_LEDGER].tobytes(), type=list[Traffic])
        names = [name for name in found if name.startswith(_CONTACTS)]
        contacts = {name.removeprefix(_CONTACTS): found[name] for name in names}
        self._accounting.resume(lines, contacts)
        self._steps = int(found[_STEPS][0])


def token_graph(split: Split, config: Config) -> TokenGraph:
    """What the server of this federation would see: who listed what, real or virtual."""
    return TokenGraph(Sampler(split.train, config).listed_places, split.n_items)
