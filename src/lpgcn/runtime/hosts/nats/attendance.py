"""Who is there: carriers and their clients, as they come, are silent, come back and go.

A book that nothing is sent from. Two threads use it, and whoever writes holds the switchboard's
lock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

import msgspec

from lpgcn.runtime.hosts.nats import frames as f
from lpgcn.runtime.hosts.nats.roster import Roster


class Presence(msgspec.Struct, frozen=True):
    """A client that is there."""

    name: str
    session: str
    number: int
    checkpoints: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Session:
    """A carrier's session as the server knows it."""

    name: str
    session: str
    indices: dict[int, int]
    presences: dict[int, Presence]
    heard: float
    silent: bool = False

    def subject(self, last: str | int) -> str:
        return f"down.{self.name}.{self.session}.{last}"


@dataclass(frozen=True, slots=True, eq=False)
class Challenge:
    """A new session asks for the place of an old one, which has been asked whether it lives."""

    old: str
    new: str
    hello: f.Hello
    since: float


class Attendance:
    """The lines of all carriers, and whose fate a call still has to be told."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self.lines: dict[str, Session] = {}
        self._places: dict[int, tuple[Session, int]] = {}
        self._watched: Set[int] = frozenset()
        self._asked: Set[int] = frozenset()
        self._restarted, self._gone = set[int](), set[int]()
        self._online: float | None = time.monotonic()
        """Since when there is a connection."""

    def disconnect(self) -> None:
        self._online = None

    def reconnect(self) -> None:
        self._online = time.monotonic()

    def silence(self, line: Session, now: float) -> float:
        """For how long nothing was heard, as far as we could have heard it. A call asks without the
        lock, so that the connection may be lost meanwhile."""
        online = self._online
        return 0.0 if online is None else now - max(line.heard, online)

    def heard_within(self, seconds: float) -> list[Session]:
        now = time.monotonic()
        return [line for line in self.lines.values() if self.silence(line, now) <= seconds]

    def fall_silent(self, seconds: float) -> list[Session]:
        """Those that have been silent for longer, each told once until it is heard again."""
        now, found = time.monotonic(), []
        for line in self.lines.values():
            if self.silence(line, now) > seconds and not line.silent:
                line.silent = True
                found.append(line)
        return found

    def place(self, index: int) -> tuple[Session, int] | None:
        """Where a client is at present: its carrier, and its number there."""
        return self._places.get(index)

    def watch(self, members: Iterable[int]) -> None:
        """Whose restart or leave is to be told, even if no call asks them."""
        self._watched = frozenset(members)
        self._restarted.clear()
        self._gone.clear()

    def begin_call(self, asked: Set[int]) -> None:
        """The fate of those whom it asks, more and more, concerns it as well; what happened to
        others before does not."""
        self._asked = asked
        self._restarted &= self._watched
        self._gone &= self._watched

    def end_call(self) -> None:
        self._asked = frozenset()

    def take_changes(self) -> tuple[frozenset[int], frozenset[int]]:
        """Who was restarted and who is gone, of those whom it concerns; told once."""
        concerned = self._watched | self._asked
        restarted, gone = frozenset(self._restarted & concerned), frozenset(self._gone & concerned)
        if restarted or gone:
            self._restarted.clear()
            self._gone.clear()
        return restarted, gone

    def admit(self, name: str, session: str, offers: Sequence[f.Offer]) -> tuple[Session, bool]:
        """A carrier's line, and whether its session is a new one or the same once more."""
        indices = self._roster.assign_all(name, offers)
        presences = {
            indices[offer.number]: Presence(name, session, offer.number, offer.checkpoints)
            for offer in offers
        }
        line = self.lines.get(name)
        new = line is None or line.session != session
        if line is not None:
            if new:
                self._restarted |= self._concerned(line.presences.keys() & presences.keys())
            self._leave(line.presences.keys() - presences.keys())
        if line is None or new:
            line = self.lines[name] = Session(name, session, indices, presences, time.monotonic())
        else:
            line.indices, line.presences = indices, presences
        self._restarted |= self._gone & presences.keys()
        self._gone -= presences.keys()
        self._places |= {index: (line, number) for number, index in indices.items()}
        return line, new

    def part_with(self, line: Session, numbers: Iterable[int]) -> tuple[int, ...]:
        """Some clients of a carrier say goodbye; their indices. A carrier without any is gone."""
        leaving = {line.indices[number] for number in numbers if number in line.indices}
        self._leave(leaving)
        line.indices = {n: index for n, index in line.indices.items() if index not in leaving}
        line.presences = {i: one for i, one in line.presences.items() if i not in leaving}
        if not line.presences:
            del self.lines[line.name]
        return tuple(sorted(leaving))

    def _leave(self, indices: Iterable[int]) -> None:
        indices = set(indices)
        self._gone |= self._concerned(indices)
        self._restarted -= indices
        for index in indices:
            del self._places[index]

    def _concerned(self, indices: Iterable[int]) -> set[int]:
        """Those of them whose fate a call wants to know."""
        return {index for index in indices if index in self._watched or index in self._asked}
