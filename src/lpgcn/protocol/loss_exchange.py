"""The server's part in the loss: final vectors to the batch, gradients to the items' owners."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lpgcn.model.batches import Batch
from lpgcn.protocol import messages as m
from lpgcn.protocol.rounds import Needs, Pushes
from lpgcn.protocol.routes import Routes
from lpgcn.protocol.sizes import Sizes

Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]


class Contacts:
    """Handles that the server makes up for one party, so that it can tell others apart unnamed.

    New handles are higher than all before, so that in a message the new contacts are the last ones.
    """

    def __init__(self, known: Int64) -> None:
        """`known` parties share a key with it from verification on; they come first."""
        self._handles = {other: handle for handle, other in enumerate(known.tolist())}

    def handles(self, others: Sequence[int]) -> tuple[list[int], list[int]]:
        """The handles of these parties, and those parties that are new, in their handles' order."""
        new = [other for other in dict.fromkeys(others) if other not in self._handles]
        self._handles |= {other: handle for handle, other in enumerate(new, len(self._handles))}
        return [self._handles[other] for other in others], new


class LossExchange:
    """Draws up the messages of LOSS and of the first round backward."""

    def __init__(self, routes: Routes, sizes: Sizes, publics: Sequence[bytes]) -> None:
        self._routes, self._sizes, self._publics = routes, sizes, publics
        everybody = range(routes.n_clients)
        self._owners_of = [Contacts(routes.askers(client)[0]) for client in everybody]
        self._strangers_of = [Contacts(routes.neighbours[client]) for client in everybody]

    def requests(self, batch: Batch, finals: UInt8) -> Iterator[tuple[int, m.Samples]]:
        """To each client of the batch its samples and the final vectors it needs."""
        self._met: dict[int, tuple[Int64, list[int]]] = {}
        for client, samples in _by_user(batch):
            places, negative_of_sample = np.unique(batch.negatives[samples], return_inverse=True)
            owners = self._routes.owner[places].tolist()
            contacts, new = self._owners_of[client].handles(owners)
            if not self._sizes.introduction:
                new = []
            self._met[client] = places, new
            yield (
                client,
                m.Samples(
                    header=b"",
                    item_rows=finals[self._routes.arriving[client]].tobytes(),
                    positions=m.pack_numbers(batch.positions[samples]),
                    negatives=m.pack_numbers(negative_of_sample),
                    negative_places=m.pack_numbers(places),
                    negative_rows=finals[places].tobytes(),
                    contacts=m.pack_numbers(contacts),
                    new_contacts=b"".join(self._publics[owner] for owner in new),
                    batch_size=m.pack_numbers([batch.size]),
                    epoch=m.pack_numbers([batch.epoch]),
                ),
            )

    def deliveries(
        self,
        batch: Batch,
        needs: Needs,
        replies: Mapping[int, m.Gradients],
        asked: Pushes,
        clients: Sequence[int],
    ) -> Iterator[tuple[int, m.LossRows]]:
        """To each touched client what the batch says about the items it owns."""
        routes = self._routes
        said = self._sorted(replies)
        present = routes.neighbours.flagged(needs.users[routes.neighbours.values])
        wanted = routes.owned.flagged(asked.items[routes.owned.values])
        for client in clients:
            negatives = said.negatives.get(client, [])
            senders = [negative.sender for negative in negatives]
            contacts, new = self._strangers_of[client].handles(senders)
            numbers = [negative.number for negative in negatives]
            yield (
                client,
                m.LossRows(
                    header=b"",
                    user_rows=said.users[present.chosen(client)].tobytes(),
                    user_present=present.packed(client),
                    pair_rows=b"".join(said.pairs.get(client, [])),
                    negatives=b"".join(negative.row for negative in negatives),
                    contacts=m.pack_numbers(np.column_stack((contacts, numbers))),
                    order=m.pack_numbers([routes.order_at(client, sender) for sender in senders]),
                    introductions=b"".join(
                        said.introductions[client, sender]
                        for sender in new
                        if self._sizes.introduction
                    ),
                    wanted=wanted.packed(client),
                    wants_user=bytes((int(asked.users[client]),)),
                    batch_size=m.pack_numbers([batch.size]),
                ),
            )

    def _sorted(self, replies: Mapping[int, m.Gradients]) -> _Said:
        """What the batch's clients said, by the owner that it is for."""
        routes, sizes = self._routes, self._sizes
        said = _Said(np.zeros((routes.n_clients, sizes.loss_user), dtype=np.uint8))
        for client, reply in replies.items():
            said.users[client] = m.rows(reply.user, "user", count=1, width=sizes.loss_user)[0]
            owners, offsets, _ = routes.askers(client)
            pairs = m.cut(reply.pair_rows, sizes.pairs(np.diff(offsets)), "pair_rows")
            for owner, pair in zip(owners.tolist(), pairs, strict=True):
                said.pairs[owner].append(pair)
            places, new = self._met[client]
            rows = m.rows(reply.negatives, "negatives", count=len(places), width=sizes.negative)
            for number, owner in enumerate(routes.owner[places].tolist()):
                negative = _Negative(client, number, rows[number].tobytes())
                said.negatives[owner].append(negative)
            sealed = m.rows(
                reply.introductions, "introductions", count=len(new), width=sizes.introduction
            )
            for owner, row in zip(new, sealed, strict=True):
                said.introductions[owner, client] = row.tobytes()
        return said


class _Negative(NamedTuple):
    """What a client says about a negative, sealed for its owner."""

    sender: int
    number: int
    """Among the negatives of its sender."""
    row: bytes


@dataclass(frozen=True)
class _Said:
    """The replies of a batch. Pairs and negatives are in the order of their senders."""

    users: UInt8
    pairs: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    negatives: dict[int, list[_Negative]] = field(default_factory=lambda: defaultdict(list))
    introductions: dict[tuple[int, int], bytes] = field(default_factory=dict)
    """By owner and sender."""


def _by_user(batch: Batch) -> Iterator[tuple[int, Int64]]:
    """The batch's clients, rising, and the samples of each, in their order."""
    order = np.argsort(batch.users, kind="stable")
    users, first = np.unique(batch.users[order], return_index=True)
    yield from zip(users.tolist(), np.split(order, first[1:]), strict=True)
