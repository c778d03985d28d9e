"""The rounds of a pass: who is called, which rows are delivered, which are asked for.

A round is one call of the server. The server carries the rounds out, the simulation only measures
them, and both read them from here. What a batch does not need is not sent: in the last exchange
forward only the batch's users and the items Q that they list or have as negatives receive, and in
the first exchange backward only these have anything to push. All of that is public anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lpgcn.config import Config
from lpgcn.model.batches import Batch
from lpgcn.protocol.messages import Phase
from lpgcn.protocol.routes import Routes

Int64 = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Needs:
    """Whom a pass is for: the users, and the items Q, whose final vectors are needed."""

    users: Bits
    listed: Bits
    """Items that these users list."""
    items: Bits
    """Q: listed or negative."""

    @classmethod
    def of_batch(cls, routes: Routes, batch: Batch) -> Needs:
        users = _flags(routes.n_clients, batch.users)
        listed = _flags(routes.n_items, routes.listed.values[users[routes.listed.rows]])
        items = listed | _flags(routes.n_items, batch.negatives)
        return cls(users, listed, items)

    @classmethod
    def everything(cls, routes: Routes) -> Needs:
        users, items = _all(routes.n_clients), _all(routes.n_items)
        return cls(users, items, items)


@dataclass(frozen=True)
class Pushes:
    """Whose vectors are asked for."""

    items: Bits
    users: Bits


@dataclass(frozen=True)
class Round:
    """One call. `item_rows` flags entries of `routes.arriving`, `user_rows` of `.neighbours`."""

    phase: Phase
    layer: int
    called: Bits
    item_rows: Bits
    user_rows: Bits
    asked: Pushes

    @property
    def clients(self) -> list[int]:
        return np.flatnonzero(self.called).tolist()


class Rounds:
    """All rounds of a pass, except those of the loss, whose messages are of their own kinds."""

    def __init__(self, routes: Routes, config: Config, needs: Needs) -> None:
        self._routes, self._needs = routes, needs
        self._layers = config.layers
        self._built = config.model == "lightgcn+"
        self._no_items = ~_all(len(routes.arriving.values))
        self._no_users = ~_all(len(routes.neighbours.values))
        self._everybody = _all(routes.n_clients)
        self._all = Pushes(_all(routes.n_items), self._everybody)
        self._none = Pushes(~self._all.items, ~self._everybody)
        owners_of_needed = routes.owned.any(needs.items[routes.owned.values])
        self.touched = needs.users | owners_of_needed
        """Clients that take part in the loss."""

    def forward(self) -> Iterator[Round]:
        routes, needs = self._routes, self._needs
        pushed = self._none
        if self._built:
            pushed = Pushes(self._all.items, self._none.users)
            yield self._round(Phase.BUILD, 0, routes.is_owner, self._none, pushed)
        for layer in range(self._layers):
            last = layer == self._layers - 1
            asked = Pushes(needs.listed, routes.listing(needs.items)) if last else self._all
            yield self._round(Phase.FORWARD, layer, self._everybody, pushed, asked)
            pushed = asked
        yield Round(
            Phase.FINAL,
            0,
            self.touched,
            needs.users[routes.arriving.rows],
            routes.neighbours_listing(needs.items),
            Pushes(needs.items, self._none.users),
        )

    def gradient_pushes(self) -> Pushes:
        """What the loss gives to push: g^(L) is zero elsewhere."""
        return Pushes(self._needs.items, self._needs.users)

    def backward(self) -> Iterator[Round]:
        """Everything after g^(L) was pushed."""
        pushed = self.gradient_pushes()
        for layer in range(1, self._layers):
            yield self._round(Phase.BACKWARD, layer, self._everybody, pushed, self._all)
            pushed = self._all
        back = Pushes(self._none.items, self._everybody if self._built else self._none.users)
        yield self._round(Phase.UPDATE, 0, self._everybody, pushed, back)
        if self._built:
            owners = self._routes.is_owner
            yield self._round(Phase.UPDATE_BUILT, 0, owners, back, self._none)

    def _round(
        self, phase: Phase, layer: int, called: Bits, pushed: Pushes, asked: Pushes
    ) -> Round:
        """Everything that was pushed goes to every called client that it concerns."""
        routes = self._routes
        return Round(
            phase,
            layer,
            called,
            pushed.items[routes.arriving.values] & called[routes.arriving.rows],
            pushed.users[routes.neighbours.values],
            asked,
        )


def _flags(size: int, chosen: Int64) -> Bits:
    flags = np.zeros(size, dtype=np.bool_)
    flags[chosen] = True
    return flags


def _all(size: int) -> Bits:
    return np.ones(size, dtype=np.bool_)
