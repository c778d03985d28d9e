"""What the loss adds to a pass: samples, answers and scalars (Algorithm 9).

A client gets the final vectors of its positives from their owners, and tells these about them, in
as many slots as the server can count without knowing the positives. So that sizes tell nothing
about what is in the slots. What becomes of negatives is in `samples` and `pool`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

from lpgcn.array_types import Bits, Int64
from lpgcn.protocol.server.topology import Scope, Topology
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire.fields import Fields, TableRows
from lpgcn.protocol.wire.sizes import Sizes
from lpgcn.ragged import Ragged


class LossRounds(ABC):
    """The fields of one batch, by the message that they are in."""

    kind: Kind
    """Of the items' final vectors that everybody can open."""

    def __init__(self, topology: Topology, sizes: Sizes, in_batch: Bits, slots: Int64) -> None:
        """`in_batch` flags clients; there are so many slots between the two ends of a pair."""
        self._topology, self._sizes = topology, sizes
        self._in_batch, self._slots = in_batch[topology.pair_client], slots
        self._sealed_sizes: dict[Kind, Int64] = {}

    @property
    @abstractmethod
    def scope(self) -> Scope: ...

    @property
    @abstractmethod
    def positions(self) -> Fields:
        """To everybody, and empty for those outside the batch."""

    @property
    def wishes(self) -> Fields:
        return {}

    @property
    def wishing(self) -> Fields:
        return {}

    @property
    def granted(self) -> Fields:
        return {"granted": self._sealed(Kind.GRANT, self._pairs_of_owner)}

    @property
    def samples(self) -> Fields:
        return {"granted": self._sealed(Kind.GRANT, self._pairs_of_client)}

    @property
    def gradients(self) -> Fields:
        n, width = self._topology.n_clients, self._sizes.row(Kind.USER_FINAL)
        return {
            "user": TableRows("final users", n, Ragged.identity(n), width),
            "scalars": self._sealed(Kind.SCALARS, self._pairs_of_client),
        }

    @property
    def loss_rows(self) -> Fields:
        n, pairs = self._topology.n_clients, self._pairs_of_owner
        senders = Ragged(pairs.offsets, self._topology.pair_client[pairs.values])
        return {
            "users": TableRows("final users", n, senders, self._sizes.row(Kind.USER_FINAL)),
            "scalars": self._sealed(Kind.SCALARS, pairs),
        }

    def _sealed(self, kind: Kind, ids: Ragged) -> TableRows:
        """Messages between the two ends of pairs, each with its slots."""
        if kind not in self._sealed_sizes:
            a_slot, besides = self._sizes.slots(kind)
            self._sealed_sizes[kind] = a_slot * self._slots + besides
        return TableRows(kind.name, self._topology.n_pairs, ids, self._sealed_sizes[kind])

    @cached_property
    def _pairs_of_client(self) -> Ragged:
        by_client = self._topology.by_client
        return by_client.where(self._in_batch[by_client.values])

    @cached_property
    def _pairs_of_owner(self) -> Ragged:
        return self._topology.by_owner.where(self._in_batch)
