"""The server's part in a run, over `call(requests) -> {client: bytes}`; it knows no transport.

initialise (keys, tokens, plan, verification), then for every step forward → loss → backward →
update. What is sent in each round is laid out in `script`; here it is sent, and read.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import Protocol

import numpy as np

from lpgcn import fixed_point
from lpgcn.config import Config
from lpgcn.evaluation import METRICS, Evaluation
from lpgcn.model.batches import Batches
from lpgcn.model.sampling import listing_keys
from lpgcn.plan import Plan, TokenGraph
from lpgcn.protocol.errors import (
    MalformedMessageError,
    ProtocolError,
    ReplayedMessageError,
    UnexpectedMessageError,
)
from lpgcn.protocol.ledger import Ledger
from lpgcn.protocol.phases import Phase, describe
from lpgcn.protocol.server.script import Script, mask_peers, opening
from lpgcn.protocol.server.topology import Topology
from lpgcn.protocol.transcript import Witness, observe
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.fields import Round, Stores
from lpgcn.protocol.wire.messages import Header
from lpgcn.protocol.wire.reading import RATE, pack_numbers
from lpgcn.protocol.wire.sizes import Sizes
from lpgcn.ragged import Bits, Int64, Ragged
from lpgcn.random import Purpose, integers, permutation

Planner = Callable[[TokenGraph], Plan]
Watch = Callable[[Phase], None]
"""Told about every call before it is made."""
RANK_PHASES = {"valid": Phase.RANK_VALID, "test": Phase.RANK_TEST}


class Transport(Protocol):
    """Delivers a message to each of some clients and brings their answers."""

    def call(self, requests: Iterable[tuple[int, bytes]]) -> Iterable[tuple[int, bytes]]:
        """Each request is (client, message); they come one by one, so that the first client can
        be at work while the message of the last is being written. So do the answers, in any order:
        the first are read while the last client is still at work."""
        ...


class Caller:
    """Carries rounds out: writes the requests, checks and reads the replies, keeps the ledger."""

    def __init__(
        self, config: Config, n_clients: int, n_items: int, transport: Transport,
        witness: Witness | None, watch: Watch | None,
    ) -> None:  # fmt: skip
        self._transport, self._witness, self._watch = transport, witness, watch
        self._limit = Sizes.of(config).largest(n_clients, n_items, config.batch_size)
        self._run = secrets.token_bytes(m.RUN_BYTES)
        self.ledger = Ledger(np.zeros(n_clients, dtype=np.bool_))
        self.stores: Stores = {}

    def planned(self, is_owner: Bits) -> Caller:
        """The same, from the plan on: the ledger tells owners from others."""
        caller = copy(self)
        caller.ledger = Ledger(is_owner, before=self.ledger)
        return caller

    def carry_out(self, round_: Round, pass_number: int) -> None:
        """What goes down comes out of the stores, what comes up goes into them."""
        if self._watch is not None:
            self._watch(round_.phase)
        header, kind = round_.header(pass_number), round_.kinds[1]
        sent: list[int] = []
        asked, answered = set(round_.called.tolist()), dict[int, int]()
        # Not into the stores yet: requests to the last clients are still filled from there.
        arrived: Stores = {}
        for field in round_.up.values():
            field.prepare(arrived)
        for client, data in self._transport.call(self._requests(round_, header, sent)):
            if client in answered or client not in asked:
                raise MalformedMessageError(
                    f"{len(asked)} clients were asked, not client {client}, or it answered twice"
                )
            answered[client] = len(data)
            try:
                round_.read(arrived, client, self._read(client, data, header, kind))
            except ProtocolError as error:
                raise type(error)(f"from client {client}: {error}") from error
        if len(answered) != len(asked):
            raise MalformedMessageError(
                f"{len(asked)} clients were asked and {len(answered)} answered"
            )
        self.stores |= arrived
        clients = np.fromiter(answered, np.int64, len(answered))
        up = np.fromiter(answered.values(), np.int64, len(answered))
        self.ledger.add(round_.phase, "down", round_.called, np.array(sent, dtype=np.int64))
        self.ledger.add(round_.phase, "up", clients, up)

    def _requests(
        self, round_: Round, header: Header, sent: list[int]
    ) -> Iterator[tuple[int, bytes]]:
        """The requests as they travel; their sizes are noted."""
        for client in round_.called.tolist():
            place = m.encode_header(self._run, header, client)
            data = m.encode(round_.request(self.stores, client, place))
            sent.append(len(data))
            yield client, data

    def _read(self, client: int, data: bytes, asked: Header, kind: type[m.Message]) -> m.Message:
        """A client's answer to what it was asked."""
        reply: m.Message = m.decode(data, kind, limit=self._limit)
        header = m.read_header(reply, self._run, client)
        if header != asked:
            wrong = ReplayedMessageError if header < asked else UnexpectedMessageError
            raise wrong(f"a message for {describe(header)}, expected one for {describe(asked)}")
        if self._witness is not None:
            self._witness(observe("server", f"client {client}", reply, header, len(data), []))
        return reply


