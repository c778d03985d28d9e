"""The book of who is there, against a plain account of what happened."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from lpgcn.runtime.hosts.nats.attendance import Attendance
from lpgcn.runtime.hosts.nats.frames import Offer
from lpgcn.runtime.hosts.nats.roster import Roster

NAMES, NUMBERS = ("ann", "bob"), (0, 1, 2)


@dataclass(frozen=True)
class Hello:
    name: str
    session: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Bye:
    name: str
    numbers: tuple[int, ...]


numbers = st.lists(st.sampled_from(NUMBERS), unique=True).map(tuple)
hellos = st.builds(
    Hello, st.sampled_from(NAMES), st.sampled_from("xy"), numbers.filter(lambda some: some != ())
)
events = st.lists(st.one_of(hellos, st.builds(Bye, st.sampled_from(NAMES), numbers)), max_size=12)


@dataclass
class Account:
    """Client → session, and what has become of those that were there before."""

    sessions: dict[tuple[str, int], str] = field(default_factory=dict)
    restarted: set[tuple[str, int]] = field(default_factory=set)
    gone: set[tuple[str, int]] = field(default_factory=set)

    def replay(self, event: Hello | Bye) -> None:
        before = {client for client in self.sessions if client[0] == event.name}
        if isinstance(event, Bye):
            for client in before & {(event.name, number) for number in event.numbers}:
                self._lose(client)
            return
        now = {(event.name, number) for number in event.numbers}
        for client in before - now:
            self._lose(client)
        for client in now:
            if client in self.gone:
                self.gone.discard(client)
                self.restarted.add(client)
            elif self.sessions.get(client, event.session) != event.session:
                self.restarted.add(client)
            self.sessions[client] = event.session

    def _lose(self, client: tuple[str, int]) -> None:
        del self.sessions[client]
        self.restarted.discard(client)
        self.gone.add(client)


def apply(book: Attendance, event: Hello | Bye) -> None:
    if isinstance(event, Hello):
        book.admit(event.name, event.session, [Offer(number) for number in event.numbers])
    elif event.name in book.lines:
        book.part_with(book.lines[event.name], event.numbers)


@given(before=events, meanwhile=events, watched=st.sets(st.integers(0, 5)))
def test_who_is_there_and_whose_fate_is_told(
    before: list[Hello | Bye], meanwhile: list[Hello | Bye], watched: set[int]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        roster = Roster(Path(folder) / "roster")
        book, account = Attendance(roster), Account()
        for event in before:
            apply(book, event)
            account.replay(event)
        account.restarted.clear()
        account.gone.clear()
        book.watch(watched)
        asked = {index for index in range(0, 6, 2) if book.place(index)}
        book.begin_call(asked)
        for event in meanwhile:
            apply(book, event)
            account.replay(event)
        index = roster.indices()
        places = {client: book.place(number) for client, number in index.items()}
        found = {
            client: (place[0].name, place[1], place[0].session)
            for client, place in places.items()
            if place is not None
        }
        assert found == {client: (*client, s) for client, s in account.sessions.items()}
        concerned = watched | asked
        restarted = {index[client] for client in account.restarted} & concerned
        gone = {index[client] for client in account.gone} & concerned
        assert book.take_changes() == (restarted, gone)
        assert book.take_changes() == (frozenset(), frozenset())
