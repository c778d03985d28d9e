"""One client as its transport sees it: bytes in, bytes out.

Each method first opens and checks everything it was given, and only then changes anything, so a
bad message leaves the client as it was. A message that comes again gets the same answer again, and
changes nothing: answers get lost on a network.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from lpgcn.checkpoints import Checkpoints, InMemory
from lpgcn.model.sampling import NO_ITEMS, SamplingError
from lpgcn.protocol.client.newcomer import Life, Newcomer
from lpgcn.protocol.client.party import Party
from lpgcn.protocol.client.profile import Device, Profile
from lpgcn.protocol.errors import (
    MalformedMessageError,
    UnexpectedMessageError,
    WrongRunError,
)
from lpgcn.protocol.phases import REQUESTS, Phase, PhaseOrder, restarted
from lpgcn.protocol.transcript import Opened, Witness, observe
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire import reading
from lpgcn.protocol.wire.messages import STRETCHES, Header
from lpgcn.protocol.wire.sizes import Sizes


class Client:
    """One party of the federation."""

    def __init__(
        self,
        profile: bytes,
        witness: Witness | None = None,
        checkpoints: Checkpoints | None = None,
        item_features: bytes = b"",
        *,
        least_members: int = 1,
    ) -> None:
        """Who comes back with `checkpoints` of an earlier process waits for RESUME. Features of
        items are public, and the same for all. A term of fewer than `least_members` is refused; in
        an experiment on one machine nobody hides from anybody."""
        about = msgspec.msgpack.decode(profile, type=Profile)
        if not about.train:
            raise SamplingError(NO_ITEMS.format("a client"))
        opened: list[Opened] | None = None if witness is None else []
        self._device = Device(
            about, checkpoints or InMemory(), opened, item_features, least_members
        )
        self._device.check_features()
        self._witness, self._order = witness, PhaseOrder.of(about.config)
        self._limit = self._largest(about.n_users)
        self._last = restarted(self._device.checkpoints.stretch)
        self._life: Life = Newcomer(self._device)
        self._answered, self._answer = b"", b""
        """A digest of the last request, and what was answered."""

    def _largest(self, members: int) -> int:
        about = self._device.about
        return Sizes.of(about.config).largest(members, about.n_items, about.config.batch_size)

    def handle(self, request: bytes) -> bytes:
        """One message in, one message out; or a typed error, and nothing has changed."""
        digest = sha256(request).digest()
        if digest == self._answered:
            return self._answer
        message: m.Message = m.decode(request, REQUESTS, limit=self._limit)
        begins = isinstance(message, m.Resume | m.Begin)
        run = m.run_of(message) if begins else self._life.run or m.run_of(message)
        index = self._device.about.index
        header = m.read_header(message, run, index)
        row = self._order.check(header, self._last, owns=self._life.owns)
        if type(message) is not row.request:
            raise UnexpectedMessageError(
                f"a message {type(message).__name__}, expected {row.request.__name__}"
            )
        if self._device.opened is not None:
            self._device.opened.clear()
        reply, life = self._replied(message, header, row.method)
        self._life, self._last = life, header
        if isinstance(message, m.Begin):
            self._limit = self._largest(reading.one_number(message.members, "members"))
        elif isinstance(message, m.Resume) and isinstance(life, Party):
            self._limit = self._largest(life.members)
        self._report(message, header, len(request))
        place = m.encode_header(run, header, index)
        answer = m.encode(msgspec.structs.replace(reply, header=place))
        self._answered, self._answer = digest, answer
        return answer

    def _replied(self, message: m.Message, header: Header, name: str) -> tuple[m.Message, Life]:
        if isinstance(message, m.Resume):
            return m.Reply(), self._resumed(message, header)
        life = self._life
        if isinstance(message, m.Begin) and isinstance(life, Party):
            life = Newcomer(self._device, life.belongings())
        method: Any = getattr(life, name, None)
        if method is None:
            raise UnexpectedMessageError(
                f"a message for {Phase(header.phase).name}, but this client has come no further "
                f"than being a {type(life).__name__}"
            )
        replied: tuple[m.Message, Life] = method(message, header)
        return replied

    def _resumed(self, message: m.Resume, header: Header) -> Life:
        """A stretch begins. From now on nothing of an earlier one can be sealed again, even if this
        process ends."""
        number = reading.one_number(message.number, "number")
        if header.stretch >= STRETCHES:
            raise MalformedMessageError(f"stretch {header.stretch}; there are {STRETCHES} at most")
        life: Life = Newcomer(self._device)
        if number:
            life = Party.resumed(self._device, number)
            if life.run != m.run_of(message):
                raise WrongRunError(f"checkpoint {number} is of another run")
            self._device.check_members(life.members)
        self._device.checkpoints.begin_stretch(header.stretch)
        return life

    def _report(self, message: m.Message, header: Header, size: int) -> None:
        if self._witness is not None and self._device.opened is not None:
            observed = observe(
                self._device.about.name, "server", message, header, size,
                list(self._device.opened),
            )  # fmt: skip
            self._witness(observed)

    @property
    def verified(self) -> bool:
        """Whether initialisation is over."""
        return isinstance(self._life, Party)

    @property
    def party(self) -> Party:
        """This client after initialisation; what its own device asks of it does not travel."""
        if not isinstance(self._life, Party):
            raise UnexpectedMessageError("the client has not been verified yet")
        return self._life
