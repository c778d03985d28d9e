"""What the loss adds to a pass: samples, wishes, answers, scalars and negatives (Algorithm 9).

A batch client wishes for the final vectors of the positives that it drew. To each of its owners it
sends as many slots as the server can count without knowing them: the smaller of its samples in the
batch and what it lists there. So that sizes tell nothing about what is in the slots.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lpgcn.crypto import entry_bytes
from lpgcn.model.batches import Batch
from lpgcn.protocol.server.contacts import Contacts
from lpgcn.protocol.server.topology import Topology
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire.fields import Field, Packed, Present, Rows, Selection
from lpgcn.protocol.wire.sizes import Sizes
from lpgcn.ragged import Int64, Ragged

Fields = dict[str, Field]


class LossRounds:
    """The fields of one batch, by the message that they are in."""

    def __init__(self, topology: Topology, sizes: Sizes, batch: Batch, contacts: Contacts) -> None:
        self._topology, self._sizes, self._batch = topology, sizes, batch
        n, m = topology.n_clients, topology.n_items
        by_user = np.argsort(batch.users, kind="stable")
        self._samples = Ragged.from_rows(batch.users[by_user], by_user, n)
        """For a client its samples, in their order."""
        self._in_batch = (self._samples.lengths > 0)[topology.pair_client]
        samples = self._samples.lengths[topology.pair_client]
        self._slots = np.minimum(samples, topology.entries.lengths)
        self._sealed_sizes: dict[Kind, Int64] = {}
        keys, pair = np.unique(batch.users * m + batch.negatives, return_inverse=True)
        self._negative_client, self._negative_place = np.divmod(keys, m)
        self._negative_of_sample = pair
        self._negative_owner = topology.owner[self._negative_place]
        self._meeting = contacts.meet(self._negative_client, self._negative_owner)
        numbers = np.arange(len(keys))
        self._of_client = Ragged.from_rows(self._negative_client, numbers, n)
        by_owner = np.argsort(self._negative_owner, kind="stable")
        self._of_owner = Ragged.from_rows(self._negative_owner[by_owner], by_owner, n)

    def _sealed(self, kind: Kind, ids: Ragged) -> Rows:
        """Messages between the two ends of pairs, each with its slots."""
        if kind not in self._sealed_sizes:
            a_slot, besides = self._sizes.slots(kind)
            self._sealed_sizes[kind] = a_slot * self._slots + besides
        return Rows(kind.name, self._topology.n_pairs, ids, self._sealed_sizes[kind])

    @cached_property
    def _pairs_of_client(self) -> Ragged:
        by_client = self._topology.by_client
        return by_client.where(self._in_batch[by_client.values])

    @cached_property
    def _pairs_of_owner(self) -> Ragged:
        return self._topology.by_owner.where(self._in_batch)

    @property
    def positions(self) -> Fields:
        """To everybody, and empty for those outside the batch."""
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
    def granted(self) -> Fields:
        return {"granted": self._sealed(Kind.GRANT, self._pairs_of_owner)}

    @property
    def samples(self) -> Fields:
        n = self._topology.n_clients
        places = Ragged(self._of_client.offsets, self._negative_place)
        number = self._negative_of_sample - self._of_client.offsets[self._batch.users]
        new = self._introductions(self._meeting.new_client, self._meeting.new_at_client)
        owners = Ragged(new.offsets, self._meeting.new_owner[new.values])
        width = self._sizes.row(Kind.ITEM_FINAL)
        return {
            "granted": self._sealed(Kind.GRANT, self._pairs_of_client),
            "negatives": Packed(Ragged(self._samples.offsets, number[self._samples.values])),
            "negative_places": Packed(places),
            "negative_rows": Rows("finals", self._topology.n_items, places, width),
            "contacts": Packed(Ragged(self._of_client.offsets, self._meeting.at_client)),
            "new_contacts": Rows("directory", n, owners, entry_bytes(n)),
        }

    @property
    def gradients(self) -> Fields:
        n = self._topology.n_clients
        width = self._sizes.row(Kind.USER_FINAL)
        return {
            "user": Rows("final users", n, Ragged.identity(n), width),
            "scalars": self._sealed(Kind.SCALARS, self._pairs_of_client),
            "negatives": self._negatives(self._of_client),
            "introductions": self._introduced(
                self._introductions(self._meeting.new_client, self._meeting.new_at_client)
            ),
        }

    @property
    def loss_rows(self) -> Fields:
        n, pairs = self._topology.n_clients, self._pairs_of_owner
        senders = Ragged(pairs.offsets, self._topology.pair_client[pairs.values])
        negatives = self._of_owner
        first = self._of_client.offsets[self._negative_client]
        number = np.arange(len(self._negative_client)) - first
        contacts = np.column_stack((self._meeting.at_owner, number))[negatives.values].reshape(-1)
        return {
            "users": Rows("final users", n, senders, self._sizes.row(Kind.USER_FINAL)),
            "scalars": self._sealed(Kind.SCALARS, pairs),
            "negatives": self._negatives(negatives),
            "contacts": Packed(Ragged(2 * negatives.offsets, contacts)),
            "introductions": self._introduced(
                self._introductions(self._meeting.new_owner, self._meeting.new_at_owner)
            ),
        }

    def _negatives(self, ids: Ragged) -> Rows:
        count, width = len(self._negative_client), self._sizes.row(Kind.NEGATIVE)
        return Rows("negatives", count, ids, width)

    def _introductions(self, parties: Int64, handles: Int64) -> Ragged:
        """The first meetings of each party, in the order of the handles that it is given; none
        where negatives travel in the clear."""
        if not self._sizes.introduction:
            parties, handles = parties[:0], handles[:0]
        order = np.lexsort((handles, parties))
        return Ragged.from_rows(parties[order], order, self._topology.n_clients)

    def _introduced(self, ids: Ragged) -> Rows:
        count = len(self._meeting.new_client)
        return Rows("introductions", count, ids, self._sizes.introduction)
