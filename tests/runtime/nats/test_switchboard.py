"""Calls over a real broker: nothing is lost, nothing counts twice, whoever is away is noticed."""

from __future__ import annotations

import errno
import logging
import os
import random
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.errors import Error as NatsError
from nats.errors import SlowConsumerError

from lpgcn import __version__, files
from lpgcn.checkpoints import CheckpointError
from lpgcn.errors import LpgcnError
from lpgcn.files import StorageError
from lpgcn.model.grid import GridError
from lpgcn.model.sampling import SamplingError
from lpgcn.protocol.errors import MalformedMessageError, ReplayedMessageError
from lpgcn.protocol.wire.sizes import LARGEST
from lpgcn.runtime.hosts.nats import calls, configuration
from lpgcn.runtime.hosts.nats import frames as f
from lpgcn.runtime.hosts.nats.carrier import Carrier, CarrierEvents, Handler, RefusedError
from lpgcn.runtime.hosts.nats.connection import Batch, Connection, Watch
from lpgcn.runtime.hosts.nats.jwt import CredentialsError
from lpgcn.runtime.hosts.nats.nats_client import (
    ForbiddenSubjectError,
    UnauthorizedError,
    UntrustedBrokerError,
)
from lpgcn.runtime.hosts.nats.roster import RosterError
from lpgcn.runtime.hosts.nats.switchboard import (
    Events,
    Interrupted,
    MemberError,
    Roster,
    Switchboard,
)

SECONDS = 30.0
"""No test waits longer for anything."""
T = TypeVar("T")


class PlainBroker(Protocol):
    options: dict[str, Any]

    def start(self, *more: str) -> None: ...
    def kill(self) -> None: ...


def got(queue: SimpleQueue[T]) -> T:
    return queue.get(timeout=SECONDS)


class Noticed(Events):
    """Every event, in a queue of its own kind."""

    def __init__(self) -> None:
        self.queues: dict[str, SimpleQueue[Any]] = {}
        for kind in ("joined", "left", "silent", "back", "retried", "unanswered", "refused"):
            self.queues[kind] = queue = SimpleQueue()
            setattr(self, kind, lambda name, what, put=queue.put: put((name, what)))
        self.queues["reconnected"] = SimpleQueue()

    def reconnected(self) -> None:
        self.queues["reconnected"].put(None)

    def next(self, kind: str) -> Any:
        return got(self.queues[kind])

    def wait_for(self, kind: str, what: object) -> None:
        """Others may come first: on a busy machine any carrier can be late."""
        while self.next(kind) != what:
            pass

    def count(self, kind: str) -> int:
        return self.queues[kind].qsize()


class Running:
    """A carrier in a thread."""

    def __init__(
        self, broker: PlainBroker, name: str, numbers: range, handler: Handler = bytes, **more: Any
    ) -> None:
        self.welcomes = 0
        self.carrier = Carrier(
            broker.options,
            name,
            [f.Offer(number, number) for number in numbers],
            self.admit(handler),
            lambda number: (number, 7),
            **more,
        )
        self.outcome: SimpleQueue[str | Exception] = SimpleQueue()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def admit(self, handler: Handler) -> Callable[[f.Welcome], dict[int, Handler]]:
        def admitted(welcome: f.Welcome) -> dict[int, Handler]:
            self.welcomes += 1
            return dict.fromkeys(welcome.indices, handler)

        return admitted

    def work(self) -> None:
        try:
            self.outcome.put(self.carrier.run())
        except LpgcnError as error:
            self.outcome.put(error)

    def end(self) -> None:
        self.carrier.stop()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()


class Puppet:
    """A carrier that does only what the test tells it to do."""

    def __init__(self, broker: PlainBroker, name: str, numbers: range, session: str) -> None:
        self.name, self.session, self.numbers = name, session, numbers
        self.requests: SimpleQueue[tuple[str, f.Part]] = SimpleQueue()
        self.control: SimpleQueue[f.Down] = SimpleQueue()
        self.connection = Connection(broker.options)
        self.connection.open()
        self.connection.subscribe(f"down.{name}.>", self.hear)

    def hear(self, subject: str, payload: bytes) -> None:
        frame = f.read_down(payload)
        if isinstance(frame, f.Part):
            self.requests.put((subject.rpartition(".")[2], frame))
        elif f".{self.session}." in subject:
            self.control.put(frame)

    def say(self, frame: f.Frame, last: str) -> None:
        self.connection.post([(f"up.{self.name}.{self.session}.{last}", f.encode(frame))])

    def hello(self) -> f.Down:
        self.ask()
        return got(self.control)

    def ask(self) -> None:
        offers = tuple(f.Offer(number, number) for number in self.numbers)
        self.say(f.Hello(f.VERSION, self.session, offers, "test"), "hello")

    def answer(self, last: str, request: f.Part) -> None:
        self.say(request, last)


@pytest.fixture
def ends() -> Iterator[list[Callable[[], None]]]:
    """What is to be ended after the test, last first."""
    acts: list[Callable[[], None]] = []
    yield acts
    for act in reversed(acts):
        act()


