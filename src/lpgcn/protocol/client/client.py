"""One client as its transport sees it: bytes in, bytes out.

Each method first opens and checks everything it was given, and only then changes anything, so a
bad message leaves the client as it was.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from lpgcn.protocol.client.newcomer import Newcomer
from lpgcn.protocol.client.party import Party
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.errors import UnexpectedMessageError
from lpgcn.protocol.phases import REQUESTS, START, PhaseOrder
from lpgcn.protocol.transcript import Opened, Witness, observe
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.messages import Header
from lpgcn.protocol.wire.sizes import Sizes


class Life(Protocol):
    """What a client is at the moment: see `newcomer` and `party`."""

    @property
    def owns(self) -> bool: ...

    @property
    def run(self) -> bytes: ...


class Client:
    """One party of the federation."""

    def __init__(self, profile: bytes, witness: Witness | None = None) -> None:
        about = msgspec.msgpack.decode(profile, type=Profile)
        self._about, self._witness = about, witness
        self._limit = Sizes.of(about.config).largest(
            about.n_users, about.n_items, about.config.batch_size
        )
        self._order, self._last = PhaseOrder.of(about.config), START
        self._opened: list[Opened] | None = None if witness is None else []
        self._life: Life = Newcomer(about, self._opened)

    def handle(self, request: bytes) -> bytes:
        """One message in, one message out; or a typed error, and nothing has changed."""
        message: m.Message = m.decode(request, REQUESTS, limit=self._limit)
        header = m.read_header(message, self._life.run or m.run_of(message), self._about.index)
        row = self._order.check(header, self._last, owns=self._life.owns)
        if type(message) is not row.request:
            raise UnexpectedMessageError(
                f"a message {type(message).__name__}, expected {row.request.__name__}"
            )
        if self._opened is not None:
            self._opened.clear()
        method: Any = getattr(self._life, row.method)
        reply, self._life = method(message, header)
        self._last = header
        self._report(message, header, len(request))
        place = m.encode_header(self._life.run, header, self._about.index)
        return m.encode(msgspec.structs.replace(reply, header=place))

    def _report(self, message: m.Message, header: Header, size: int) -> None:
        if self._witness is not None and self._opened is not None:
            observed = observe(
                self._about.name, "server", message, header, size, list(self._opened)
            )
            self._witness(observed)

    @property
    def party(self) -> Party:
        """This client after initialisation; what its own device asks of it does not travel."""
        if not isinstance(self._life, Party):
            raise UnexpectedMessageError("the client has not been verified yet")
        return self._life
