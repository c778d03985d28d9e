"""Pools of negatives (softmax): everybody, with all of its items, in every step.

An owner grants each neighbour what that one really has, in a slot for all that it lists. A group's
answers about the first negatives of its pool are one sum, in which the masks of the group cancel;
the owner of an item gets what all groups answered about it, added up.
"""

from __future__ import annotations

import numpy as np

from lpgcn.model.batches import PooledBatch
from lpgcn.protocol.server.loss import LossRounds
from lpgcn.protocol.server.topology import Scope, Topology
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire.fields import (
    Fields,
    Packed,
    Present,
    Selection,
    Summed,
    SummedRows,
    TableRows,
)
from lpgcn.protocol.wire.sizes import Sizes
from lpgcn.ragged import Ragged, flags


class PoolRounds(LossRounds):
    """Those of a pool for each group."""

    kind = Kind.POOL

    def __init__(self, topology: Topology, sizes: Sizes, batch: PooledBatch) -> None:
        everybody = np.ones(topology.n_clients, dtype=np.bool_)
        super().__init__(topology, sizes, everybody, topology.entries.lengths)
        self._batch = batch

    @property
    def scope(self) -> Scope:
        return Scope.everything(self._topology).with_finals(self._batch.pools.values)

    @property
    def positions(self) -> Fields:
        epoch = np.full(self._topology.n_clients, self._batch.epoch)
        return {"epoch": Packed(Ragged(np.arange(len(epoch) + 1), epoch))}

    @property
    def samples(self) -> Fields:
        places, width = self._batch.pools.only(self._batch.group), self._sizes.row(self.kind)
        return {
            **super().samples,
            "negative_places": Packed(places),
            "negative_rows": TableRows("finals", self._topology.n_items, places, width),
        }

    @property
    def gradients(self) -> Fields:
        numbers = self._batch.answered * self._sizes.dim
        return {**super().gradients, "answers": Summed("answers", self._batch.group, numbers)}

    @property
    def loss_rows(self) -> Fields:
        topology, about = self._topology, self._batch.answers.values
        answered = Selection(topology.owned, flags(topology.n_items, about)[topology.owned.values])
        return {
            **super().loss_rows,
            "answered": Present(answered),
            "answers": SummedRows("answers", about, topology.n_items, answered, self._sizes.dim),
        }