class Net:
    """Everything that a test starts."""

    def __init__(self, broker: PlainBroker, path: Path, ends: list[Callable[[], None]]) -> None:
        self.broker, self.path, self.ends = broker, path, ends

    def board(self, about: bytes = b"%d", **more: Any) -> tuple[Switchboard, Noticed]:
        noticed = Noticed()
        options = {"retry": 0.5, "patience": SECONDS, "ping_seconds": 0.3, **more}
        board = Switchboard(
            self.broker.options, lambda index: about % index, Roster(self.path), events=noticed,
            **options,
        )  # fmt: skip
        self.ends.append(board.close)
        return board, noticed

    def carrier(self, name: str, numbers: range, handler: Handler = bytes, **more: Any) -> Running:
        running = Running(self.broker, name, numbers, handler, **more)
        self.ends.append(running.end)
        return running

    def puppet(self, name: str, numbers: range, session: str = "old") -> Puppet:
        puppet = Puppet(self.broker, name, numbers, session)
        self.ends.append(puppet.connection.close)
        return puppet


@pytest.fixture
def net(plain_broker: PlainBroker, tmp_path: Path, ends: list[Callable[[], None]]) -> Net:
    return Net(plain_broker, tmp_path / "roster.json", ends)


class Asking:
    """A call in a thread, for tests that act while it is under way."""

    def __init__(self, board: Switchboard, requests: dict[int, bytes]) -> None:
        self._outcome: SimpleQueue[dict[int, bytes] | Exception] = SimpleQueue()

        def work() -> None:
            try:
                self._outcome.put(dict(board.call(requests.items())))
            except LpgcnError as error:
                self._outcome.put(error)

        threading.Thread(target=work, daemon=True).start()

    def outcome(self) -> dict[int, bytes]:
        result = got(self._outcome)
        if isinstance(result, Exception):
            raise result
        return result


def bodies(count: int) -> dict[int, bytes]:
    return {index: b"to %d" % index for index in range(count)}


def test_a_thousand_clients_in_two_carriers(net: Net) -> None:
    board, _ = net.board()
    first = net.carrier("a", range(500), bytes.upper)
    second = net.carrier("b", range(500, 1000), bytes.upper)
    present = board.wait_for(1000, timeout=SECONDS)
    assert present[700].name == "b" and present[700].checkpoints == (700, 7)
    for _ in range(3):
        answers = dict(board.call(bodies(1000).items()))
        assert answers == {index: body.upper() for index, body in bodies(1000).items()}
    board.finish("well done")
    assert got(first.outcome) == got(second.outcome) == "well done"


def test_requests_are_sent_and_answers_read_while_requests_are_still_taken(net: Net) -> None:
    board, _ = net.board()
    net.carrier("a", range(10))
    board.wait_for(10, timeout=SECONDS)
    answered, taken = threading.Event(), 0

    def requests() -> Iterator[tuple[int, bytes]]:
        nonlocal taken
        end = time.monotonic() + SECONDS
        while not answered.is_set() and time.monotonic() < end:
            taken += 1
            yield taken % 10, b"question"

    answers = 0
    for _ in board.call(requests()):
        answers += 1
        answered.set()
    assert answered.is_set() and answers == taken


def test_long_bodies_travel_in_parts(net: Net) -> None:
    board, _ = net.board()
    net.carrier("a", range(4), lambda body: body[::-1])
    board.wait_for(4, timeout=SECONDS)
    sent = {index: random.Random(index).randbytes(3_000_000 + index) for index in range(4)}
    assert dict(board.call(sent.items())) == {index: body[::-1] for index, body in sent.items()}


def test_what_is_on_its_way_is_bounded(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "WINDOW_BYTES", 10_000)
    monkeypatch.setattr(calls, "FIRST_ANSWER_BYTES", 0)
    board, _ = net.board(retry=SECONDS)
    puppet = net.puppet("a", range(100))
    puppet.hello()
    asking = Asking(board, dict.fromkeys(range(100), bytes(1000)))
    arrived = [got(puppet.requests) for _ in range(10)]
    for _ in range(90):
        last, request = arrived.pop(0)
        # Nothing more comes before there is an answer.
        assert puppet.requests.empty()
        puppet.say(f.Part(request.request, 0, 1, 0, b""), last)
        arrived.append(got(puppet.requests))
    for last, request in arrived:
        puppet.answer(last, request)
    assert len(asking.outcome()) == 100


def test_late_and_repeated_answers_do_not_count(net: Net) -> None:
    board, _ = net.board(retry=SECONDS)
    puppet = net.puppet("a", range(2))
    puppet.hello()
    asking = Asking(board, {0: b"x", 1: b"y"})
    requests = dict(got(puppet.requests) for _ in range(2))
    puppet.say(f.Part(requests["0"].request, 0, 1, 0, b"of somebody else"), "1")
    puppet.say(f.Part(requests["0"].request - 1000, 0, 1, 0, b"of another call"), "0")
    for _ in range(3):
        puppet.answer("0", requests["0"])
    puppet.answer("1", requests["1"])
    assert asking.outcome() == {0: b"x", 1: b"y"}
    assert board.dropped == 4
    asking = Asking(board, {0: b"again"})
    last, request = got(puppet.requests)
    puppet.answer("0", requests["0"])
    puppet.answer(last, request)
    assert asking.outcome() == {0: b"again"}


def test_an_answer_that_cannot_be_read_ends_the_call(net: Net) -> None:
    board, _ = net.board()
    puppet = net.puppet("a", range(1))
    puppet.hello()
    asking = Asking(board, {0: b"x"})
    got(puppet.requests)
    puppet.connection.post([("up.a.old.0", b"rubbish")])
    with pytest.raises(MemberError, match="FrameError"):
        asking.outcome()


def test_a_request_is_sent_again_until_it_is_answered(net: Net) -> None:
    board, noticed = net.board(retry=0.1)
    puppet = net.puppet("a", range(1))
    puppet.hello()
    asking = Asking(board, {0: b"x"})
    sendings = [got(puppet.requests) for _ in range(3)]
    assert sendings[0] == sendings[1] == sendings[2]
    assert noticed.next("retried") == ("a", 1)
    puppet.answer(*sendings[0])
    assert asking.outcome() == {0: b"x"}


