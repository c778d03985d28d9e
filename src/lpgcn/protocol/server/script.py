"""All rounds of the protocol: for each call who is asked, what goes down and what comes up.

The server carries the rounds out; the accounting only measures them. What a batch does not need is
not sent: in the last exchange forward only the batch's users and the items Q that they list or have
as negatives receive, and in the first exchange backward only these have anything to push. All of
that is public anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lpgcn.config import Config
from lpgcn.crypto import KEY_BYTES, TOKEN_BYTES
from lpgcn.model.batches import Batch
from lpgcn.protocol.fan import FANS
from lpgcn.protocol.phases import Phase, Sequence
from lpgcn.protocol.server.contacts import Contacts
from lpgcn.protocol.server.loss import LossRounds
from lpgcn.protocol.server.routes import Needs, Routes
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire.fields import (
    Field,
    Flag,
    Listed,
    Packed,
    Present,
    Round,
    Rows,
    Selection,
    Stored,
    WholeTable,
)
from lpgcn.protocol.wire.reading import NUMBER_BYTES, RATE
from lpgcn.protocol.wire.sizes import SEALED_SHARED_BYTES, Sizes, verification_answer
from lpgcn.ragged import Ragged

Int64 = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]
MASK_REACH = 3
"""A client shares masks with the three before and the three after it, in a random circle."""


def opening(n_clients: int, n_items: int, key_client: int, listed: Int64 | None) -> list[Round]:
    """KEYS, SHARE_KEY, LIST and CATALOGUE (Algorithm 2, lines 1–14); `listed` are the lengths of
    all lists, where they are known already."""
    everybody, alone = np.arange(n_clients), np.array([key_client])
    own = Ragged.from_lengths(np.ones(n_clients), everybody)
    for_one = np.where(everybody == key_client, n_clients, 0)
    all_to_one = Ragged.from_lengths(for_one, everybody)
    sealed = SEALED_SHARED_BYTES
    catalogue = np.where(everybody == key_client, n_items, 0)
    return [
        Round(Phase.KEYS, everybody, {}, {"key": Rows("publics", n_clients, own, KEY_BYTES)}),
        Round(
            Phase.SHARE_KEY,
            alone,
            {"keys": Rows("publics", n_clients, all_to_one, KEY_BYTES)},
            {"sealed": Rows("sealed keys", n_clients, all_to_one, sealed)},
        ),
        Round(
            Phase.LIST,
            everybody,
            {"sealed": Rows("sealed keys", n_clients, own, sealed)},
            {"tokens": Listed("lists", listed, TOKEN_BYTES)},
        ),
        Round(Phase.CATALOGUE, alone, {}, {"tokens": Listed("catalogue", catalogue, TOKEN_BYTES)}),
    ]


class Script:
    """The rounds after there is a plan."""

    def __init__(self, routes: Routes, config: Config) -> None:
        self._routes = routes
        self._sizes, self._sequence = Sizes.of(config), Sequence.of(config)
        self._fan = FANS[self._sizes.suite.owner_push]
        self._pushed, self._arriving = self._fan.pushed(routes), self._fan.arriving(routes)
        self._contacts = Contacts(routes)
        # Owners have most to do, so they are the first to be asked.
        self._everybody = np.argsort(~routes.is_owner, kind="stable")
        self._owners = np.flatnonzero(routes.is_owner)
        self._own = Ragged.from_lengths(np.ones(routes.n_clients), np.arange(routes.n_clients))

    # Initialisation.

    def verification(self, peers: Ragged) -> list[Round]:
        """PLAN, VERIFY and ANSWERS (Algorithm 3, lines 7–9; Algorithm 2, lines 16–18)."""
        routes = self._routes
        answers = verification_answer(routes.entries.lengths)
        by_owner, by_client = routes.by_owner, routes.by_client
        asked = routes.entries.only(by_client.values)
        positions = Ragged(routes.entries.offsets, routes.entry_positions).only(by_client.values)
        publics = ("publics", routes.n_clients)
        placement: dict[str, Field] = {
            "places": Packed(routes.listed),
            "owned": Packed(routes.owned),
            "offsets": Packed(_inner_offsets(by_owner, routes.entries)),
            "listed": Packed(
                Ragged(
                    routes.entries.offsets[by_owner.offsets],
                    routes.owned_row[routes.entries.values],
                )
            ),
            "peers": Rows(*publics, peers, KEY_BYTES),
        }
        questions: dict[str, Field] = {
            "askers": Rows(
                *publics,
                Ragged(by_client.offsets, routes.pair_owner[by_client.values]),
                KEY_BYTES,
            ),
            "offsets": Packed(_inner_offsets(by_client, asked)),
            "positions": Packed(Ragged(asked.offsets[by_client.offsets], positions.values)),
        }
        up: dict[str, Field] = {"answers": Rows("answers", routes.n_pairs, by_client, answers)}
        down: dict[str, Field] = {"answers": Rows("answers", routes.n_pairs, by_owner, answers)}
        return [
            Round(Phase.PLAN, self._everybody, placement, {}),
            Round(Phase.VERIFY, self._everybody, questions, up),
            Round(Phase.ANSWERS, self._owners, down, {}),
        ]

    # A pass.

    def step(self, batch: Batch) -> Iterator[Round]:
        """forward → loss → backward → update, as Algorithm 7."""
        routes = self._routes
        needs = Needs.of_batch(routes, batch)
        loss = LossRounds(routes, self._sizes, batch, self._contacts)
        about = self._fan.about(needs)
        touched = np.flatnonzero(needs.users | routes.owned.any(needs.items[routes.owned.values]))
        yield from self._forward(needs, touched, loss)
        yield Round(Phase.LOSS, np.flatnonzero(needs.users), loss.samples, loss.gradients)
        pushes = self._pushes(Kind.USER_BACKWARD, about, needs.users)
        down = {**loss.loss_rows, **self._wanted(about, needs.users)}
        yield Round(Phase.GRADIENT, touched, down, pushes)
        yield from self._backward(about, needs.users)

    def prediction(self) -> Iterator[Round]:
        """A forward pass for everybody, and the final vectors of all items."""
        yield from self._forward(Needs.everything(self._routes), self._everybody, None)

    def catalogue(self, phase: Phase, clients: Int64, numbers: int) -> Round:
        """All final item vectors to some clients, which answer with so many masked numbers."""
        items = WholeTable("finals", self._routes.n_items, self._sizes.row(Kind.ITEM_FINAL))
        return Round(phase, clients, {"items": items}, self._masked(numbers) if numbers else {})

    def sums(self, phase: Phase) -> Round:
        """One masked number of everybody."""
        return Round(phase, self._everybody, {}, self._masked(1))

    def _masked(self, count: int) -> dict[str, Field]:
        return {"masked": Rows("masked", self._routes.n_clients, self._own, 8 * count)}

    def _forward(self, needs: Needs, touched: Int64, loss: LossRounds | None) -> Iterator[Round]:
        """Algorithm 4: [half exchange], L exchanges, then the final vectors that are needed."""
        routes, sequence = self._routes, self._sequence
        yield from self._whole_forward
        pushes, users = self._fan.for_users(routes, needs), routes.listing(needs.items)
        last = sequence.layers - 1
        down = {**self._arrivals_at(last), **self._wanted(pushes, users)}
        up = self._pushes(Kind.USER_FORWARD, pushes, users)
        if loss is not None:
            down, up = {**down, **loss.positions}, {**up, **loss.wishes}
        yield Round(Phase.FORWARD, self._everybody, down, up, last)
        finals = Selection(routes.owned, needs.finals[routes.owned.values])
        width = self._sizes.row(Kind.ITEM_FINAL)
        arrivals = self._arrivals(Kind.USER_FORWARD, pushes, needs.pairs)
        yield Round(
            Phase.FINAL,
            touched,
            {**arrivals, "wanted": Present(finals), **(loss.wishing if loss else {})},
            {
                "items": Rows("finals", routes.n_items, finals, width),
                **(loss.answers if loss else {}),
            },
        )

    @cached_property
    def _whole_forward(self) -> list[Round]:
        """BUILD, and the exchanges before the last one: the same in every pass."""
        asked = self._whole_wanted
        pushed = self._pushes(Kind.USER_FORWARD, self._all_pushes, self._all_users)
        rounds: list[Round] = []
        if self._sequence.builds_users:
            only_pushes = {"pushes": pushed["pushes"]}
            rounds.append(Round(Phase.BUILD, self._owners, {}, only_pushes))
        for layer in range(self._sequence.layers - 1):
            down = {**self._arrivals_at(layer), **asked}
            rounds.append(Round(Phase.FORWARD, self._everybody, down, pushed, layer))
        return rounds

    def _arrivals_at(self, layer: int) -> dict[str, Field]:
        """What everybody pushed for this layer; for the first, what users are built from."""
        if layer:
            return self._whole_arrivals
        built = {"pushes": self._whole_arrivals["pushes"]}
        return built if self._sequence.builds_users else {}

    def _backward(self, about: Bits, users: Bits) -> Iterator[Round]:
        """Algorithm 6 after g^(L) was pushed, the update, and [half exchange]."""
        first = self._arrivals(Kind.USER_BACKWARD, about, users[self._routes.pair_client])
        layers = self._sequence.layers_of(Phase.BACKWARD)
        if layers:
            down, up = {**first, **self._whole_wanted}, self._whole_pushes_back
            yield Round(Phase.BACKWARD, self._everybody, down, up, layers[0])
            yield from self._whole_backward
        else:
            yield from self._update(first)

    @cached_property
    def _whole_backward(self) -> list[Round]:
        """The exchanges after the first, and the update: the same in every pass."""
        down = {**self._whole_arrivals_back, **self._whole_wanted}
        back = [
            Round(Phase.BACKWARD, self._everybody, down, self._whole_pushes_back, layer)
            for layer in self._sequence.layers_of(Phase.BACKWARD)[1:]
        ]
        return [*back, *self._update(self._whole_arrivals_back)]

    def _update(self, arrivals: dict[str, Field]) -> list[Round]:
        adam: dict[str, Field] = {
            "learning_rate": Stored("learning rate", RATE.size),
            "batch_size": Stored("batch size", NUMBER_BYTES),
        }
        builds = self._sequence.builds_users
        own = {"user": self._whole_pushes_back["user"]} if builds else {}
        update = Round(Phase.UPDATE, self._everybody, {**arrivals, **adam}, own)
        if not builds:
            return [update]
        built = {"users": self._whole_arrivals_back["users"], **adam}
        return [update, Round(Phase.UPDATE_BUILT, self._owners, built, {})]

    # Rows of an exchange. `pushes` flags rows of the fan, `users` clients, `pairs` pairs.

    @cached_property
    def _all_pushes(self) -> Bits:
        return np.ones(len(self._pushed.values), dtype=np.bool_)

    @cached_property
    def _all_users(self) -> Bits:
        return np.ones(self._routes.n_clients, dtype=np.bool_)

    @cached_property
    def _whole_wanted(self) -> dict[str, Field]:
        return self._wanted(self._all_pushes, self._all_users)

    @cached_property
    def _whole_pushes_back(self) -> dict[str, Field]:
        return self._pushes(Kind.USER_BACKWARD, self._all_pushes, self._all_users)

    @cached_property
    def _whole_arrivals(self) -> dict[str, Field]:
        everything = np.ones(self._routes.n_pairs, dtype=np.bool_)
        return self._arrivals(Kind.USER_FORWARD, self._all_pushes, everything)

    @cached_property
    def _whole_arrivals_back(self) -> dict[str, Field]:
        everything = np.ones(self._routes.n_pairs, dtype=np.bool_)
        return self._arrivals(Kind.USER_BACKWARD, self._all_pushes, everything)

    def _arrivals(self, kind: Kind, pushes: Bits, pairs: Bits) -> dict[str, Field]:
        """What was pushed, to those it is for; to owners only the users of these pairs."""
        routes = self._routes
        arriving = Selection(self._arriving, pushes[self._arriving.values])
        senders = Selection(routes.neighbours, pairs)
        return {
            "pushes": self._push_rows(arriving),
            "pushes_present": Present(arriving),
            "users": Rows("users", routes.n_clients, senders, self._sizes.row(kind)),
            "users_present": Present(senders),
        }

    def _wanted(self, pushes: Bits, users: Bits) -> dict[str, Field]:
        wanted = Selection(self._pushed, pushes[self._pushed.values])
        return {"wanted": Present(wanted), "wants_user": Flag(users)}

    def _pushes(self, kind: Kind, pushes: Bits, users: Bits) -> dict[str, Field]:
        own, n = Selection(self._own, users), self._routes.n_clients
        return {
            "user": Rows("users", n, own, self._sizes.row(kind)),
            "pushes": self._push_rows(Selection(self._pushed, pushes[self._pushed.values])),
        }

    def _push_rows(self, ids: Selection) -> Rows:
        return Rows("pushes", len(self._pushed.values), ids, self._sizes.row(Kind.PUSH))


def mask_peers(n_clients: int, order: Int64) -> Ragged:
    """The clients next to each one in a circle of this order, `MASK_REACH` on either side."""
    ways = [way for way in range(-MASK_REACH, MASK_REACH + 1) if way]
    around = np.stack([np.roll(order, -way) for way in ways], axis=1)
    peers = [np.unique(row[row != client]) for client, row in zip(order, around, strict=True)]
    by_client = np.argsort(order)
    return Ragged.from_arrays([peers[place] for place in by_client.tolist()])


def _inner_offsets(outer: Ragged, inner: Ragged) -> Ragged:
    """For each row of `outer`, whose entries are rows of `inner`, where each of these begins."""
    lengths = outer.lengths + 1
    which = np.repeat(np.arange(len(outer)), lengths)
    number = np.arange(len(which)) - (outer.offsets[which] + which)
    first = outer.offsets[which]
    return Ragged.from_lengths(lengths, inner.offsets[first + number] - inner.offsets[first])
