"""What the paper's own formulation would send: one gradient for every item and layer.

Counted in vectors of d numbers, as Algorithms 4 to 9 name them, for one step in which the clients
of a batch take part in the loss; without the tags, headers and framing that our ledger includes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lpgcn.config import Config
from lpgcn.model.batches import Batch
from lpgcn.protocol.routes import Routes


@dataclass(frozen=True)
class PaperTraffic:
    """Vectors that all clients together upload and download in one step."""

    up: int
    down: int

    def bytes(self, config: Config) -> tuple[int, int]:
        vector = config.dim * config.number_bytes
        return self.up * vector, self.down * vector


def paper_traffic(routes: Routes, config: Config, batch: Batch) -> PaperTraffic:
    """Sends and receipts of ordinary items, neighbours and negatives, by the algorithms' lines.

    `entries` are the listed items that another client owns, virtual ones included: the paper sends
    for these too, since the server must not know which are virtual (Algorithm 7, lines 11 and 16).
    """
    layers, items = config.layers, routes.n_items
    entries = len(routes.entry_client)
    neighbours = len(routes.neighbours.values)
    negatives = len(np.unique(batch.users * items + batch.negatives)) * (layers + 1)
    aggregated = len(np.unique(batch.negatives)) * (layers + 1)
    up = items * (1 + layers)  # Algorithm 1, line 4, and Algorithm 4, line 9.
    up += routes.n_clients * layers  # Algorithm 4, line 4.
    up += entries + negatives  # Algorithm 9, lines 8 and 9.
    up += layers * (entries + neighbours)  # Algorithm 6, lines 7 and 12.
    down = entries * (1 + layers)  # Algorithm 1, line 6, and Algorithm 4, line 11.
    down += layers * neighbours  # Algorithm 4, line 6.
    down += negatives + items + aggregated  # Algorithm 9, lines 1, 11 and 12.
    down += layers * (items + routes.n_clients)  # Algorithm 6, lines 14 and 15.
    if config.model == "lightgcn+":
        listed = len(routes.listed.values)
        up += listed  # Algorithm 7, line 11.
        down += listed  # Algorithm 7, line 16.
    return PaperTraffic(up, down)
