"""What a carrier of clients shows, and how it connects."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lpgcn.cli.logs import EventLog
from lpgcn.cli.program import Stopped
from lpgcn.cli.roll import clients
from lpgcn.cli.terminal import say, warn
from lpgcn.errors import LpgcnError
from lpgcn.files import StorageError
from lpgcn.runtime.hosts.nats.carrier import Carrier
from lpgcn.runtime.runs.carrying import CarryingEvents, Participation, Vehicle, carry
from lpgcn.runtime.runs.passengers import Passenger

SECONDS_BETWEEN: Final = 30.0
"""Two lines about progress."""

if TYPE_CHECKING:
    from lpgcn.runtime.hosts.nats.jwt import Nkey


class _Carrying(CarryingEvents):
    """Counts steps, and what is the same is told once."""

    def __init__(self) -> None:
        self._steps, self._told, self._unreachable = 0, time.monotonic(), False
        self._indices: Mapping[int, int] = {}

    def waiting(self, reason: str, seconds: float) -> None:
        if not self._unreachable:
            self._unreachable = True
            self.unreachable(reason)

    def welcomed(self, indices: Mapping[int, int]) -> None:
        self._unreachable = False
        if indices != self._indices:
            self._indices = dict(indices)
            self.entered(sorted(indices.values()))

    def reconnected(self) -> None:
        self._unreachable = False
        self.connected_again()

    def step_done(self) -> None:
        self._steps += 1
        now = time.monotonic()
        if now - self._told >= SECONDS_BETWEEN:
            self._told = now
            self.progress(self._steps)

    def unreachable(self, reason: str) -> None: ...
    def entered(self, numbers: list[int]) -> None: ...
    def connected_again(self) -> None: ...
    def progress(self, steps: int) -> None: ...


class CarryingDisplay(_Carrying):
    """Lines on standard error."""

    def unreachable(self, reason: str) -> None:
        say(f"the broker cannot be reached ({reason}); trying again until it can")

    def entered(self, numbers: list[int]) -> None:
        if len(numbers) == 1:
            say(f"connected: this is member {numbers[0]} of the federation")
        else:
            say(f"connected with {clients(len(numbers))}, members {numbers[0]} to {numbers[-1]}")

    def term_began(self, fingerprint: str, members: int) -> None:
        say(f"a term with {members:,} members; fingerprint of their keys: {fingerprint}")
        say("every member should see these words: compare them with another one, by phone")

    def progress(self, steps: int) -> None:
        say(f"{steps:,} steps done")

    def disconnected(self) -> None:
        warn("the connection is lost; reconnecting")

    def connected_again(self) -> None:
        say("connected again")

    def storage_failed(self, error: StorageError) -> None:
        warn(f"{error}; the server asks again")

    def request_failed(self, error: LpgcnError) -> None:
        warn(f"a request of the server failed: {error}")


class CarryingLog(_Carrying):
    """Lines of JSON."""

    def __init__(self, log: EventLog, name: str) -> None:
        super().__init__()
        self._log, self._name = log, name

    def _tell(self, event: str, *, level: str = "info", **fields: Any) -> None:
        self._log(event, level=level, carrier=self._name, **fields)

    def unreachable(self, reason: str) -> None:
        self._tell("broker_unreachable", level="warning", reason=reason)

    def entered(self, numbers: list[int]) -> None:
        self._tell("connected", clients=len(numbers), first=numbers[0])

    def term_began(self, fingerprint: str, members: int) -> None:
        self._tell("term_began", fingerprint=fingerprint, members=members)

    def progress(self, steps: int) -> None:
        self._tell("progress", step=steps)

    def disconnected(self) -> None:
        self._tell("disconnected", level="warning")

    def connected_again(self) -> None:
        self._tell("reconnected")

    def storage_failed(self, error: StorageError) -> None:
        self._tell("storage_failed", level="warning", message=str(error))

    def request_failed(self, error: LpgcnError) -> None:
        """Not its text, which may be about vectors: logs are collected."""
        self._tell("request_failed", level="warning", error=type(error).__name__)


def carried(
    log: EventLog | None, name: str, options: dict[str, Any], people: list[Passenger],
    participation: Participation,
) -> tuple[str, Vehicle]:  # fmt: skip
    """Carry these clients until the run is over, and be stopped by whoever stops the command."""
    events = CarryingDisplay() if log is None else CarryingLog(log, name)
    try:
        text, vehicle = carry(
            options, name, people, participation, events=events, started=_stop_on_signal,
        )  # fmt: skip
    except KeyboardInterrupt:
        text = ""
    if not text:
        raise Stopped("the same command goes on")
    if log is not None:
        log("ended", carrier=name, clients=len(vehicle.clients), text=text)
    return text, vehicle


def _stop_on_signal(carrier: Carrier) -> None:
    """SIGTERM and Ctrl-C: after the present request, and with a goodbye."""

    def stop(*_: Any) -> None:
        carrier.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


def _kept_key(path: Path) -> Nkey:
    from lpgcn.runtime.hosts.nats.credentials import read_private, write_private
    from lpgcn.runtime.hosts.nats.jwt import Nkey, NkeyKind

    if path.exists():
        seed = read_private(path, "the seed of a newcomer's key").decode().strip()
        return Nkey(seed, NkeyKind.USER)
    key = Nkey.generate(NkeyKind.USER)
    write_private(path, key.reveal())
    return key


def connect_options(
    path: Path, broker: str | None, name: str | None, state: Path
) -> tuple[str, dict[str, Any]]:
    """The carrier's name and how it reaches the broker. An invitation is used once: what came of it
    is kept in the client's own folder."""
    from lpgcn.runtime.hosts.nats.credentials import Credentials
    from lpgcn.runtime.hosts.nats.enrolment import enrol

    def load(place: Path) -> Credentials:
        found = Credentials.load(place)
        return found if broker is None else found.at(broker)

    own = state / "own.credentials"
    if own.exists() and Credentials.read(path).role == "invited":
        # The invitation may have expired since it was used.
        path = own
    credentials = load(path)
    if credentials.role == "invited":
        if name is None:
            raise click.UsageError(f"{path} is an invitation: say with --name who you are.")
        # Kept before anybody is asked: who is stopped in the middle asks again with this key.
        key = _kept_key(state / "own.seed")
        credentials = asyncio.run(enrol(credentials, name, key=key))
        credentials.save(own)
        (state / "own.seed").unlink()
    return credentials.name, credentials.connect_options()
