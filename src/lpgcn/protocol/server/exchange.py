"""The rows of an exchange: clients push their vectors and owners those of their items, and each row
arrives where it is wanted.

`pushes` flags rows of the fan, `users` clients, `pairs` pairs. What is *whole* is pushed by all and
arrives everywhere, in the same way in every pass.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from lpgcn.array_types import Bits
from lpgcn.protocol.fan import FANS
from lpgcn.protocol.server.topology import Topology
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire.fields import Fields, Flag, Present, Selection, TableRows
from lpgcn.protocol.wire.sizes import Sizes
from lpgcn.ragged import Ragged


class ExchangeRows:
    def __init__(self, topology: Topology, sizes: Sizes) -> None:
        self._topology, self._sizes = topology, sizes
        self.fan = FANS[sizes.suite.owner_push]
        self._pushed, self._arriving = self.fan.pushed(topology), self.fan.arriving(topology)
        self._own = Ragged.identity(topology.n_clients)

    def arrivals(self, kind: Kind, pushes: Bits, pairs: Bits) -> Fields:
        """What was pushed, to those it is for; to owners only the users of these pairs."""
        topology = self._topology
        arriving = Selection(self._arriving, pushes[self._arriving.values])
        senders = Selection(topology.neighbours, pairs)
        return {
            "pushes": self._push_rows(arriving),
            "pushes_present": Present(arriving),
            "users": TableRows("users", topology.n_clients, senders, self._sizes.row(kind)),
            "users_present": Present(senders),
        }

    def wanted(self, pushes: Bits, users: Bits) -> Fields:
        """Who shall push what."""
        wanted = Selection(self._pushed, pushes[self._pushed.values])
        return {"wanted": Present(wanted), "wants_user": Flag(users)}

    def pushes(self, kind: Kind, pushes: Bits, users: Bits) -> Fields:
        """What they push then."""
        own, n = Selection(self._own, users), self._topology.n_clients
        return {
            "user": TableRows("users", n, own, self._sizes.row(kind)),
            "pushes": self._push_rows(Selection(self._pushed, pushes[self._pushed.values])),
        }

    def _push_rows(self, ids: Selection) -> TableRows:
        return TableRows("pushes", len(self._pushed.values), ids, self._sizes.row(Kind.PUSH))

    @cached_property
    def whole_wanted(self) -> Fields:
        return self.wanted(self._all_pushes, self._all_users)

    @cached_property
    def whole_pushes(self) -> Fields:
        return self.pushes(Kind.USER_FORWARD, self._all_pushes, self._all_users)

    @cached_property
    def whole_pushes_back(self) -> Fields:
        return self.pushes(Kind.USER_BACKWARD, self._all_pushes, self._all_users)

    @cached_property
    def whole_arrivals(self) -> Fields:
        return self.arrivals(Kind.USER_FORWARD, self._all_pushes, self._all_pairs)

    @cached_property
    def whole_arrivals_back(self) -> Fields:
        return self.arrivals(Kind.USER_BACKWARD, self._all_pushes, self._all_pairs)

    @cached_property
    def _all_pushes(self) -> Bits:
        return np.ones(len(self._pushed.values), dtype=np.bool_)

    @cached_property
    def _all_users(self) -> Bits:
        return np.ones(self._topology.n_clients, dtype=np.bool_)

    @cached_property
    def _all_pairs(self) -> Bits:
        return np.ones(self._topology.n_pairs, dtype=np.bool_)