class Server:
    """Coordinates one run. It is made by `initialise`, with a plan and verified clients."""

    def __init__(
        self, config: Config, caller: Caller, plan: Plan, topology: Topology, script: Script
    ) -> None:
        self._config, self._caller, self._script = config, caller, script
        self.plan, self.topology = plan, topology
        self._pass = 0
        keys = listing_keys(topology.listed, topology.n_items)
        self.batches = Batches(
            config.seed,
            config.batch_size,
            self._count_interactions(len(keys)),
            topology.n_clients,
            topology.n_items,
            np.sort(keys),
        )

    @property
    def ledger(self) -> Ledger:
        return self._caller.ledger

    def _count_interactions(self, listed: int) -> int:
        """Σ|I_u|, the length of an epoch; of a client's own number the server learns nothing."""
        total = round(self._sum(Phase.COUNT))
        if not 0 < total <= listed:
            raise MalformedMessageError(
                f"the clients' numbers of items add up to {total}, expected 1 to {listed}, "
                "which is how many they listed"
            )
        return total

    def step(self, epoch: int, step: int, learning_rate: float) -> None:
        """forward → loss → backward → update, as Algorithm 7."""
        batch, stores = self.batches.draw(epoch, step), self._caller.stores
        stores["learning rate"], stores["batch size"] = (
            RATE.pack(learning_rate),
            pack_numbers([batch.size]),
        )
        self._carry_out(self._script.step(batch))

    def predict(self, clients: Iterable[int]) -> None:
        """Send the final item vectors to these clients, which keep them to rank on their own."""
        self._catalogue(Phase.PREDICT, np.array(list(clients), dtype=np.int64), 0)

    def measure(self, part: str) -> Evaluation:
        """The means of the metrics over the clients that have held-out items."""
        names = [f"{metric}@{k}" for k in self._config.cutoffs for metric in METRICS]
        everybody = np.arange(self.topology.n_clients)
        self._catalogue(RANK_PHASES[part], everybody, len(names) + 1)
        *totals, count = self._masked_totals()
        return Evaluation.from_totals(names, totals, round(fixed_point.decode(count)))

    def take_loss(self) -> float:
        """The mean loss of a sample since the last call, an epoch ago."""
        return self._sum(Phase.SUM_LOSS) / self.batches.total

    def _carry_out(self, rounds: Iterable[Round]) -> None:
        self._pass += 1
        for one in rounds:
            self._caller.carry_out(one, self._pass)

    def _catalogue(self, phase: Phase, clients: Int64, numbers: int) -> None:
        with self.ledger.measuring():
            self._carry_out(self._script.prediction())
            self._caller.carry_out(self._script.catalogue(phase, clients, numbers), self._pass)

    def _sum(self, phase: Phase) -> float:
        self._carry_out([self._script.sums(phase)])
        return fixed_point.decode(self._masked_totals()[0])

    def _masked_totals(self) -> list[int]:
        """The sums of the clients' masked numbers modulo 2^64, in which the masks cancel."""
        rows = self._caller.stores["masked"]
        masked = np.frombuffer(b"".join(rows), dtype="<u8").reshape(len(rows), -1)
        return [int(total) for total in masked.sum(axis=0, dtype=np.uint64)]


def initialise(
    config: Config,
    n_clients: int,
    n_items: int,
    planner: Planner,
    transport: Transport,
    *,
    witness: Witness | None = None,
    watch: Watch | None = None,
) -> Server:
    """keys → tokens → plan → verification (Algorithms 2, 3 and 8): a server that can train."""
    caller = Caller(config, n_clients, n_items, transport, witness, watch)
    for one in opening(n_clients, n_items, key_client(config.seed, n_clients), None):
        caller.carry_out(one, 0)
    listed = _places(caller.stores, n_clients, n_items)
    plan = planner(
        TokenGraph.from_pairs(listed.rows, listed.values, n_clients=n_clients, n_tokens=n_items)
    )
    # Handles and mask peers are the server's secret, and different in every run.
    seed = secrets.randbits(63)
    topology = Topology(listed, plan.owner, seed)
    script = Script(topology, config)
    caller = caller.planned(topology.is_owner)
    peers = mask_peers(n_clients, permutation(seed, Purpose.MASK_CIRCLE, n_clients))
    for one in script.verification(peers):
        caller.carry_out(one, 0)
    return Server(config, caller, plan, topology, script)


def key_client(seed: int, n_clients: int) -> int:
    """u_c, drawn at random (Algorithm 2, line 5)."""
    return int(integers(seed, Purpose.KEY_CLIENT, [0], n_clients)[0])


def _places(stores: Stores, n_clients: int, n_items: int) -> Ragged:
    """Algorithm 3, line 1: what was listed, from now on known by its place in the catalogue."""
    (catalogue,) = stores["catalogue"].values()
    place_of = {token: place for place, token in enumerate(catalogue)}
    if len(place_of) != n_items or len(catalogue) != n_items:
        raise MalformedMessageError(
            f"a catalogue of {len(catalogue)} tokens, {len(place_of)} of them different; expected "
            f"{n_items}"
        )
    lists = []
    for client in range(n_clients):
        tokens = stores["lists"][client]
        if len(set(tokens)) != len(tokens) or not place_of.keys() >= set(tokens):
            raise MalformedMessageError(
                f"client {client} listed a token twice, or one that is not in the catalogue"
            )
        lists.append(np.array([place_of[token] for token in tokens], dtype=np.int64))
    return Ragged.from_arrays(lists)
