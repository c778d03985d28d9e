"""What an owner pushes, and how that reaches its neighbours: the one place that asks the suite.

    SUM_PER_NEIGHBOUR   to each neighbour u one row, Σ_{i ∈ I_u ∩ O} y_i
    ROW_PER_ITEM        each item's y_i to everybody who lists it (the paper's Algorithm 4, line 11)

A row that is pushed has a number: of the pair it is for, or of the place that it is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from lpgcn.array_types import Bits
from lpgcn.protocol.suite import OwnerPush
from lpgcn.ragged import Ragged

if TYPE_CHECKING:
    # A client brings in nothing of the server's.
    from lpgcn.protocol.server.topology import Scope, Topology


class Fan(Protocol):
    """One way to push. The first four are the server's, the others a client's."""

    def pushed(self, topology: Topology) -> Ragged:
        """For an owner the rows that it can push, in order."""
        ...

    def arriving(self, topology: Topology) -> Ragged:
        """For a client the rows that can arrive, in order."""
        ...

    def for_users(self, topology: Topology, scope: Scope) -> Bits:
        """The rows that the users of a pass need."""
        ...

    def about(self, scope: Scope) -> Bits:
        """The rows that say something about the items of a pass."""
        ...

    def outgoing(self, real: Ragged, n_owned: int) -> Ragged:
        """For each row that an owner can push, the owned items it adds up; `real` has those that
        each neighbour really has."""
        ...

    def added(self, n_owners: int, is_real: Bits) -> Bits:
        """For each of the rows that can arrive, whether a user adds it up; `is_real` is about its
        listed items that others own."""
        ...


class SumPerNeighbour:
    def pushed(self, topology: Topology) -> Ragged:
        return topology.by_owner

    def arriving(self, topology: Topology) -> Ragged:
        return topology.by_client

    def for_users(self, topology: Topology, scope: Scope) -> Bits:
        flags: Bits = scope.users[topology.pair_client]
        return flags

    def about(self, scope: Scope) -> Bits:
        return scope.pairs

    def outgoing(self, real: Ragged, n_owned: int) -> Ragged:
        return real

    def added(self, n_owners: int, is_real: Bits) -> Bits:
        return np.ones(n_owners, dtype=np.bool_)


class RowPerItem:
    def pushed(self, topology: Topology) -> Ragged:
        return topology.owned

    def arriving(self, topology: Topology) -> Ragged:
        return topology.listed_elsewhere

    def for_users(self, topology: Topology, scope: Scope) -> Bits:
        return scope.listed

    def about(self, scope: Scope) -> Bits:
        return scope.items

    def outgoing(self, real: Ragged, n_owned: int) -> Ragged:
        return Ragged.identity(n_owned)

    def added(self, n_owners: int, is_real: Bits) -> Bits:
        return is_real


FANS: Final[dict[OwnerPush, Fan]] = {
    OwnerPush.SUM_PER_NEIGHBOUR: SumPerNeighbour(),
    OwnerPush.ROW_PER_ITEM: RowPerItem(),
}
