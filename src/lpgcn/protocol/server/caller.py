"""Carries rounds out over a transport, which alone knows where the clients are."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from lpgcn.array_types import Bits, Int64
from lpgcn.config import Config
from lpgcn.protocol.errors import (
    MalformedMessageError,
    ProtocolError,
    ReplayedMessageError,
    UnexpectedMessageError,
)
from lpgcn.protocol.ledger import Ledger
from lpgcn.protocol.phases import Phase, describe
from lpgcn.protocol.transcript import Witness, observe
from lpgcn.protocol.wire import encoding
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.encoding import STRETCH_PASSES, Header
from lpgcn.protocol.wire.fields import Round, Stores
from lpgcn.protocol.wire.sizes import Sizes

Watch = Callable[[Phase], None]
"""Told about every call before it is made."""


class Transport(Protocol):
    """Delivers a message to each of some clients and brings their answers."""

    def call(self, requests: Iterable[tuple[int, bytes]]) -> Iterable[tuple[int, bytes]]:
        """Each request is (client, message); they come one by one, so that the first client can
        be at work while the message of the last is being written. So do the answers, in any order:
        the first are read while the last client is still at work."""
        ...


@dataclass(frozen=True)
class Line:
    """The way to the clients, and who is told about what passes on it."""

    transport: Transport
    witness: Witness | None = None
    watch: Watch | None = None


class Caller:
    """Writes the requests of a round, checks and reads the replies, keeps the ledger.

    Within a term clients are known by their *rank* among its members; outside of here, and in
    messages, by their number in the federation, which they keep for ever.
    """

    def __init__(
        self, config: Config, members: Int64, n_items: int, line: Line, run: bytes | None = None
    ) -> None:
        self.members, self._line = members, line
        self._numbers = members.tolist()
        self._rank = {number: rank for rank, number in enumerate(self._numbers)}
        self._limit = Sizes.of(config).largest(len(members), n_items, config.batch_size)
        self.run = run or secrets.token_bytes(encoding.RUN_BYTES)
        self.ledger = Ledger(np.zeros(len(members), dtype=np.bool_))
        self.stores: Stores = {}
        self._pass = 0

    def begin_stretch(self, number: int) -> None:
        self._pass = number * STRETCH_PASSES

    def continue_pass(self, other: Caller) -> None:
        """What another caller began, to the same clients."""
        self._pass = other._pass

    def take_ledger(self, is_owner: Bits, before: Ledger) -> None:
        """Who is an owner is known from the plan on."""
        self.ledger = Ledger(is_owner, before.lines())

    def begin_pass(self) -> None:
        if (self._pass + 1) % STRETCH_PASSES == 0:
            raise UnexpectedMessageError(
                f"a stretch has {STRETCH_PASSES} passes, and all are used; stop the run, and it "
                "goes on in the next one"
            )
        self._pass += 1

    def carry_out(self, round_: Round) -> None:
        """What goes down comes out of the stores, what comes up goes into them."""
        if self._line.watch is not None:
            self._line.watch(round_.phase)
        header, kind = round_.header(self._pass), round_.kinds[1]
        sent: list[int] = []
        asked, answered = set(round_.called.tolist()), dict[int, int]()
        # Not into the stores yet: requests to the last clients are still filled from there.
        arrived: Stores = {}
        for field in round_.up.values():
            field.prepare(arrived)
        for number, data in self._line.transport.call(self._requests(round_, header, sent)):
            rank = self._rank.get(number, -1)
            if rank in answered or rank not in asked:
                raise MalformedMessageError(
                    f"{len(asked)} clients were asked, not client {number}, or it answered twice"
                )
            answered[rank] = len(data)
            try:
                round_.read(arrived, rank, self._read(number, data, header, kind))
            except ProtocolError as error:
                raise type(error)(f"from client {number}: {error}") from error
        if len(answered) != len(asked):
            raise MalformedMessageError(
                f"{len(asked)} clients were asked and {len(answered)} answered"
            )
        self.stores |= arrived
        ranks = np.fromiter(answered, np.int64, len(answered))
        up = np.fromiter(answered.values(), np.int64, len(answered))
        self.ledger.add(round_.phase, "down", round_.called, np.array(sent, dtype=np.int64))
        self.ledger.add(round_.phase, "up", ranks, up)

    def _requests(
        self, round_: Round, header: Header, sent: list[int]
    ) -> Iterator[tuple[int, bytes]]:
        """The requests as they travel; their sizes are noted."""
        for rank in round_.called.tolist():
            number = self._numbers[rank]
            place = encoding.encode_header(self.run, header, number)
            data = encoding.encode(round_.request(self.stores, rank, place))
            sent.append(len(data))
            yield number, data

    def _read(self, number: int, data: bytes, asked: Header, kind: type[m.Message]) -> m.Message:
        """A client's answer to what it was asked."""
        reply: m.Message = encoding.decode(data, kind, limit=self._limit)
        header = encoding.read_header(reply, self.run, number)
        if header != asked:
            wrong = ReplayedMessageError if header < asked else UnexpectedMessageError
            raise wrong(f"a message for {describe(header)}, expected one for {describe(asked)}")
        if self._line.witness is not None:
            self._line.witness(observe("server", f"client {number}", reply, header, len(data), []))
        return reply
