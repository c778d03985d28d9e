"""A carrier without a broker: when it says hello, on a clock of its own, and what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from queue import Empty

import pytest

from lpgcn.runtime.hosts.nats import carrier as carriers
from lpgcn.runtime.hosts.nats import frames as f
from lpgcn.runtime.hosts.nats.carrier import Carrier, Request

Due = list[tuple[float, f.Down | Request]]
"""What comes, and when."""


class Inbox:
    """Its clock goes on when somebody waits, and only then."""

    def __init__(self, due: Due) -> None:
        self.now, self._due = 0.0, due

    def monotonic(self) -> float:
        return self.now

    def empty(self) -> bool:
        return True

    def get(self, timeout: float) -> f.Down | Request:
        until = self.now + timeout
        if self._due[0][0] <= until:
            self.now, item = self._due.pop(0)
            return item
        self.now = until
        raise Empty


@pytest.fixture
def carrier() -> Iterator[Carrier]:
    made = Carrier({}, "a", [f.Offer(0)], lambda _: {}, lambda _: (), beat_seconds=2.0)
    yield made
    made._connection.close()


@pytest.fixture
def hellos(carrier: Carrier, monkeypatch: pytest.MonkeyPatch) -> Callable[[Due], list[float]]:
    """When it says hello, if it is never welcomed, within 400 seconds."""

    def times(due: Due) -> list[float]:
        inbox, said = Inbox([*due, (400.0, f.Finished(""))]), list[float]()
        monkeypatch.setattr(carriers, "time", inbox)
        monkeypatch.setattr(carrier, "_inbox", inbox)
        monkeypatch.setattr(carrier, "_post", lambda _: said.append(inbox.now))
        carrier._say_hello()
        carrier._serve()
        return said

    return times


def test_hellos_become_rarer(hellos: Callable[[Due], list[float]]) -> None:
    """Each brings the whole catalogue, which a slow line has to carry."""
    pauses = [after - before for before, after in pairwise(hellos([]))]
    expected = [2.0, 4.0, 8.0, 16.0, 32.0, *[60.0] * (len(pauses) - 5)]
    assert len(pauses) >= 8
    assert all(
        0.75 <= found / wanted <= 1.25 for found, wanted in zip(pauses, expected, strict=True)
    )


def test_a_roll_call_is_answered_at_once(hellos: Callable[[Due], list[float]]) -> None:
    assert {150.0, 151.0} <= {*hellos([(150.0, f.RollCall()), (151.0, f.RollCall())])}


def test_who_missed_its_welcome_says_hello_though_it_is_asked_for_more(
    hellos: Callable[[Due], list[float]],
) -> None:
    requests: Due = [(5.0 * n, (0, n, b"")) for n in range(1, 80)]
    assert len(hellos(requests)) >= 8


@pytest.mark.parametrize("body", [bytes(f.CHUNK_BYTES + 1), b"short"])
def test_parts_of_a_request_that_was_given_up_are_dropped(carrier: Carrier, body: bytes) -> None:
    """Each client keeps its own; numbers of requests say nothing: a server may start again."""
    for number, request in ((0, 9), (1, 8), (0, 7)):
        [first, _] = f.cut(request, bytes(f.CHUNK_BYTES + 1))
        carrier._hear(f"down.a.{carrier.session}.{number}", first)
    assert carrier._assembler.held == 2 * (f.CHUNK_BYTES + f.PIECE_BYTES)
    for frame in f.cut(3, body):
        carrier._hear(f"down.a.{carrier.session}.0", frame)
    assert carrier._assembler.held == f.CHUNK_BYTES + f.PIECE_BYTES
    assert carrier._inbox.get_nowait() == (0, 3, body)
