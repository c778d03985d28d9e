"""All rounds of the protocol: for each call who is asked, what goes down and what comes up.

The server carries the rounds out; the accounting only measures them. What a batch does not need is
not sent: in the last exchange forward only the batch's users and the items Q that they list or have
as negatives receive, and in the first exchange backward only these have anything to push. All of
that is public anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from lpgcn.array_types import Bits, Int64
from lpgcn.config import Config
from lpgcn.crypto import KEY_BYTES, ROOT_BYTES, TAG_BYTES, TOKEN_BYTES, entry_bytes
from lpgcn.model.backbones import backbone_of
from lpgcn.model.batches import AnyBatch, PooledBatch, groups
from lpgcn.protocol.phases import PHASES, Asked, Phase, PhaseOrder
from lpgcn.protocol.server.contacts import Contacts
from lpgcn.protocol.server.exchange import ExchangeRows
from lpgcn.protocol.server.loss import LossRounds
from lpgcn.protocol.server.pool import PoolRounds
from lpgcn.protocol.server.samples import SampleRounds
from lpgcn.protocol.server.topology import Scope, Topology
from lpgcn.protocol.suite import Kind
from lpgcn.protocol.wire.fields import (
    Fields,
    Listed,
    Packed,
    Present,
    Round,
    Selection,
    Stored,
    Summed,
    TableRows,
)
from lpgcn.protocol.wire.reading import MASKED_BYTES, NUMBER_BYTES, RATE
from lpgcn.protocol.wire.sizes import (
    MASK_REACH,
    SEALED_KEY_BYTES,
    SEALED_SHARED_BYTES,
    Sizes,
    verification_answer,
)
from lpgcn.ragged import Ragged


def resuming(numbers: Int64) -> Round:
    """RESUME: for each client the number of a checkpoint of its own, or 0."""
    everybody = np.arange(len(numbers))
    each = Ragged.from_lengths(np.ones(len(numbers), dtype=np.int64), numbers)
    return Round(Phase.RESUME, everybody, {"number": Packed(each)}, {})


def opening(n_clients: int, n_items: int, key_client: int, listed: Int64 | None) -> list[Round]:
    """KEYS, SHARE_KEY, LIST and CATALOGUE (Algorithm 2, lines 1–14); `listed` are the lengths of
    all lists, where they are known already."""
    everybody, alone = np.arange(n_clients), np.array([key_client])
    own = Ragged.identity(n_clients)
    for_one = np.where(everybody == key_client, n_clients, 0)
    all_to_one = Ragged.from_lengths(for_one, everybody)
    sealed = SEALED_SHARED_BYTES
    catalogue = np.where(everybody == key_client, n_items, 0)
    return [
        Round(
            Phase.KEYS,
            everybody,
            {"term": Stored("term", NUMBER_BYTES), "members": Stored("members", NUMBER_BYTES)},
            {"key": TableRows("publics", n_clients, own, KEY_BYTES)},
        ),
        Round(
            Phase.SHARE_KEY,
            alone,
            {"keys": TableRows("publics", n_clients, all_to_one, KEY_BYTES)},
            {"sealed": TableRows("sealed keys", n_clients, all_to_one, sealed)},
        ),
        Round(
            Phase.LIST,
            everybody,
            {"sealed": TableRows("sealed keys", n_clients, own, sealed)},
            {"tokens": Listed("lists", listed, TOKEN_BYTES)},
        ),
        Round(Phase.CATALOGUE, alone, {}, {"tokens": Listed("catalogue", catalogue, TOKEN_BYTES)}),
    ]


class Script:
    """The rounds after there is a plan."""

    def __init__(self, topology: Topology, config: Config) -> None:
        self._topology, self._config = topology, config
        self._sizes, self._order = Sizes.of(config), PhaseOrder.of(config)
        self._exchange = ExchangeRows(topology, self._sizes)
        self._item_tables = sorted(backbone_of(config).held("items"))
        self.contacts = Contacts(topology)
        # Owners have most to do, so they are the first to be asked.
        self._everybody = np.argsort(~topology.is_owner, kind="stable")
        self._own = Ragged.identity(topology.n_clients)

    def _round(
        self, phase: Phase, down: Fields, up: Fields, layer: int = 0, scope: Scope | None = None
    ) -> Round:
        """A call of those whom the table of phases names."""
        topology, asked = self._topology, PHASES[phase].asked
        if asked is Asked.OWNERS:
            called = topology.is_owner
        elif asked is Asked.EVERYBODY or scope is None:
            return Round(phase, self._everybody, down, up, layer)
        else:
            called = scope.users
            if asked is Asked.TOUCHED:
                called = called | topology.owned.any(scope.items[topology.owned.values])
        return Round(phase, self._everybody[called[self._everybody]], down, up, layer)

    # Initialisation.

    def verification(self, circle: Int64, term: int = 0) -> list[Round]:
        """PLAN, VERIFY and ANSWERS (Algorithm 3, lines 7–9; Algorithm 2, lines 16–18). Masks are
        shared in a circle of this order, and in one for each group."""
        topology = self._topology
        answers = verification_answer(topology.entries.lengths)
        by_owner, by_client = topology.by_owner, topology.by_client
        asked = topology.entries.only(by_client.values)
        positions = Ragged(topology.entries.offsets, topology.entry_positions).only(
            by_client.values
        )
        placement: Fields = {
            "places": Packed(topology.listed),
            "owned": Packed(topology.owned),
            "offsets": Packed(inner_offsets(by_owner, topology.entries)),
            "listed": Packed(
                Ragged(
                    topology.entries.offsets[by_owner.offsets],
                    topology.owned_row[topology.entries.values],
                )
            ),
            "root": Stored("root", ROOT_BYTES),
            "own": self.entries(self._own),
            "peers": self.entries(mask_peers(len(circle), [circle])),
            "group_peers": self.entries(self._group_peers(circle, term)),
        }
        questions: Fields = {
            "askers": self.entries(
                Ragged(by_client.offsets, topology.pair_owner[by_client.values])
            ),
            "offsets": Packed(inner_offsets(by_client, asked)),
            "positions": Packed(Ragged(asked.offsets[by_client.offsets], positions.values)),
        }
        up: Fields = {"answers": TableRows("answers", topology.n_pairs, by_client, answers)}
        down: Fields = {"answers": TableRows("answers", topology.n_pairs, by_owner, answers)}
        return [
            self._round(Phase.PLAN, placement, {}),
            self._round(Phase.VERIFY, questions, up),
            self._round(Phase.ANSWERS, down, {}),
        ]

    def _group_peers(self, circle: Int64, term: int) -> Ragged:
        n = len(circle)
        if not self._config.pooled:
            return Ragged.from_lengths(np.zeros(n, dtype=np.int64), circle[:0])
        group = groups(self._config, n, term)[circle]
        return mask_peers(n, [circle[group == one] for one in range(int(group.max()) + 1)])

    def entries(self, ids: Ragged) -> TableRows:
        """Entries of the directory of public keys."""
        n = self._topology.n_clients
        return TableRows("directory", n, ids, entry_bytes(n))

    def joining(self, key_client: int, joined: Int64) -> list[Round]:
        """HAND_ON and TAKE_OVER: a copy of the dense weights for those who join."""
        if not (self._order.shares_weights and len(joined)):
            return []
        topology, size = self._topology, self._sizes.copy + TAG_BYTES
        alone = self._own.where(np.arange(topology.n_clients) == key_client)
        copy = TableRows("copy", topology.n_clients, alone, size)
        return [
            Round(Phase.HAND_ON, np.array([key_client]), {}, {"content": copy}),
            Round(Phase.TAKE_OVER, joined, {"content": Stored("copy", size)}, {}),
        ]

    # What is kept.

    def everybody(self, phase: Phase) -> Round:
        """KEEP, GO_BACK: nothing but the header."""
        return self._round(phase, {}, {})

    @property
    def package(self) -> tuple[int, int]:
        """A bequest: bytes an item, and besides."""
        return self._sizes.package(self._item_tables)

    def estate_sizes(self, owned: Int64) -> Int64:
        """Of copies of so many items' states."""
        return self._sizes.node(self._item_tables).itemsize * owned + TAG_BYTES

    def checkpoint(self, heirs: Ragged) -> Round:
        """Owners leave copies with the server, which these heirs can open."""
        topology = self._topology
        keys = Ragged(heirs.offsets, np.arange(len(heirs.values)))
        own = self._own.where(topology.is_owner)
        return self._round(
            Phase.CHECKPOINT,
            {"number": Stored("number", NUMBER_BYTES), "heirs": self.entries(heirs)},
            {
                "content": TableRows(
                    "estates", topology.n_clients, own, self.estate_sizes(topology.owned.lengths)
                ),
                "keys": TableRows("estate keys", len(heirs.values), keys, SEALED_KEY_BYTES),
            },
        )

    # A pass.

    def _loss(self, batch: AnyBatch) -> LossRounds:
        if isinstance(batch, PooledBatch):
            return PoolRounds(self._topology, self._sizes, batch)
        return SampleRounds(self._topology, self._sizes, batch, self.contacts)

    def step(self, batch: AnyBatch) -> Iterator[Round]:
        """forward → loss → backward → update, as Algorithm 7."""
        loss = self._loss(batch)
        scope = loss.scope
        about = self._exchange.fan.about(scope)
        yield from self._forward(scope, loss)
        yield self._round(Phase.LOSS, loss.samples, loss.gradients, scope=scope)
        pushes = self._exchange.pushes(Kind.USER_BACKWARD, about, scope.users)
        down = {**loss.loss_rows, **self._exchange.wanted(about, scope.users)}
        yield self._round(Phase.GRADIENT, down, pushes, scope=scope)
        yield from self._backward(about, scope.users)

    def prediction(self) -> Iterator[Round]:
        """A forward pass for everybody, and the final vectors of all items."""
        yield from self._forward(Scope.everything(self._topology), None)

    def catalogue(self, phase: Phase, clients: Int64, numbers: int) -> Round:
        """All final item vectors to some clients, which answer with so many masked numbers."""
        items = Stored("finals", self._topology.n_items * self._sizes.row(Kind.ITEM_FINAL))
        return Round(phase, clients, {"items": items}, self._masked(numbers) if numbers else {})

    def sums(self, phase: Phase) -> Round:
        """One masked number of everybody."""
        return Round(phase, self._everybody, {}, self._masked(1))

    def _masked(self, count: int) -> Fields:
        return {"masked": TableRows("masked", self._topology.n_clients, self._own, 8 * count)}

    def _forward(self, scope: Scope, loss: LossRounds | None) -> Iterator[Round]:
        """Algorithm 4: [half exchange], L exchanges, then the final vectors that are needed."""
        topology, sequence = self._topology, self._order
        yield from self._whole_forward
        pushes, users = self._exchange.fan.for_users(topology, scope), topology.listing(scope.items)
        last = sequence.layers - 1
        down = {**self._arrivals_at(last), **self._exchange.wanted(pushes, users)}
        up = self._exchange.pushes(Kind.USER_FORWARD, pushes, users)
        if loss is not None:
            down, up = {**down, **loss.positions}, {**up, **loss.wishes}
        yield self._round(Phase.FORWARD, down, up, last)
        finals = Selection(topology.owned, scope.finals[topology.owned.values])
        width = self._sizes.row(loss.kind if loss else Kind.ITEM_FINAL)
        arrivals = self._exchange.arrivals(Kind.USER_FORWARD, pushes, scope.pairs)
        yield self._round(
            Phase.FINAL,
            {**arrivals, "wanted": Present(finals), **(loss.wishing if loss else {})},
            {
                "items": TableRows("finals", topology.n_items, finals, width),
                **(loss.granted if loss else {}),
            },
            scope=scope,
        )

    @cached_property
    def _whole_forward(self) -> list[Round]:
        """BUILD, and the exchanges before the last one: the same in every pass."""
        asked, pushed = self._exchange.whole_wanted, self._exchange.whole_pushes
        rounds: list[Round] = []
        if self._order.builds_users:
            only_pushes = {"pushes": pushed["pushes"]}
            rounds.append(self._round(Phase.BUILD, {}, only_pushes))
        for layer in range(self._order.layers - 1):
            down = {**self._arrivals_at(layer), **asked}
            rounds.append(self._round(Phase.FORWARD, down, pushed, layer))
        return rounds

    def _arrivals_at(self, layer: int) -> Fields:
        """What everybody pushed for this layer; for the first, what users are built from."""
        if layer:
            return self._exchange.whole_arrivals
        built = {"pushes": self._exchange.whole_arrivals["pushes"]}
        return built if self._order.builds_users else {}

    def _backward(self, about: Bits, users: Bits) -> Iterator[Round]:
        """Algorithm 6 after g^(L) was pushed, the update, and [half exchange]."""
        first = self._exchange.arrivals(
            Kind.USER_BACKWARD, about, users[self._topology.pair_client]
        )
        layers = self._order.layers_of(Phase.BACKWARD)
        if layers:
            down, up = {**first, **self._exchange.whole_wanted}, self._exchange.whole_pushes_back
            yield self._round(Phase.BACKWARD, down, up, layers[0])
            yield from self._whole_backward
        else:
            yield from self._update(first)

    @cached_property
    def _whole_backward(self) -> list[Round]:
        """The exchanges after the first, and the update: the same in every pass."""
        down = {**self._exchange.whole_arrivals_back, **self._exchange.whole_wanted}
        back = [
            self._round(Phase.BACKWARD, down, self._exchange.whole_pushes_back, layer)
            for layer in self._order.layers_of(Phase.BACKWARD)[1:]
        ]
        return [*back, *self._update(self._exchange.whole_arrivals_back)]

    def _update(self, arrivals: Fields) -> list[Round]:
        adam: Fields = {
            "learning_rate": Stored("learning rate", RATE.size),
            "batch_size": Stored("batch size", NUMBER_BYTES),
        }
        builds, shared = self._order.builds_users, self._shared(adam)
        own = {"user": self._exchange.whole_pushes_back["user"]} if builds else {}
        update = self._round(Phase.UPDATE, {**arrivals, **adam}, own)
        if not builds:
            return [update, *shared]
        built = {"users": self._exchange.whole_arrivals_back["users"], **adam}
        return [update, self._round(Phase.UPDATE_BUILT, built, {}), *shared]

    def _shared(self, adam: Fields) -> list[Round]:
        """The gradients of the dense weights go up as masked numbers, and their sum comes down."""
        count = self._sizes.shared
        if not self._order.shares_weights:
            return []
        together = np.zeros(self._topology.n_clients, dtype=np.int64)
        sums = Stored("shared", MASKED_BYTES * count)
        return [
            self._round(Phase.SUM_SHARED, {}, {"masked": Summed("shared", together, count)}),
            self._round(Phase.UPDATE_SHARED, {"sums": sums, **adam}, {}),
        ]


def mask_peers(n_clients: int, circles: Sequence[Int64]) -> Ragged:
    """The clients next to each one in its circle, `MASK_REACH` on either side; in the order of the
    circle, which is drawn, and not of their numbers."""
    ways = [way for way in range(-MASK_REACH, MASK_REACH + 1) if way]
    peers = [np.empty(0, dtype=np.int64)] * n_clients
    for order in circles:
        around = np.stack([np.roll(order, -way) for way in ways], axis=1)
        for client, row in zip(order.tolist(), around, strict=True):
            peers[client] = np.array(list(dict.fromkeys(row[row != client].tolist())), np.int64)
    return Ragged.from_arrays(peers)


def inner_offsets(outer: Ragged, inner: Ragged) -> Ragged:
    """For each row of `outer`, whose entries are rows of `inner`, where each of these begins."""
    lengths = outer.lengths + 1
    which = np.repeat(np.arange(len(outer)), lengths)
    number = np.arange(len(which)) - (outer.offsets[which] + which)
    first = outer.offsets[which]
    return Ragged.from_lengths(lengths, inner.offsets[first + number] - inner.offsets[first])
