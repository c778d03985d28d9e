"""The ledger of a federation that was not run: the same rounds, measured instead of sent.

A test holds the result against a real federation's, to the byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.evaluation import METRICS
from lpgcn.model.batches import AnyBatch
from lpgcn.protocol.ledger import Ledger, Traffic
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.server.estates import draw_heirs
from lpgcn.protocol.server.script import Script, opening, resuming
from lpgcn.protocol.server.term import key_client
from lpgcn.protocol.server.topology import Topology
from lpgcn.protocol.wire.fields import Round


class Accounting:
    """Adds to a ledger what a server and its clients would have sent."""

    def __init__(
        self, topology: Topology, config: Config, watch: Callable[[Round], None] | None = None
    ) -> None:
        """`watch` is shown every round that is counted."""
        self._topology, self._script = topology, Script(topology, config)
        self._watch = watch
        self._heirs = draw_heirs(topology)
        self._numbers = len(METRICS) * len(config.cutoffs) + 1
        n, n_items = topology.n_clients, topology.n_items
        self.ledger = Ledger(np.zeros(n, dtype=np.bool_))
        self._add([resuming(np.zeros(n, dtype=np.int64))])
        self._add(opening(n, n_items, key_client(config.seed, n), topology.listed.lengths))
        self.ledger = Ledger(topology.is_owner, self.ledger.lines())
        self._add(self._script.verification(np.arange(n)))
        self._add([self._script.sums(Phase.COUNT)])

    def _add(self, rounds: Iterable[Round]) -> None:
        for one in rounds:
            if self._watch is not None:
                self._watch(one)
            self.ledger.add(one.phase, "down", one.called, one.sizes_down)
            self.ledger.add(one.phase, "up", one.called, one.sizes_up)

    def step(self, batch: AnyBatch) -> None:
        self._add(self._script.step(batch))

    def measure(self, phase: Phase) -> None:
        """A validation: everybody gets all final item vectors."""
        everybody = np.arange(self._topology.n_clients)
        with self.ledger.measuring():
            self._add(self._script.prediction())
            self._add([self._script.catalogue(phase, everybody, self._numbers)])

    def report(self) -> None:
        """A masked number of every client."""
        self._add([self._script.sums(Phase.SUM_LOSS)])

    def keep(self) -> None:
        self._add([self._script.everybody(Phase.KEEP)])

    def go_back(self) -> None:
        self._add([self._script.everybody(Phase.GO_BACK)])

    def checkpoint(self) -> None:
        self._add([self._script.checkpoint(self._heirs)])

    @property
    def contacts(self) -> dict[str, Int64]:
        """Who has met whom: with the ledger, all that the next round depends on."""
        return self._script.contacts.arrays()

    def resume(self, lines: Iterable[Traffic], contacts: Mapping[str, Int64]) -> None:
        """Everybody goes on from a checkpoint, at which these were the lines of the ledger."""
        self.ledger = Ledger(self._topology.is_owner, lines)
        self._script.contacts.restore(contacts)
        self._add([resuming(np.zeros(self._topology.n_clients, dtype=np.int64))])
