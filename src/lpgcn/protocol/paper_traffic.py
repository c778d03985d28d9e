"""What the paper's own formulation would send: one gradient for every item and layer.

Counted in vectors of d numbers, as Algorithms 4 to 9 name them, for one step in which the clients
of a batch take part in the loss; without the tags, headers and framing that our ledger includes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.model.backbones import backbone_of
from lpgcn.model.batches import AnyBatch, Batch
from lpgcn.protocol.server.topology import Topology
from lpgcn.ragged import flags


@dataclass(frozen=True)
class PaperTraffic:
    """Vectors that all clients together upload and download in one step."""

    up: int
    down: int

    def bytes(self, config: Config) -> tuple[int, int]:
        vector = config.dim * config.number_bytes
        return self.up * vector, self.down * vector


def paper_traffic(topology: Topology, config: Config, batch: AnyBatch) -> PaperTraffic:
    """Sends and receipts of ordinary items, neighbours and negatives, by the algorithms' lines.

    `entries` are the listed items that another client owns, virtual ones included: the paper sends
    for these too, since the server must not know which are virtual (Algorithm 7, lines 11 and 16).
    Algorithm 9 says "each client u ∈ U"; a client without training pairs P_u has no loss, so that
    lines 8 and 11 are read as about the clients of the batch, as in our own count. The server adds
    gradients up and forwards the sums (Eqs. 16, 24 and 25); with virtual items it must not, and
    forwards each of them to the client that adds them up without the virtual ones.
    """
    layers, items, n = config.layers, topology.n_items, topology.n_clients
    users, places = _samples(batch, n)
    in_batch = flags(n, users)
    elsewhere = topology.listed_elsewhere
    of_batch = elsewhere.values[in_batch[elsewhere.rows]]
    entries, neighbours = len(elsewhere.values), topology.n_pairs
    pairs = users[: len(places)] * items + places
    negatives = len(np.unique(pairs)) * (layers + 1)
    aggregated = len(np.unique(places)) * (layers + 1)
    up = items * (1 + layers)  # Algorithm 1, line 4, and Algorithm 4, line 9.
    up += n * layers  # Algorithm 4, line 4.
    up += len(of_batch) + negatives  # Algorithm 9, lines 8 and 9.
    up += layers * (entries + neighbours)  # Algorithm 6, lines 7 and 12.
    down = entries * (1 + layers)  # Algorithm 1, line 6, and Algorithm 4, line 11.
    down += layers * neighbours  # Algorithm 4, line 6.
    down += negatives  # Algorithm 9, line 1.
    if config.has_virtual_items:
        down += len(of_batch)  # Algorithm 9, line 11.
        down += layers * (entries + neighbours)  # Algorithm 6, lines 14 and 15.
    else:
        down += len(np.unique(of_batch)) + layers * (items + n)  # The same lines.
    down += aggregated  # Algorithm 9, line 12.
    if backbone_of(config).builds_users:
        listed = len(topology.listed.values)
        up += listed  # Algorithm 7, line 11.
        down += listed  # Algorithm 7, line 16.
    return PaperTraffic(up, down)


def _samples(batch: AnyBatch, n_clients: int) -> tuple[Int64, Int64]:
    """Who has samples, and the places of negatives: the paper has no pools, so that with these only
    the positives of everybody are counted."""
    if isinstance(batch, Batch):
        return batch.users, batch.negatives
    return np.arange(n_clients), np.empty(0, dtype=np.int64)