def test_who_does_not_answer_again_and_again_is_named_once(net: Net) -> None:
    """A carrier whose disk is full: it beats, and drops what it is asked."""
    board, noticed = net.board(retry=0.02)
    disk, failures = threading.Event(), SimpleQueue[StorageError]()

    def handle(body: bytes) -> bytes:
        if not disk.is_set():
            raise StorageError("no space left")
        return body

    events = CarrierEvents()
    events.storage_failed = failures.put  # type: ignore[method-assign]
    net.carrier("a", range(1), handle, events=events)
    board.wait_for(1, timeout=SECONDS)
    asking = Asking(board, {0: b"x"})
    assert noticed.next("unanswered") == ("a", 1)
    for _ in range(calls.LATE_TOO_OFTEN + 2):
        got(failures)
    disk.set()
    assert asking.outcome() == {0: b"x"}
    assert noticed.count("unanswered") == 0


class Still:
    """A board whose carrier beats and does not answer; a connection that counts."""

    patience, retry, events = 60.0, 5.0, Events()

    def __init__(self) -> None:
        self.connection, self.posted = self, list[tuple[str, bytes]]()
        self.line = calls.Session("a", "old", {0: 0}, {}, 0.0)

    def address(self, index: int, data: bytes) -> calls.Pending:
        return calls.Pending(7, index, self.line, data, "up.a.old.0", "down.a.old.0")

    def silence(self, line: calls.Session, now: float) -> float:
        return 0.0

    def interrupt(self) -> None: ...

    def post(self, batch: Batch) -> None:
        self.posted += batch

    def sent(self) -> int:
        """Whole requests."""
        return sum(part.part == 0 for _, data in self.posted if (part := f.read_down(data)))


@pytest.mark.parametrize("length", [1000, 5_000_000])
def test_a_request_is_sent_again_when_a_slow_line_would_have_carried_it(length: int) -> None:
    board = Still()
    call = calls.Call(board, threading.Condition())  # type: ignore[arg-type]
    call._ask(0, bytes(length))
    call._post()
    now, on_its_way = time.monotonic(), length / calls.SLOWEST_RATE
    call._look_around(now + board.retry + on_its_way - 1)
    assert board.sent() == 1
    call._look_around(now := now + board.retry + on_its_way + 1)
    assert board.sent() == 2
    call._look_around(now + 2 * board.retry + on_its_way - 1)
    assert board.sent() == 2


def test_a_part_of_an_answer_breaks_the_silence() -> None:
    board = Still()
    call = calls.Call(board, threading.Condition())  # type: ignore[arg-type]
    call._ask(0, b"")
    call._post()
    call._windows[board.line].since -= 100
    assert call.take("up.a.old.0", f.Part(7, 0, 2, 0, bytes(f.CHUNK_BYTES)))
    now = time.monotonic()
    call._look_around(now + board.retry - 1)
    assert board.sent() == 1
    call._look_around(now + board.retry)
    assert board.sent() == 2


def test_what_nobody_would_accept_is_not_sent(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f, "LIMIT_BYTES", 1000)
    board, _ = net.board()
    net.carrier("a", range(1), lambda body: body + bytes(501))
    board.wait_for(1, timeout=SECONDS)
    with pytest.raises(f.OversizedBodyError, match="1,001 bytes or more, expected at most 1,000"):
        dict(board.call([(0, bytes(1001))]))
    with pytest.raises(MemberError, match=r"OversizedBodyError: .* 1,001 bytes"):
        dict(board.call([(0, bytes(500))]))
    assert dict(board.call([(0, b"")])) == {0: bytes(501)}


def test_what_is_too_long_is_answered_by_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    carrier = Carrier({}, "a", [f.Offer(0)], lambda _: {}, lambda _: ())
    posted: list[tuple[str, bytes]] = []
    monkeypatch.setattr(carrier, "_post", posted.extend)
    parts = f.LIMIT_BYTES // f.CHUNK_BYTES + 1
    for number in range(3):
        part = f.Part(7, number, parts, 0, bytes(f.CHUNK_BYTES))
        carrier._hear(f"down.a.{carrier.session}.0", f.encode(part))
    [(subject, data)] = posted
    failure = f.read_up(data)
    assert subject == f"up.a.{carrier.session}.0" and carrier.malformed == 3
    assert isinstance(failure, f.Failure) and failure.request == 7
    carrier._connection.close()


def test_all_messages_of_the_protocol_have_room_on_the_way() -> None:
    """In whoever joins the parts, and in the broker, which drops whoever has more waiting."""
    assembler, parts = f.Assembler(), LARGEST // f.CHUNK_BYTES
    assert assembler.add("a", f.Part(7, 0, parts, 0, bytes(f.CHUNK_BYTES))) is None
    assert assembler._memory >= parts * assembler.held
    [pending] = re.findall(r"^max_pending: (\d+)MB$", configuration._BROKER, re.MULTILINE)
    assert int(pending) << 20 >= LARGEST + calls.ALL_WINDOWS_BYTES


def test_a_hello_of_the_same_session_brings_the_requests_again(net: Net) -> None:
    board, _ = net.board(retry=SECONDS)
    puppet = net.puppet("a", range(1))
    puppet.hello()
    asking = Asking(board, {0: b"x"})
    first = got(puppet.requests)
    assert isinstance(puppet.hello(), f.Welcome)
    assert got(puppet.requests) == first
    puppet.answer(*first)
    assert asking.outcome() == {0: b"x"}


