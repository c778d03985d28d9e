"""Samples with a negative each (BPR): positions, wishes, negatives and introductions.

A batch client wishes for the final vectors of the positives that it drew. To each of its owners it
sends as many slots as the smaller of its samples in the batch and what it lists there.
"""

from __future__ import annotations

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.crypto import entry_bytes
from lpgcn.model.batches import Batch
from lpgcn.protocol.server.contacts import Contacts
from lpgcn.protocol.server.loss import LossRounds
from lpgcn.protocol.server.topology import Scope, Topology
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire.fields import Fields, Packed, Present, Selection, TableRows
from lpgcn.protocol.wire.sizes import Sizes
from lpgcn.ragged import Ragged


class SampleRounds(LossRounds):
    """Those of samples with a negative each."""

    kind = Kind.ITEM_FINAL

    def __init__(self, topology: Topology, sizes: Sizes, batch: Batch, contacts: Contacts) -> None:
        n, m = topology.n_clients, topology.n_items
        self._batch = batch
        by_user = np.argsort(batch.users, kind="stable")
        self._samples = Ragged.from_rows(batch.users[by_user], by_user, n)
        """For a client its samples, in their order."""
        samples = self._samples.lengths
        slots = np.minimum(samples[topology.pair_client], topology.entries.lengths)
        super().__init__(topology, sizes, samples > 0, slots)
        keys, pair = np.unique(batch.users * m + batch.negatives, return_inverse=True)
        self._negative_client, self._negative_place = np.divmod(keys, m)
        self._negative_of_sample = pair
        self._negative_owner = topology.owner[self._negative_place]
        self._meeting = contacts.meet(self._negative_client, self._negative_owner)
        numbers = np.arange(len(keys))
        self._of_client = Ragged.from_rows(self._negative_client, numbers, n)
        # By handle, not by client: who comes before whom would tell the owner their numbers.
        by_owner = np.lexsort((self._meeting.at_owner, self._negative_owner))
        self._of_owner = Ragged.from_rows(self._negative_owner[by_owner], by_owner, n)

    @property
    def scope(self) -> Scope:
        return Scope.of_batch(self._topology, self._batch)

    @property
    def positions(self) -> Fields:
        positions = Ragged(self._samples.offsets, self._batch.positions[self._samples.values])
        epoch = np.full(int(np.count_nonzero(self._samples.lengths)), self._batch.epoch)
        each = Ragged.from_lengths(self._samples.lengths > 0, epoch)
        return {"positions": Packed(positions), "epoch": Packed(each)}

    @property
    def wishes(self) -> Fields:
        return {"wishes": self._sealed(Kind.WISH, self._pairs_of_client)}

    @property
    def wishing(self) -> Fields:
        pairs = self._pairs_of_owner
        return {
            "wishing": Present(Selection(self._topology.by_owner, self._in_batch)),
            "slots": Packed(Ragged(pairs.offsets, self._slots[pairs.values])),
            "wishes": self._sealed(Kind.WISH, pairs),
        }

    @property
    def samples(self) -> Fields:
        n = self._topology.n_clients
        places = Ragged(self._of_client.offsets, self._negative_place)
        number = self._negative_of_sample - self._of_client.offsets[self._batch.users]
        new = self._introductions(self._meeting.new_client, self._meeting.new_at_client)
        owners = Ragged(new.offsets, self._meeting.new_owner[new.values])
        width = self._sizes.row(Kind.ITEM_FINAL)
        return {
            **super().samples,
            "negatives": Packed(Ragged(self._samples.offsets, number[self._samples.values])),
            "negative_places": Packed(places),
            "negative_rows": TableRows("finals", self._topology.n_items, places, width),
            "contacts": Packed(Ragged(self._of_client.offsets, self._meeting.at_client)),
            "new_contacts": TableRows("directory", n, owners, entry_bytes(n)),
        }

    @property
    def gradients(self) -> Fields:
        return {
            **super().gradients,
            "negatives": self._negatives(self._of_client),
            "introductions": self._introduced(
                self._introductions(self._meeting.new_client, self._meeting.new_at_client)
            ),
        }

    @property
    def loss_rows(self) -> Fields:
        negatives = self._of_owner
        first = self._of_client.offsets[self._negative_client]
        number = np.arange(len(self._negative_client)) - first
        contacts = np.column_stack((self._meeting.at_owner, number))[negatives.values].reshape(-1)
        return {
            **super().loss_rows,
            "negatives": self._negatives(negatives),
            "contacts": Packed(Ragged(2 * negatives.offsets, contacts)),
            "introductions": self._introduced(
                self._introductions(self._meeting.new_owner, self._meeting.new_at_owner)
            ),
        }

    def _negatives(self, ids: Ragged) -> TableRows:
        count, width = len(self._negative_client), self._sizes.row(Kind.NEGATIVE)
        return TableRows("negatives", count, ids, width)

    def _introductions(self, parties: Int64, handles: Int64) -> Ragged:
        """The first meetings of each party, in the order of the handles that it is given; none
        where negatives travel in the clear."""
        if not self._sizes.introduction:
            parties, handles = parties[:0], handles[:0]
        order = np.lexsort((handles, parties))
        return Ragged.from_rows(parties[order], order, self._topology.n_clients)

    def _introduced(self, ids: Ragged) -> TableRows:
        count = len(self._meeting.new_client)
        return TableRows("introductions", count, ids, self._sizes.introduction)
