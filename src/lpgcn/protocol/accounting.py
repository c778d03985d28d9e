"""The ledger of a federation that was not run: the same rounds, measured instead of sent.

A test holds the result against a real federation's, to the byte.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lpgcn.config import Config
from lpgcn.evaluation import METRICS
from lpgcn.model.batches import Batch
from lpgcn.protocol.ledger import Ledger
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.server.routes import Routes
from lpgcn.protocol.server.script import Script, mask_peers, opening
from lpgcn.protocol.server.server import key_client
from lpgcn.protocol.wire.fields import Round


class Accounting:
    """Adds to a ledger what a server and its clients would have sent."""

    def __init__(self, routes: Routes, config: Config) -> None:
        self._routes, self._script = routes, Script(routes, config)
        self._numbers = len(METRICS) * len(config.cutoffs) + 1
        self.ledger = Ledger(routes.n_clients)
        u_c = key_client(config.seed, routes.n_clients)
        self._add(opening(routes.n_clients, routes.n_items, u_c, routes.listed.lengths))
        self.ledger.roles(routes.is_owner)
        circle = np.arange(routes.n_clients)
        self._add(self._script.verification(mask_peers(routes.n_clients, circle)))
        self._add([self._script.sums(Phase.COUNT)])

    def _add(self, rounds: Iterable[Round]) -> None:
        for one in rounds:
            self.ledger.add(one.phase, "down", one.called, one.sizes_down)
            self.ledger.add(one.phase, "up", one.called, one.sizes_up)

    def step(self, batch: Batch) -> None:
        self._add(self._script.step(batch))

    def measure(self, phase: Phase) -> None:
        """A validation: everybody gets all final item vectors."""
        everybody = np.arange(self._routes.n_clients)
        with self.ledger.measuring():
            self._add(self._script.prediction())
            self._add([self._script.catalogue(phase, everybody, self._numbers)])

    def report(self) -> None:
        """A masked number of every client."""
        self._add([self._script.sums(Phase.SUM_LOSS)])