class Patient:
    """A check that finds nothing until it is told to."""

    def __init__(self) -> None:
        self.gone = threading.Event()

    def __call__(self) -> None:
        if self.gone.is_set():
            raise LpgcnError("the broker is gone")


def test_what_a_check_finds_ends_the_waiting_for_the_broker(net: Net) -> None:
    net.broker.kill()
    check = Patient()
    check.gone.set()
    with pytest.raises(LpgcnError, match="the broker is gone"):
        net.board(check=check, beat_seconds=0.05)


def test_what_a_check_finds_ends_the_waiting_for_members(net: Net) -> None:
    check = Patient()
    board, _ = net.board(check=check, beat_seconds=0.05)
    check.gone.set()
    with pytest.raises(LpgcnError, match="the broker is gone"):
        board.wait_for(1, timeout=SECONDS)


def test_a_broker_that_dies_in_mid_round(net: Net) -> None:
    board, noticed = net.board()
    handled: list[bytes] = []

    def handle(body: bytes) -> bytes:
        handled.append(body)
        if len(handled) == 50:
            net.broker.kill()
            net.broker.start()
        return body

    net.carrier("a", range(200), handle)
    other = net.carrier("b", range(200, 400))
    board.wait_for(400, timeout=SECONDS)
    assert dict(board.call(bodies(400).items())) == bodies(400)
    noticed.next("reconnected")
    assert dict(board.call(bodies(400).items())) == bodies(400)
    assert other.welcomes == 1


def test_a_carrier_that_was_restarted_interrupts_the_round(net: Net) -> None:
    board, noticed = net.board()
    net.carrier("b", range(3, 6))
    old = net.puppet("a", range(3))
    old.hello()
    board.wait_for(6, timeout=SECONDS)
    asking = Asking(board, bodies(6))
    got(old.requests)
    new = net.puppet("a", range(3), "new")
    # The old one is asked whether it lives, and does not answer.
    assert isinstance(new.hello(), f.Welcome)
    assert isinstance(got(old.control), f.Ping)
    with pytest.raises(Interrupted) as caught:
        asking.outcome()
    assert caught.value.restarted == {0, 1, 2}
    assert caught.value.silent == frozenset()
    assert board.present()[0].session == "new"
    # That was told; the next round is carried out with the new session.
    asking = Asking(board, {0: b"x"})
    while (item := got(new.requests))[1].body != b"x":
        pass
    new.answer(*item)
    assert asking.outcome() == {0: b"x"}
    assert noticed.count("refused") == 0


def test_members_are_watched_between_the_calls_too(net: Net) -> None:
    board, _ = net.board()
    net.carrier("b", range(1, 2))
    net.puppet("a", range(1)).hello()
    board.wait_for(2, timeout=SECONDS)
    board.watch_members({0, 1})
    net.puppet("a", range(1), "new").hello()
    with pytest.raises(Interrupted) as caught:
        dict(board.call([(1, b"x")]))
    assert caught.value.restarted == {0}
    assert dict(board.call([(1, b"x")])) == {1: b"x"}


def test_who_leaves_is_away(net: Net) -> None:
    board, noticed = net.board()
    running = net.carrier("a", range(2))
    puppet = net.puppet("b", range(2, 3))
    puppet.hello()
    board.wait_for(3, timeout=SECONDS)
    asking = Asking(board, bodies(3))
    got(puppet.requests)
    running.end()
    with pytest.raises(Interrupted) as caught:
        asking.outcome()
    assert (caught.value.restarted, caught.value.silent) == (frozenset(), {0, 1})
    assert noticed.next("left") == ("a", (0, 1))
    assert set(board.present()) == {2}
    with pytest.raises(Interrupted, match="1 are away"):
        dict(board.call([(0, b"x")]))


def test_who_leaves_before_it_has_heard_the_welcome_says_goodbye(net: Net) -> None:
    board, noticed = net.board()
    offers = [f.Offer(number, number) for number in range(2)]
    carrier = Carrier(net.broker.options, "a", offers, lambda _: pytest.fail("heard"), lambda _: ())
    opened = carrier._connection.open

    def open_and_stop() -> None:
        opened()
        carrier.stop()

    carrier._connection.open = open_and_stop  # type: ignore[method-assign]
    assert carrier.run() == ""
    assert noticed.next("joined") == noticed.next("left") == ("a", (0, 1))
    assert not board.present()


@pytest.mark.parametrize("name", ["", "a.b", "*", "a" * 65])
def test_a_carrier_has_the_name_of_a_member(name: str) -> None:
    with pytest.raises(CredentialsError, match="cannot be a name"):
        Carrier({}, name, [f.Offer(0)], lambda _: {}, lambda _: ())


def test_a_second_session_is_refused_while_the_first_lives(net: Net) -> None:
    board, noticed = net.board(ping_seconds=SECONDS)
    first = net.carrier("a", range(2))
    board.wait_for(2, timeout=SECONDS)
    session = board.present()[0].session
    second = net.carrier("a", range(2))
    error = got(second.outcome)
    assert isinstance(error, RefusedError) and "is here already" in str(error)
    assert noticed.next("refused")[0] == "a"
    assert board.present()[0].session == session == first.carrier.session
    assert dict(board.call(bodies(2).items())) == bodies(2)


