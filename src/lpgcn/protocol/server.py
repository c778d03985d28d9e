"""The server: it knows tokens, lists and ciphertexts, and sends every row where it is needed.

Written over `call(requests) -> {client: bytes}`; it knows no transport. The stages are named
methods in the order of the protocol: initialise (keys, tokens, plan, verification), then for every
step forward → loss → backward → update.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from lpgcn import fixed_point
from lpgcn.config import Config
from lpgcn.crypto import KEY_BYTES, SEAL_OVERHEAD, TOKEN_BYTES
from lpgcn.evaluation import METRICS
from lpgcn.model.batches import Batch, Batches
from lpgcn.plan import Plan, TokenGraph
from lpgcn.protocol import messages as m
from lpgcn.protocol.errors import (
    MalformedMessageError,
    ProtocolError,
    ReplayedMessageError,
    UnexpectedMessageError,
)
from lpgcn.protocol.keyring import ANSWER_KEYS, SHARED_BYTES
from lpgcn.protocol.ledger import Ledger
from lpgcn.protocol.loss_exchange import LossExchange
from lpgcn.protocol.messages import Header, Phase
from lpgcn.protocol.order import KEEP, PARTS
from lpgcn.protocol.passes import RATE
from lpgcn.protocol.rounds import Needs, Pushes, Round, Rounds
from lpgcn.protocol.routes import Routes
from lpgcn.protocol.sizes import Sizes
from lpgcn.protocol.transcript import Witness, observe
from lpgcn.random import Purpose, integers

Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
Bits = npt.NDArray[np.bool_]
Planner = Callable[[TokenGraph], Plan]
M = TypeVar("M", bound=m.Message)

MASK_REACH: Final = 3
"""A client shares masks with the three clients before and the three after it, in a circle."""


class Transport(Protocol):
    """Delivers a message to each of some clients and brings their answers."""

    def call(self, requests: Iterable[tuple[int, bytes]]) -> Mapping[int, bytes]:
        """Each request is (client, message); they come one by one, so that the first client can
        be at work while the message of the last is being written."""
        ...


class Server:
    """Coordinates one run."""

    def __init__(
        self,
        config: Config,
        n_clients: int,
        n_items: int,
        planner: Planner,
        transport: Transport,
        witness: Witness | None = None,
    ) -> None:
        self._config, self._n_clients, self._n_items = config, n_clients, n_items
        self._planner, self._transport, self._witness = planner, transport, witness
        self._sizes = Sizes.of(config)
        self._limit = self._sizes.largest(n_clients, n_items, config.batch_size)
        self._run = secrets.token_bytes(m.RUN_BYTES)
        self._step = 0
        self.ledger = Ledger()
        self.watch: Callable[[Phase], None] | None = None
        """Told about every call before it is made."""

    def _ask(
        self, header: Header, requests: Iterable[tuple[int, m.Message]], kind: type[M]
    ) -> dict[int, M]:
        """Send each client its message, with the header, and check every answer."""
        if self.watch is not None:
            self.watch(Phase(header.phase))
        sizes: dict[int, int] = {}
        answers = self._transport.call(self._encoded(header, requests, sizes))
        if answers.keys() != sizes.keys():
            raise MalformedMessageError(
                f"{len(sizes)} clients were asked and {len(answers)} answered"
            )
        replies = {client: self._read(client, answers[client], header, kind) for client in sizes}
        clients = np.fromiter(sizes, np.int64, len(sizes))
        up = np.fromiter((len(answers[client]) for client in sizes), np.int64, len(sizes))
        down = np.fromiter(sizes.values(), np.int64, len(sizes))
        self.ledger.add(Phase(header.phase), "down", clients, down)
        self.ledger.add(Phase(header.phase), "up", clients, up)
        return replies

    def _encoded(
        self, header: Header, requests: Iterable[tuple[int, m.Message]], sizes: dict[int, int]
    ) -> Iterator[tuple[int, bytes]]:
        """The requests as they travel; their sizes are noted."""
        for client, message in requests:
            place = m.encode_header(self._run, header, client)
            data = m.encode(msgspec.structs.replace(message, header=place))
            sizes[client] = len(data)
            yield client, data

    def _read(self, client: int, data: bytes, asked: Header, kind: type[M]) -> M:
        """A client's answer to what it was asked."""
        try:
            reply: M = m.decode(data, kind, limit=self._limit)
            header = m.read_header(reply, self._run, client)
            if header != asked:
                wrong = ReplayedMessageError if header < asked else UnexpectedMessageError
                raise wrong(f"a message for {header}, expected one for {asked}")
        except ProtocolError as error:
            raise type(error)(f"from client {client}: {error}") from error
        if self._witness is not None:
            self._witness(observe("server", f"client {client}", reply, header, len(data), []))
        return reply

    # Initialisation (Algorithms 2, 3 and 8).

    def initialise(self) -> None:
        """keys → tokens → plan → verification → parameters."""
        publics = self._collect_keys()
        listed = self._collect_lists()
        self.plan = self._planner(
            TokenGraph.from_pairs(
                np.repeat(np.arange(self._n_clients), [len(one) for one in listed]),
                np.concatenate(listed),
                n_clients=self._n_clients,
                n_tokens=self._n_items,
            )
        )
        self.routes = Routes(listed, self.plan.owner)
        self.ledger.roles(self.routes.is_owner)
        self._place(publics)
        self._verify(publics)
        keys = self.routes.listed.rows * self._n_items + self.routes.listed.values
        self._loss_exchange = LossExchange(self.routes, self._sizes, publics)
        self.batches = Batches(
            self._config.seed,
            self._config.batch_size,
            self._count_interactions(len(keys)),
            self._n_clients,
            self._n_items,
            np.sort(keys),
        )

    def _count_interactions(self, listed: int) -> int:
        """Σ|I_u|, the length of an epoch; of a client's own number the server learns nothing."""
        total = round(self._sum(Phase.SUM, 0, 1)[0])
        if not 0 < total <= listed:
            raise MalformedMessageError(
                f"the clients' numbers of items add up to {total}, expected 1 to {listed}, "
                "which is how many they listed"
            )
        return total

    def _collect_keys(self) -> list[bytes]:
        """Algorithm 2, lines 1–7: u_c makes S and seals it to everybody."""
        everyone = range(self._n_clients)
        ask = m.Ask(header=b"")
        asked = self._ask(Header(0, Phase.KEYS), ((u, ask) for u in everyone), m.PublicKey)
        publics = [asked[u].key for u in everyone]
        if any(len(key) != KEY_BYTES for key in publics):
            raise MalformedMessageError("a public key has another length than 32 bytes")
        self._key_client = key_client(self._config.seed, self._n_clients)
        request = m.PublicKeys(header=b"", keys=b"".join(publics))
        header = Header(0, Phase.SHARE_KEY)
        shared = self._ask(header, [(self._key_client, request)], m.SealedKeys)[self._key_client]
        width = SHARED_BYTES + SEAL_OVERHEAD
        rows = m.rows(shared.sealed, "sealed", count=self._n_clients, width=width)
        self._sealed_keys = [row.tobytes() for row in rows]
        return publics

    def _collect_lists(self) -> list[Int64]:
        """Lines 8–14 and Algorithm 3, line 1: tokens, from now on known by their place."""
        requests = [
            (u, m.SealedKey(header=b"", sealed=sealed))
            for u, sealed in enumerate(self._sealed_keys)
        ]
        lists = self._ask(Header(0, Phase.LIST), requests, m.Tokens)
        ask = [(self._key_client, m.Ask(header=b""))]
        everything = self._ask(Header(0, Phase.CATALOGUE), ask, m.Tokens)[self._key_client]
        catalogue = m.rows(everything.tokens, "tokens", count=self._n_items, width=TOKEN_BYTES)
        place_of = {row.tobytes(): place for place, row in enumerate(catalogue)}
        return [_places(u, lists[u].tokens, place_of) for u in range(self._n_clients)]

    def _place(self, publics: Sequence[bytes]) -> None:
        """Algorithm 3, lines 7–9."""
        routes, n = self.routes, self._n_clients
        requests = []
        for client in range(n):
            offsets, owned_rows = routes.neighbourhood(client)
            around = {(client + way) % n for way in range(-MASK_REACH, MASK_REACH + 1)} - {client}
            message = m.Placement(
                header=b"",
                places=m.pack_numbers(routes.listed[client]),
                owned=m.pack_numbers(routes.owned[client]),
                offsets=m.pack_numbers(offsets),
                listed=m.pack_numbers(owned_rows),
                own_rank=m.pack_numbers([routes.own_rank(client)]),
                peers=b"".join(publics[peer] for peer in sorted(around)),
            )
            requests.append((client, message))
        self._ask(Header(0, Phase.PLAN), requests, m.Reply)

    def _verify(self, publics: Sequence[bytes]) -> None:
        """Algorithm 2, lines 16–18: answers are sealed to the asker, and pass through here."""
        routes = self.routes
        requests, asked_by = [], {}
        for client in range(self._n_clients):
            owners, offsets, positions = routes.askers(client)
            asked_by[client] = owners, np.diff(offsets)
            message = m.Questions(
                header=b"",
                askers=b"".join(publics[owner] for owner in owners.tolist()),
                offsets=m.pack_numbers(offsets),
                positions=m.pack_numbers(positions),
            )
            requests.append((client, message))
        answers = self._ask(Header(0, Phase.VERIFY), requests, m.Answers)
        for_owner: dict[int, list[bytes]] = {
            u: [] for u in np.flatnonzero(routes.is_owner).tolist()
        }
        for client in range(self._n_clients):
            owners, counts = asked_by[client]
            lengths = SEAL_OVERHEAD + ANSWER_KEYS + (counts + 7) // 8
            parts = m.cut(answers[client].sealed, lengths, "sealed")
            for owner, answer in zip(owners.tolist(), parts, strict=True):
                for_owner[owner].append(answer)
        delivered = [
            (owner, m.Sealed(header=b"", answers=b"".join(parts)))
            for owner, parts in for_owner.items()
        ]
        self._ask(Header(0, Phase.ANSWERS), delivered, m.Reply)

    # A training step.

    def step(self, epoch: int, step: int, learning_rate: float) -> None:
        """forward → loss → backward → update, as Algorithm 7."""
        batch = self.batches.draw(epoch, step)
        needs = Needs.of_batch(self.routes, batch)
        rounds = Rounds(self.routes, self._config, needs)
        self._forward(rounds)
        self._loss(batch, needs, rounds)
        for one in rounds.backward():
            self._exchange(one, RATE.pack(learning_rate))

    def _forward(self, rounds: Rounds) -> None:
        """Algorithm 4: [half exchange], L exchanges, then the final vectors that are needed."""
        self._step += 1
        for one in rounds.forward():
            self._exchange(one)

    def _exchange(self, one: Round, learning_rate: bytes = b"") -> None:
        """Deliver what the last round pushed, collect what this one asks for."""
        header = Header(self._step, one.phase, one.layer)
        updates = one.phase in (Phase.UPDATE, Phase.UPDATE_BUILT)
        requests = self._deliveries(one, learning_rate if updates else b"")
        if one.phase == Phase.UPDATE_BUILT:
            self._ask(header, requests, m.Reply)
            return
        self._collect(one.asked, self._ask(header, requests, m.Push), one.phase)

    def _deliveries(self, one: Round, learning_rate: bytes) -> Iterator[tuple[int, m.Exchange]]:
        routes = self.routes
        items = routes.arriving.flagged(one.item_rows)
        users = routes.neighbours.flagged(one.user_rows)
        owned = routes.owned.flagged(one.asked.items[routes.owned.values])
        for client in one.clients:
            item, user = items.chosen(client), users.chosen(client)
            message = m.Exchange(
                header=b"",
                item_rows=self._item_rows[item].tobytes() if len(item) else b"",
                item_present=items.packed(client),
                user_rows=self._user_rows[user].tobytes() if len(user) else b"",
                user_present=users.packed(client),
                wanted=owned.packed(client),
                wants_user=bytes((int(one.asked.users[client]),)),
                learning_rate=learning_rate,
            )
            yield client, message

    def _collect(self, asked: Pushes, replies: Mapping[int, m.Push], phase: Phase) -> None:
        """The rows that travel next."""
        sizes, routes = self._sizes, self.routes
        width = sizes.user_forward if phase == Phase.FORWARD else sizes.user_backward
        item_rows = np.zeros((self._n_items, sizes.item), dtype=np.uint8)
        user_rows = np.zeros((self._n_clients, width), dtype=np.uint8)
        for client, reply in replies.items():
            owned = routes.owned[client]
            wanted = owned[asked.items[owned]]
            if len(wanted) or reply.items:
                item_rows[wanted] = m.rows(
                    reply.items, "items", count=len(wanted), width=sizes.item
                )
            if asked.users[client] or reply.user:
                count = int(asked.users[client])
                user_rows[client : client + count] = m.rows(
                    reply.user, "user", count=count, width=width
                )
        self._item_rows, self._user_rows = item_rows, user_rows

    # The loss (Algorithm 9).

    def _loss(self, batch: Batch, needs: Needs, rounds: Rounds) -> None:
        """Final vectors to the batch's clients; their gradients to the items' owners."""
        exchange = self._loss_exchange
        requests = exchange.requests(batch, self._item_rows)
        replies = self._ask(Header(self._step, Phase.LOSS), requests, m.Gradients)
        asked = rounds.gradient_pushes()
        clients = np.flatnonzero(rounds.touched).tolist()
        deliveries = exchange.deliveries(batch, needs, replies, asked, clients)
        pushed = self._ask(Header(self._step, Phase.BACKWARD), deliveries, m.Push)
        self._collect(asked, pushed, Phase.BACKWARD)

    # Prediction and measurement.

    def predict(self, clients: Iterable[int]) -> None:
        """Send the final item vectors to these clients, which keep them to rank on their own."""
        self._send_catalogue(clients, KEEP, m.Reply)

    def measure(self, part: str) -> tuple[list[float], int]:
        """Sums of the metrics over the clients that have held-out items, and how many these are."""
        replies = self._send_catalogue(range(self._n_clients), PARTS.index(part), m.Numbers)
        *totals, count = _add(replies, len(METRICS) * len(self._config.cutoffs) + 1)
        return [fixed_point.decode(total) for total in totals], round(fixed_point.decode(count))

    def take_loss(self) -> float:
        """The mean loss of a sample since the last call, an epoch ago."""
        return self._sum(Phase.SUM, 1, 1)[0] / self.batches.total

    def _send_catalogue(self, clients: Iterable[int], layer: int, kind: type[M]) -> dict[int, M]:
        with self.ledger.measuring():
            self._forward(Rounds(self.routes, self._config, Needs.everything(self.routes)))
            message = m.Exchange(header=b"", item_rows=self._item_rows.tobytes())
            requests = ((client, message) for client in clients)
            return self._ask(Header(self._step, Phase.RANK, layer), requests, kind)

    def _sum(self, phase: Phase, layer: int, count: int) -> list[float]:
        self._step += 1
        ask = m.Ask(header=b"")
        requests = ((client, ask) for client in range(self._n_clients))
        replies = self._ask(Header(self._step, phase, layer), requests, m.Numbers)
        return [fixed_point.decode(total) for total in _add(replies, count)]


def key_client(seed: int, n_clients: int) -> int:
    """u_c, drawn at random (Algorithm 2, line 5)."""
    return int(integers(seed, Purpose.KEY_CLIENT, [0], n_clients)[0])


def _places(client: int, tokens: bytes, place_of: Mapping[bytes, int]) -> Int64:
    """The catalogue places of what a client listed."""
    listed = m.split(tokens, TOKEN_BYTES, "tokens")
    if len(set(listed)) != len(listed) or not place_of.keys() >= set(listed):
        raise MalformedMessageError(
            f"client {client} listed a token twice, or one that is not in the catalogue"
        )
    return np.array([place_of[token] for token in listed], dtype=np.int64)


def _add(replies: Mapping[int, m.Numbers], count: int) -> list[int]:
    """The sum of the clients' masked numbers modulo 2^64, in which the masks cancel."""
    total = np.zeros(count, dtype=np.uint64)
    for reply in replies.values():
        if len(reply.masked) != 8 * count:
            raise MalformedMessageError(f"{len(reply.masked)} bytes for {count} numbers")
        total += np.frombuffer(reply.masked, dtype="<u8")
    return [int(number) for number in total]
