"""All parties at once, without ciphers, and the exact traffic that the federation would have."""

from __future__ import annotations

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import Evaluation
from lpgcn.model.batches import Batch
from lpgcn.model.sampling import Lists
from lpgcn.plan import TokenGraph
from lpgcn.protocol.accounting import Accounting
from lpgcn.protocol.ledger import Ledger
from lpgcn.protocol.routes import Routes
from lpgcn.protocol.server import Planner, key_client
from lpgcn.runtime.centralized import Centralized, Samples
from lpgcn.runtime.engine import Part
from lpgcn.runtime.traffic import TrafficSummary, summarise


class Simulated(Centralized):
    """The centralised engine, and beside it the lists, the plan and the ledger of a federation."""

    def __init__(self, split: Split, config: Config, planner: Planner) -> None:
        super().__init__(split, config)
        by_place = self.samples.listed_places
        self.plan = planner(_graph(by_place))
        self.routes = Routes([by_place.of(user) for user in range(split.n_users)], self.plan.owner)
        self._accounting = Accounting(self.routes, config, key_client(config.seed, split.n_users))
        self._accounting.initialise()
        self._steps = 0

    @property
    def ledger(self) -> Ledger:
        return self._accounting.ledger

    def traffic(self) -> TrafficSummary:
        example = self.samples.batches.draw(0, 0)
        return summarise(self._config, self.plan, self.routes, self.ledger, self._steps, example)

    def _train(self, batch: Batch, learning_rate: float) -> None:
        super()._train(batch, learning_rate)
        self._accounting.step(batch)
        self._steps += 1

    def take_loss(self) -> float:
        self._accounting.report()
        return super().take_loss()

    def measure(self, part: Part) -> Evaluation:
        self._accounting.measure()
        return super().measure(part)


def token_graph(split: Split, config: Config) -> TokenGraph:
    """What the server of this federation would see: who listed what, real or virtual."""
    return _graph(Samples(split.train, config).listed_places)


def _graph(listed: Lists) -> TokenGraph:
    return TokenGraph(listed.offsets, listed.items, listed.n_items)