def test_a_second_session_waits_where_the_first_beats_and_its_pong_is_late(net: Net) -> None:
    """It may live on a slow line, or be dead and its last messages late: the pong decides."""
    board, noticed = net.board(ping_seconds=10 * SECONDS)
    first, second = net.puppet("a", range(1)), net.puppet("a", range(1), "new")
    first.hello()
    second.ask()
    assert isinstance(got(first.control), f.Ping)
    challenge = board._challenges["a"]
    first.say(f.Beat(), "beat")
    # Its answer comes after the beat was heard.
    stranger = net.puppet("b", range(1, 2))
    first.connection.post([("up.b.old.beat", f.encode(f.Beat()))])
    assert isinstance(got(stranger.control), f.RollCall)
    board._judge("a", challenge)
    assert isinstance(got(first.control), f.Ping) and board._challenges["a"] is not challenge
    assert board.present()[0].session == "old"
    first.say(f.Pong(), "pong")
    assert isinstance(got(second.control), f.Refused)
    assert noticed.next("refused")[0] == "a" and board.present()[0].session == "old"


def test_a_session_takes_the_place_of_one_that_fell_silent(net: Net) -> None:
    _, noticed = net.board(beat_seconds=0.05, ping_seconds=10 * SECONDS)
    net.puppet("a", range(1)).hello()
    assert noticed.next("joined") == ("a", (0,))
    assert noticed.next("silent") == ("a", (0,))
    assert isinstance(net.puppet("a", range(1), "new").hello(), f.Welcome)


def test_a_carrier_that_is_gone_is_silent_after_the_patience(net: Net) -> None:
    board, noticed = net.board(patience=0.6, beat_seconds=0.1)
    net.carrier("b", range(1, 2), beat_seconds=0.1)
    puppet = net.puppet("a", range(1))
    puppet.hello()
    board.wait_for(2, timeout=SECONDS)
    with pytest.raises(Interrupted) as caught:
        dict(board.call(bodies(2).items()))
    assert not caught.value.restarted and caught.value.silent >= {0}
    noticed.wait_for("silent", ("a", (0,)))
    assert 0 not in board.present()
    puppet.say(f.Beat(), "beat")
    noticed.wait_for("back", ("a", (0,)))
    board.wait_for(2, timeout=SECONDS)


class Apart(Still):
    """Nothing is heard of a second carrier."""

    def __init__(self) -> None:
        super().__init__()
        self.gone, self.quiet_for = calls.Session("b", "old", {0: 1}, {}, 0.0), 0.0

    def address(self, index: int, data: bytes) -> calls.Pending:
        if index == 0:
            return super().address(index, data)
        return calls.Pending(8, index, self.gone, data, "up.b.old.0", "down.b.old.0")

    def silence(self, line: calls.Session, now: float) -> float:
        return self.quiet_for if line is self.gone else 0.0


def test_who_beats_is_not_silent_however_long_an_answer_takes() -> None:
    board = Apart()
    call = calls.Call(board, threading.Condition())  # type: ignore[arg-type]
    for index in range(2):
        call._ask(index, b"x")
    now, board.quiet_for = time.monotonic(), board.patience
    call._look_around(now + 100 * board.patience)
    board.quiet_for += 1
    with pytest.raises(Interrupted) as caught:
        call._look_around(now + 101 * board.patience)
    assert (caught.value.restarted, caught.value.silent) == (frozenset(), {1})


def test_a_slow_carrier_beats_meanwhile(net: Net) -> None:
    board, noticed = net.board(retry=0.2)
    heard, pause, end = set[float](), threading.Event(), time.monotonic() + SECONDS

    def handle(body: bytes) -> bytes:
        while (noticed.count("retried") < 4 or len(heard) < 4) and time.monotonic() < end:
            heard.add(board._attendance.lines["a"].heard)
            pause.wait(0.05)
        return body

    running = net.carrier("a", range(1), handle, beat_seconds=0.1)
    board.wait_for(1, timeout=SECONDS)
    assert dict(board.call([(0, b"x")])) == {0: b"x"}
    assert running.carrier.repeated >= 3
    assert len(heard) >= 4


def test_a_client_that_does_not_accept_a_request(net: Net) -> None:
    board, _ = net.board()

    def handle(body: bytes) -> bytes:
        if body == b"bad":
            raise MalformedMessageError("truncated")
        return body

    net.carrier("a", range(3), handle)
    board.wait_for(3, timeout=SECONDS)
    with pytest.raises(MemberError, match=r"client 1 .*MalformedMessageError: truncated") as caught:
        dict(board.call([(0, b"good"), (1, b"bad")]))
    assert (caught.value.index, caught.value.kind) == (1, "MalformedMessageError")
    assert dict(board.call(bodies(3).items())) == bodies(3)


@pytest.mark.parametrize(
    "error",
    [
        GridError("a number of 131.25 does not fit"),
        CheckpointError("/home/alice/131.25 is damaged"),
        SamplingError("user 131.25 has no negative"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_is_private_in_an_error_stays_on_the_device(net: Net, error: LpgcnError) -> None:
    board, _ = net.board()
    told: SimpleQueue[LpgcnError] = SimpleQueue()

    class Telling(CarrierEvents):
        def request_failed(self, error: LpgcnError) -> None:
            told.put(error)

    def handle(body: bytes) -> bytes:
        raise error

    net.carrier("a", range(1), handle, events=Telling())
    board.wait_for(1, timeout=SECONDS)
    with pytest.raises(MemberError) as caught:
        dict(board.call([(0, b"x")]))
    assert caught.value.kind == type(error).__name__
    assert caught.value.text and "131.25" not in caught.value.text
    assert got(told) is error


def test_a_late_request_is_dropped(net: Net) -> None:
    board, _ = net.board(retry=0.1)
    asked: list[bytes] = []

    def handle(body: bytes) -> bytes:
        asked.append(body)
        if len(asked) == 1:
            raise ReplayedMessageError("over")
        return body

    running = net.carrier("a", range(1), handle)
    board.wait_for(1, timeout=SECONDS)
    assert dict(board.call([(0, b"x")])) == {0: b"x"}
    assert running.carrier.replayed == 1


def test_a_call_that_is_given_up_leaves_nothing_behind(net: Net) -> None:
    board, _ = net.board()
    net.carrier("a", range(50))
    board.wait_for(50, timeout=SECONDS)
    call = board.call(bodies(50).items())
    next(call)
    with pytest.raises(LpgcnError, match="under way"):
        next(board.call([(0, b"x")]))
    call.close()
    assert dict(board.call([(0, b"x")])) == {0: b"x"}


def test_a_restarted_server_finds_the_carriers_by_roll_call(net: Net) -> None:
    board, _ = net.board()
    # It does not beat: it has to be called.
    running = net.carrier("a", range(5), beat_seconds=10 * SECONDS)
    before = board.wait_for(5, timeout=SECONDS)
    board.close()
    board, _ = net.board()
    assert board.wait_for(5, timeout=SECONDS) == before
    assert running.welcomes == 1
    assert dict(board.call(bodies(5).items())) == bodies(5)


def test_clients_are_made_anew_when_the_server_says_something_else(net: Net) -> None:
    """It was stopped while it gathered its members, and began another run: with the settings of the
    first one they would answer what it does not understand."""
    board, _ = net.board()
    running = net.carrier("a", range(5))
    board.wait_for(5, timeout=SECONDS)
    assert dict(board.call(bodies(5).items())) == bodies(5)
    board.close()
    board, _ = net.board(b"another run %d")
    board.wait_for(5, timeout=SECONDS)
    assert dict(board.call(bodies(5).items())) == bodies(5)
    assert running.welcomes == 2


def test_a_beat_of_somebody_unknown_is_answered_by_a_roll_call(net: Net) -> None:
    net.board()
    puppet = net.puppet("stranger", range(1))
    puppet.say(f.Beat(), "beat")
    assert isinstance(got(puppet.control), f.RollCall)


def test_whoever_speaks_another_version_is_refused(net: Net) -> None:
    net.board()
    puppet = net.puppet("a", range(1))
    puppet.say(f.Hello(f.VERSION + 1, "old", (f.Offer(0),), "9.8.7\x1b"), "hello")
    refused = got(puppet.control)
    assert isinstance(refused, f.Refused) and f"version {f.VERSION + 1}" in refused.reason
    assert f"lpgcn 9.8.7, expected {f.VERSION}, of lpgcn {__version__}" in refused.reason
    puppet.connection.post([("up.a.old.hello", b"rubbish")])
    assert isinstance(got(puppet.control), f.Refused)


def test_a_server_that_speaks_another_version_is_left(net: Net) -> None:
    """Before any client is made."""
    server, heard = Connection(net.broker.options), SimpleQueue[str]()
    server.open()
    net.ends.append(server.close)
    server.subscribe("up.a.*.hello", lambda subject, _: heard.put(subject))
    running = net.carrier("a", range(1))
    session = got(heard).split(".")[2]
    welcome = f.Welcome(f.VERSION + 1, b"", {0: 0})
    server.post([(f"down.a.{session}.control", f.encode(welcome))])
    outcome = got(running.outcome)
    assert isinstance(outcome, RefusedError) and running.welcomes == 0
    assert f"speaks version {f.VERSION + 1}, this is {f.VERSION}: update" in str(outcome)


@pytest.mark.parametrize(
    "words",
    [b"PUB up.a.\xff.0 2\r\nhi\r\n", b"HPUB up.a.old.0 4 4\r\nabcd\r\n"],
    ids=["subject", "headers"],
)
def test_what_nats_cannot_read_does_not_make_it_deaf(net: Net, words: bytes) -> None:
    net.board()
    url = urlsplit(net.broker.options["servers"][0])
    with socket.create_connection((url.hostname, url.port), SECONDS) as sock, sock.makefile() as it:
        sock.sendall(b'CONNECT {"headers": true}\r\n' + words + b"PING\r\n")
        assert any(line.startswith("PONG") for line in it)
    assert isinstance(net.puppet("a", range(1)).hello(), f.Welcome)


class Lines(logging.Handler):
    """What a logger is told, as it is told."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.queue: SimpleQueue[str] = SimpleQueue()
        self.logger = logging.getLogger(name)

    def emit(self, record: logging.LogRecord) -> None:
        self.queue.put(record.getMessage())

    def __enter__(self) -> Lines:
        self.logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.logger.removeHandler(self)


@pytest.mark.parametrize("last", ["0", "hello"])
def test_no_member_steers_the_operators_terminal(net: Net, last: str) -> None:
    """By the session of its subject, which the broker does not look at."""
    _, noticed = net.board()
    puppet = net.puppet("a", range(1), "\x1b[2Jowned")
    offers = tuple(f.Offer(number) for number in puppet.numbers)
    with Lines("lpgcn.runtime.hosts.nats.switchboard") as lines:
        puppet.say(f.Hello(f.VERSION, puppet.session, offers, "test"), last)
        line = got(lines.queue)
    assert "owned" in line and line.isprintable()
    net.puppet("b", range(1)).hello()
    assert noticed.next("joined")[0] == "b" and noticed.count("refused") == 0


def test_what_the_broker_says_steers_no_terminal(plain_broker: PlainBroker) -> None:
    heard = Heard()
    connection = Connection(plain_broker.options, heard)
    with Lines("lpgcn.runtime.hosts.nats.connection") as lines:
        connection._report(SlowConsumerError("up.a.\x1b[2Jowned.0", "", 1, None))  # type: ignore[arg-type]
    line = got(lines.queue)
    assert "owned" in line and line.isprintable()
    connection._report(NatsError("permissions violation \x1b[2Jowned"))
    assert str(got(heard.errors)).isprintable()
    connection.close()


def test_progress_is_told_until_enough_are_present(net: Net) -> None:
    board, _ = net.board()
    counts: list[int] = []
    net.puppet("a", range(2)).hello()
    net.puppet("b", range(2, 3)).hello()
    present = board.wait_until(
        lambda present: len(present) == 3,
        lambda present: counts.append(len(present)),
        timeout=SECONDS,
    )
    assert sorted(present) == [0, 1, 2] and counts[-1] == 3
    with pytest.raises(TimeoutError, match="3 clients are present"):
        board.wait_for(4, timeout=0.01)


def test_a_hello_and_a_welcome_of_many_clients_travel_in_parts(net: Net) -> None:
    board, _ = net.board()
    count = 60_000
    running = net.carrier("a", range(count))
    assert len(board.wait_for(count, timeout=SECONDS)) == count
    assert dict(board.call([(count - 1, b"x")])) == {count - 1: b"x"}
    assert running.welcomes == 1


# The connection.


class Heard(Watch):
    def __init__(self) -> None:
        self.waits: SimpleQueue[str] = SimpleQueue()
        self.errors: SimpleQueue[Exception] = SimpleQueue()

    def waiting(self, reason: str, seconds: float) -> None:
        self.waits.put(reason)

    def failed(self, error: Exception) -> None:
        self.errors.put(error)


def test_a_broker_out_of_reach_is_waited_for(plain_broker: PlainBroker) -> None:
    plain_broker.kill()
    heard = Heard()
    connection = Connection(plain_broker.options, heard)
    opening = threading.Thread(target=connection.open, daemon=True)
    opening.start()
    for _ in range(2):
        reason = got(heard.waits).lower()
        assert "refused" in reason or "connect" in reason
    plain_broker.start()
    opening.join(SECONDS)
    assert not opening.is_alive()
    connection.close()


def test_a_carrier_can_be_stopped_before_it_has_reached_the_broker(
    plain_broker: PlainBroker,
) -> None:
    plain_broker.kill()
    waits: SimpleQueue[str] = SimpleQueue()

    class Waiting(CarrierEvents):
        def waiting(self, reason: str, seconds: float) -> None:
            waits.put(reason)

    running = Running(plain_broker, "a", range(1), events=Waiting())
    got(waits)
    running.end()
    assert got(running.outcome) == ""


def test_wrong_credentials_are_refused_at_once(plain_broker: PlainBroker) -> None:
    plain_broker.kill()
    plain_broker.start("--auth", "secret")
    connection = Connection({**plain_broker.options, "token": "wrong"})
    with pytest.raises(UnauthorizedError, match="refused the credentials"):
        connection.open()
    connection.close()


def test_no_word_is_said_to_a_broker_without_tls(plain_broker: PlainBroker) -> None:
    connection = Connection({**plain_broker.options, "tls": ssl.create_default_context()})
    with pytest.raises(UntrustedBrokerError):
        connection.open()
    connection.close()


def test_a_subject_that_the_credentials_do_not_allow(
    plain_broker: PlainBroker, tmp_path: Path
) -> None:
    rights = 'publish: "up.a.>", subscribe: "down.a.>"'
    (tmp_path / "broker.conf").write_text(
        f"authorization {{ users: [{{user: a, password: b, permissions: {{{rights}}}}}] }}"
    )
    plain_broker.kill()
    plain_broker.start("-c", str(tmp_path / "broker.conf"))
    heard = Heard()
    connection = Connection({**plain_broker.options, "user": "a", "password": "b"}, heard)
    connection.open()
    connection.subscribe("down.b.>", lambda subject, payload: None)
    assert isinstance(got(heard.errors), ForbiddenSubjectError)
    connection.post([("up.b.x", b"")])
    assert isinstance(got(heard.errors), ForbiddenSubjectError)
    received: SimpleQueue[bytes] = SimpleQueue()
    connection.subscribe("down.a.>", lambda subject, payload: received.put(payload))
    connection.close()
    with pytest.raises(Empty):
        received.get_nowait()
    options = {**plain_broker.options, "user": "a", "password": "b"}
    with pytest.raises(ForbiddenSubjectError):
        Carrier(options, "other", [f.Offer(0)], lambda _: {}, lambda _: ()).run()


def test_an_error_in_a_callback_reaches_the_owner(plain_broker: PlainBroker) -> None:
    heard = Heard()
    connection = Connection(plain_broker.options, heard)
    connection.open()

    def receive(subject: str, payload: bytes) -> None:
        raise KeyError(subject)

    connection.subscribe("x", receive)
    connection.post([("x", b"")])
    assert isinstance(got(heard.errors), KeyError)
    connection.close()


# The roster.


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """A disk on which nothing more can be written, as long as this is set."""
    full, write = threading.Event(), files._write

    def refuse(*arguments: Any) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(*arguments)

    monkeypatch.setattr(files, "_write", refuse)
    return full


def test_an_index_that_is_not_written_is_not_given(
    tmp_path: Path, full_disk: threading.Event
) -> None:
    roster = Roster(tmp_path / "roster.json")
    full_disk.set()
    for _ in range(2):
        with pytest.raises(StorageError):
            roster.assign_all("a", [f.Offer(0)])
    full_disk.clear()
    assert roster.assign_all("b", [f.Offer(0)]) == {0: 0}
    assert roster.indices() == Roster(tmp_path / "roster.json").indices() == {("b", 0): 0}


def test_a_newcomer_waits_until_the_servers_disk_has_room_and_the_others_go_on(
    net: Net, full_disk: threading.Event
) -> None:
    board, _ = net.board()
    net.carrier("member", range(1))
    board.wait_for(1, timeout=SECONDS)
    full_disk.set()
    with Lines("lpgcn.runtime.hosts.nats.switchboard") as lines:
        net.carrier("newcomer", range(1, 2), beat_seconds=0.1)
        assert re.search("newcomer could not be let in: .*No space left", got(lines.queue))
        assert dict(board.call([(0, b"x")])) == {0: b"x"}
    full_disk.clear()
    board.wait_for(2, timeout=SECONDS)
    assert dict(board.call([(1, b"y")])) == {1: b"y"}


WISHES = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.one_of(st.none(), st.integers(0, 9))),
    max_size=20,
)


@given(WISHES)
def test_an_index_is_for_ever_and_of_one_client(
    tmp_path_factory: pytest.TempPathFactory, wishes: list[tuple[str, int, int | None]]
) -> None:
    path = tmp_path_factory.mktemp("roster") / "roster.json"
    roster, known = Roster(path), dict[tuple[str, int], int]()
    for name, number, wish in wishes:
        index = roster.assign_all(name, [f.Offer(number, wish)])[number]
        if (name, number) in known:
            assert index == known[name, number]
        else:
            free = next(i for i in range(1000) if i not in known.values())
            assert index == (wish if wish is not None and wish not in known.values() else free)
        known[name, number] = index
    if known:
        again = Roster(path)
        assert again.indices() == known
        assert again.names() == {name for name, _ in known}


def test_a_roster_that_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "roster.json"
    path.write_text('{"clients":[["a",0,1],["b",0,1]]}')
    with pytest.raises(RosterError, match="two clients"):
        Roster(path)
    path.write_text('{"clients":')
    with pytest.raises(RosterError, match="not a roster"):
        Roster(path)
    path.write_bytes(b'{"clients":[["\xff",0,1]]}')
    with pytest.raises(RosterError, match="not a roster"):
        Roster(path)


# Parts.


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f, "CHUNK_BYTES", 4)


def parts_of(request: int, body: bytes) -> list[f.Part]:
    read = [f.read_up(frame) for frame in f.cut(request, body)]
    return [part for part in read if isinstance(part, f.Part)]


@pytest.mark.usefixtures("small_chunks")
class TestAssembler:
    @given(st.lists(st.binary(max_size=30), max_size=4), st.data())
    def test_parts_in_any_order_and_twice(self, bodies: list[bytes], data: st.DataObject) -> None:
        sent = [
            (sender, part)
            for sender, body in enumerate(bodies)
            for part in parts_of(5, body) * (1 if len(body) <= 4 else 2)
        ]
        assembler, joined = f.Assembler(), list[tuple[int, bytes]]()
        for sender, part in data.draw(st.permutations(sent)):
            if (body := assembler.add(str(sender), part)) is not None:
                joined.append((sender, body))
        # A body of which every part came twice may be whole twice.
        assert set(joined) == set(enumerate(bodies))

    @given(st.binary(min_size=5, max_size=40), st.binary(min_size=5, max_size=40), st.data())
    def test_two_sendings_are_never_mixed(
        self, first: bytes, second: bytes, data: st.DataObject
    ) -> None:
        sent = parts_of(1, first) + parts_of(1, second)
        assembler = f.Assembler()
        joined = [assembler.add("a", part) for part in data.draw(st.permutations(sent))]
        assert {body for body in joined if body is not None} == {first, second}

    @given(st.lists(st.tuples(st.integers(0, 99), st.binary(min_size=9, max_size=60))))
    def test_memory_is_bounded(self, begun: list[tuple[int, bytes]]) -> None:
        memory = 5 * f.PIECE_BYTES
        assembler = f.Assembler(memory=memory)
        for request, body in begun:
            assembler.add("a", parts_of(request, body)[0])
            assert assembler.held <= memory
        assert assembler.add("b", parts_of(0, b"123456")[0]) is None
        assert assembler.add("b", parts_of(0, b"123456")[1]) == b"123456"

    @pytest.mark.parametrize(
        "part",
        [
            f.Part(0, 1, 1, 0, b"x"),
            f.Part(0, 1, 2, 0, b""),
            f.Part(0, -1, 2, 0, b"1234"),
            f.Part(0, 0, 2, 0, b"short"[:3]),
            f.Part(0, 0, 1, 0, b"too long"),
            f.Part(0, 0, 0, 0, b""),
            f.Part(0, 0, 100, 0, b"1234"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, part: f.Part) -> None:
        assembler = f.Assembler(limit=100)
        with pytest.raises(f.FrameError):
            assembler.add("a", part)
        assert assembler.held == 0

    def test_a_wrong_sum_is_noticed(self) -> None:
        assembler = f.Assembler()
        assembler.add("a", f.Part(0, 0, 2, 1, b"1234"))
        with pytest.raises(f.FrameError, match="make up"):
            assembler.add("a", f.Part(0, 1, 2, 1, b"5"))
        assert assembler.held == 0
