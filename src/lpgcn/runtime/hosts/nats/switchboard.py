"""The server's end of the network: who is there, and a call to many of them at once.

A carrier is a process with one connection and one or many clients. Messages are delivered at most
once, so that a request is kept until its answer is here, and sent again where something was or may
have been lost; an answer counts once. Callbacks run in the connection's thread, calls in the
caller's; `_changed` is the lock between them.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Condition
from typing import Any, Final

import msgspec

from lpgcn.errors import LpgcnError
from lpgcn.files import write_atomically
from lpgcn.runtime.hosts.nats import frames as f
from lpgcn.runtime.hosts.nats.connection import Batch, Connection, Watch

WINDOW_BYTES: Final = 16 << 20
"""On their way to and from one carrier: the broker drops whoever has more than 64 MiB waiting."""
ALL_WINDOWS_BYTES: Final = 48 << 20
HELD_BYTES: Final = 64 << 20
"""Of requests that were taken and wait for room in their windows."""
FIRST_ANSWER_BYTES: Final = 256 << 10
"""How long an answer is taken to be before the first has come."""
_BATCH, _BATCH_BYTES = 48, 256 << 10
_SILENT_BEATS: Final = 3
_logger = logging.getLogger(__name__)


class MemberError(LpgcnError):
    """A client answered that it does not accept what it was asked."""

    def __init__(self, index: int, kind: str, text: str) -> None:
        super().__init__(f"client {index} did not accept a request: {kind}: {text}")
        self.index, self.kind, self.text = index, kind, text


class Interrupted(LpgcnError):  # noqa: N818 - an event, after which the run goes on
    """A round cannot be completed with those who began it."""

    def __init__(self, restarted: frozenset[int], silent: frozenset[int]) -> None:
        super().__init__(
            f"{len(restarted)} clients came back without their memory, {len(silent)} are away; go "
            "on from the last checkpoint when everybody is present"
        )
        self.restarted, self.silent = restarted, silent


class RosterError(LpgcnError):
    """A roster file that cannot be read."""


class Presence(msgspec.Struct, frozen=True):
    """A client that is there."""

    name: str
    session: str
    number: int
    checkpoints: tuple[int, ...]


class Events:
    """What an observer is told, in the thread where it happens; this one does not listen."""

    def joined(self, name: str, indices: tuple[int, ...]) -> None: ...
    def left(self, name: str, indices: tuple[int, ...]) -> None: ...
    def silent(self, name: str, indices: tuple[int, ...]) -> None: ...
    def back(self, name: str, indices: tuple[int, ...]) -> None: ...
    def retried(self, name: str, requests: int) -> None: ...
    def refused(self, name: str, reason: str) -> None: ...
    def waiting(self, reason: str, seconds: float) -> None: ...
    def disconnected(self) -> None: ...
    def reconnected(self) -> None: ...


class _Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    name: str
    number: int
    index: int


class _RosterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    clients: list[_Entry]


class Roster:
    """(name of the carrier, number in it) → index in the federation, for ever."""

    def __init__(self, path: Path) -> None:
        self._path, self._free = path, 0
        self._indices: dict[tuple[str, int], int] = {}
        if path.exists():
            try:
                entries = msgspec.json.decode(path.read_bytes(), type=_RosterFile).clients
            except msgspec.MsgspecError as error:
                raise RosterError(f"{path} is not a roster: {error}") from error
            self._indices = {(entry.name, entry.number): entry.index for entry in entries}
        self._taken = set(self._indices.values())
        if len(self._taken) != len(self._indices):
            raise RosterError(f"{path} gives an index to two clients; restore it from a copy")

    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self._indices)

    def indices(self) -> dict[tuple[str, int], int]:
        """A copy."""
        return dict(self._indices)

    def assign(self, name: str, number: int, wish: int | None = None) -> int:
        return self.assign_all(name, [f.Offer(number, wish)])[number]

    def assign_all(self, name: str, offers: Iterable[f.Offer]) -> dict[int, int]:
        """Number → index; the file is written before anybody knows."""
        offers = list(offers)
        new = [offer for offer in offers if (name, offer.number) not in self._indices]
        # Who has a wish comes first, so that nobody without one takes what is wished for.
        for offer in sorted(new, key=lambda offer: (offer.wish is None, offer.number)):
            index = offer.wish
            if index is None or index < 0 or index in self._taken:
                index = self._next_free()
            self._indices[name, offer.number] = index
            self._taken.add(index)
        if new:
            entries = [_Entry(*key, index) for key, index in self._indices.items()]
            content = msgspec.json.format(msgspec.json.encode(_RosterFile(entries)), indent=0)
            write_atomically(self._path, content)
        return {offer.number: self._indices[name, offer.number] for offer in offers}

    def _next_free(self) -> int:
        while self._free in self._taken:
            self._free += 1
        return self._free


@dataclass(slots=True, eq=False)
class _Line:
    """A carrier's session as the server knows it."""

    name: str
    session: str
    indices: dict[int, int]
    presences: dict[int, Presence]
    heard: float
    silent: bool = False

    def subject(self, last: str | int) -> str:
        return f"down.{self.name}.{self.session}.{last}"


@dataclass(slots=True, eq=False)
class _Asked:
    """A request without an answer."""

    request: int
    index: int
    line: _Line
    data: bytes
    up: str
    """Where the answer comes from."""
    down: str
    weight: int = 0


@dataclass(slots=True, eq=False)
class _Window:
    """What is on its way to and from one session."""

    line: _Line
    wait: float
    since: float = 0.0
    """The last sign of progress."""
    weight: int = 0
    backlog: deque[_Asked] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class _Challenge:
    """A new session asks for the place of an old one, which has been asked whether it lives."""

    old: str
    new: str
    hello: f.Hello


Answer = tuple[_Asked, bytes | MemberError]


class _Call:
    """One round. `take` and `resend_soon` are for the connection's thread, all else is not."""

    def __init__(self, board: Switchboard, lock: Condition) -> None:
        self._board, self._lock = board, lock
        self._assembler = f.Assembler()
        self.asked: set[int] = set()
        self.outstanding: dict[int, _Asked] = {}
        self.inbox: SimpleQueue[Answer | None] = SimpleQueue()
        """None: there is something else to look at."""
        self._resend: set[_Line] = set()
        self._windows: dict[_Line, _Window] = {}
        self._blocked: dict[_Window, None] = {}
        self._batch: Batch = []
        self._batch_bytes = self._weight = self._held = self._unanswered = 0
        self._answers, self._answer_bytes = 0, 0
        self._period = max(0.02, min(board.retry, board.patience) / 4)
        self._next_look = time.monotonic() + self._period

    def take(self, subject: str, frame: f.Part | f.Failure) -> bool:
        """Whether it is a part of an answer that is waited for."""
        asked = self.outstanding.get(frame.request)
        if asked is None or asked.up != subject:
            return False
        body: bytes | MemberError | None
        if isinstance(frame, f.Failure):
            body = MemberError(asked.index, frame.kind, frame.text)
        elif (body := self._assembler.add(subject, frame)) is None:
            return True
        with self._lock:
            del self.outstanding[frame.request]
        self.inbox.put((asked, body))
        return True

    def spoil(self, subject: str, error: LpgcnError) -> None:
        """Something unreadable came instead of an answer; it would never come otherwise."""
        with self._lock:
            spoilt = [asked for asked in self.outstanding.values() if asked.up == subject]
        for asked in spoilt:
            error = MemberError(asked.index, type(error).__name__, str(error))
            self.inbox.put((asked, error))

    def resend_soon(self, line: _Line | None) -> None:
        """To this carrier, or to all."""
        with self._lock:
            self._resend |= self._windows.keys() if line is None else {line}
        self.inbox.put(None)

    def run(self, requests: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        self._board.interrupt(self)
        for index, data in requests:
            self._ask(index, data)
            while self._held > HELD_BYTES or not self.inbox.empty():
                yield from self._next()
        while self._unanswered:
            yield from self._next()

    def _ask(self, index: int, data: bytes) -> None:
        asked = self._board.address(index, data)
        self.asked.add(index)
        self._unanswered += 1
        window = self._windows.get(asked.line)
        if window is None:
            window = _Window(asked.line, self._board.retry)
            with self._lock:
                self._windows[asked.line] = window
        if window.backlog or not self._fits(window, asked):
            window.backlog.append(asked)
            self._blocked[window] = None
            self._held += len(data)
        else:
            self._dispatch(window, asked)

    def _fits(self, window: _Window, asked: _Asked) -> bool:
        """Counting the answer, too: it is as long as those so far."""
        mean = self._answer_bytes // self._answers if self._answers else FIRST_ANSWER_BYTES
        asked.weight = weight = len(asked.data) + mean
        return (window.weight + weight <= WINDOW_BYTES or not window.weight) and (
            self._weight + weight <= ALL_WINDOWS_BYTES or not self._weight
        )

    def _dispatch(self, window: _Window, asked: _Asked) -> None:
        if not window.weight:
            window.since = time.monotonic()
        window.weight += asked.weight
        self._weight += asked.weight
        with self._lock:
            self.outstanding[asked.request] = asked
        self._put(asked)

    def _put(self, asked: _Asked) -> None:
        self._batch.extend((asked.down, frame) for frame in f.cut(asked.request, asked.data))
        self._batch_bytes += len(asked.data)
        if len(self._batch) >= _BATCH or self._batch_bytes >= _BATCH_BYTES:
            self._post()

    def _post(self) -> None:
        if self._batch:
            self._board.connection.post(self._batch)
            self._batch, self._batch_bytes = [], 0

    def _next(self) -> Iterator[tuple[int, bytes]]:
        """The next answer, or nothing where there was something else to do."""
        if self.inbox.empty():
            self._post()
        try:
            item = self.inbox.get(timeout=max(0.0, self._next_look - time.monotonic()))
        except Empty:
            item = None
        now = time.monotonic()
        if item is None or now >= self._next_look:
            self._look_around(now)
        if item is None:
            return
        asked, body = item
        if isinstance(body, MemberError):
            raise body
        window = self._windows[asked.line]
        window.weight -= asked.weight
        window.since, window.wait = now, self._board.retry
        self._weight -= asked.weight
        self._answers += 1
        self._answer_bytes += len(body)
        self._unanswered -= 1
        if self._blocked:
            self._let_through()
        yield asked.index, body

    def _let_through(self) -> None:
        for window in list(self._blocked):
            while window.backlog and self._fits(window, window.backlog[0]):
                asked = window.backlog.popleft()
                self._held -= len(asked.data)
                self._dispatch(window, asked)
            if not window.backlog:
                del self._blocked[window]
            elif self._weight >= ALL_WINDOWS_BYTES:
                return

    def _look_around(self, now: float) -> None:
        """Who came back without its memory, who is silent, what may have been lost?"""
        self._next_look = now + self._period
        self._board.interrupt(self)
        with self._lock:
            outstanding = list(self.outstanding.values())
            resend, self._resend = self._resend, set()
        waiting: dict[_Line, list[_Asked]] = {}
        for asked in outstanding:
            waiting.setdefault(asked.line, []).append(asked)
        lost = [line for line in waiting if self._board.silence(line, now) > self._board.patience]
        if lost:
            silent = (asked.index for line in lost for asked in waiting[line])
            raise Interrupted(frozenset(), frozenset(silent))
        for line, asked_of_line in waiting.items():
            window = self._windows[line]
            late = now - window.since >= window.wait
            if late:
                window.wait = min(2 * window.wait, 8 * self._board.retry)
            if late or line in resend:
                window.since = now
                for asked in asked_of_line:
                    self._put(asked)
                self._board.events.retried(line.name, len(asked_of_line))
        self._post()


class Switchboard:
    """A `Transport`. Made when the broker is reached; carriers that are running say hello."""

    def __init__(
        self,
        options: dict[str, Any],
        about: Callable[[int], bytes],
        roster: Roster,
        *,
        patience: float = 60.0,
        retry: float = 5.0,
        ping_seconds: float = 2.0,
        beat_seconds: float = f.BEAT_SECONDS,
        events: Events | None = None,
    ) -> None:
        """`about` is asked with the smallest index of a carrier, for all of its clients."""
        self.patience, self.retry, self.events = patience, retry, events or Events()
        self._about, self._roster = about, roster
        self._ping_seconds, self._beat_seconds = ping_seconds, beat_seconds
        self._changed = Condition()
        self._lines: dict[str, _Line] = {}
        self._places: dict[int, tuple[_Line, int]] = {}
        self._challenges: dict[str, _Challenge] = {}
        self._hellos = f.Assembler()
        self._watched: frozenset[int] = frozenset()
        self._restarted, self._gone = set[int](), set[int]()
        self._call: _Call | None = None
        self._failure: Exception | None = None
        self._finished: f.Finished | None = None
        self._notices: list[Callable[[], None]] = []
        self._online: float | None = time.monotonic()
        """Since when there is a connection."""
        self._requests = itertools.count(secrets.randbits(48))
        self.dropped = 0
        """Answers that nobody waited for: late, or for the second time."""
        self.connection = Connection(options, _BoardWatch(self))
        self.connection.open()
        self.connection.subscribe("up.>", self._hear)
        self.connection.every(beat_seconds, self._look_for_silent)
        roll_call = f.encode(f.RollCall())
        self.connection.post([(f"down.{name}.all", roll_call) for name in roster.names()])

    def __enter__(self) -> Switchboard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def present(self) -> dict[int, Presence]:
        """All clients that were heard of within the patience."""
        now = time.monotonic()
        with self._changed:
            return {
                index: presence
                for line in self._lines.values()
                if self.silence(line, now) <= self.patience
                for index, presence in line.presences.items()
            }

    def wait_for(self, count: int, *, timeout: float | None = None) -> dict[int, Presence]:
        return self.wait_until(lambda present: len(present) >= count, timeout=timeout)

    def wait_until(
        self,
        predicate: Callable[[Mapping[int, Presence]], bool],
        progress: Callable[[Mapping[int, Presence]], None] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[int, Presence]:
        """Who is present when the predicate holds; `TimeoutError` if that takes too long.

        `progress` is told in this thread whenever somebody came or went.
        """
        end, told = None if timeout is None else time.monotonic() + timeout, None
        while True:
            self._raise_failure()
            with self._changed:
                present = self.present()
                if not predicate(present) and present == told:
                    rest = None if end is None else end - time.monotonic()
                    if rest is not None and rest <= 0:
                        raise TimeoutError(f"{len(present)} clients are present after {timeout} s")
                    self._changed.wait(rest)
                    continue
            if progress is not None and present != told:
                progress(present)
            if predicate(present):
                return present
            told = present

    def watch_members(self, members: Iterable[int]) -> None:
        """Whose restart or leave interrupts a call, even one that does not ask them."""
        with self._changed:
            self._watched = frozenset(members)
            self._restarted.clear()
            self._gone.clear()

    def call(self, requests: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """Answers as they come, while requests are still being taken; one call at a time."""
        with self._changed:
            if self._call is not None:
                raise LpgcnError("a call is under way; end it, or close it, before the next")
            call = self._call = _Call(self, self._changed)
        try:
            yield from call.run(requests)
        finally:
            with self._changed:
                self._call = None

    def finish(self, text: str, *, timeout: float = 5.0) -> None:
        """Tell everybody that the run is over, and wait until those who live have heard it."""
        end = time.monotonic() + timeout
        with self._changed:
            self._finished = f.Finished(text)
            while (now := time.monotonic()) < end and self._failure is None:
                alive = [line for line in self._lines.values() if not line.silent]
                if not alive:
                    return
                for line in alive:
                    self._say(line.name, line.session, self._finished)
                self._changed.wait(min(1.0, end - now))

    def close(self) -> None:
        self.connection.close()

    # For the call that is under way.

    def address(self, index: int, data: bytes) -> _Asked:
        """A request to whoever this index is at present."""
        with self._changed:
            place = self._places.get(index)
        if place is None:
            raise Interrupted(frozenset(), frozenset([index]))
        line, number = place
        up = f"up.{line.name}.{line.session}.{number}"
        return _Asked(next(self._requests), index, line, data, up, line.subject(number))

    def silence(self, line: _Line, now: float) -> float:
        """For how long nothing was heard, as far as we could have heard it."""
        return 0.0 if self._online is None else now - max(line.heard, self._online)

    def interrupt(self, call: _Call) -> None:
        """Raise what has happened to members; each is told once."""
        self._raise_failure()
        with self._changed:
            concerned = self._watched | call.asked
            restarted, gone = self._restarted & concerned, self._gone & concerned
            if not restarted and not gone:
                return
            self._restarted.clear()
            self._gone.clear()
        raise Interrupted(frozenset(restarted), frozenset(gone))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # In the connection's thread.

    def fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = error
            self._wake()

    def lose_connection(self) -> None:
        with self._changed:
            self._online = None
        self.events.disconnected()

    def regain_connection(self) -> None:
        with self._changed:
            self._online = time.monotonic()
            self._changed.notify_all()
        self.send_again()
        self.events.reconnected()

    def send_again(self) -> None:
        if (call := self._call) is not None:
            call.resend_soon(None)

    def _wake(self) -> None:
        self._changed.notify_all()
        if self._call is not None:
            self._call.inbox.put(None)

    def _say(self, name: str, session: str, frame: f.Frame) -> None:
        subject = f"down.{name}.{session}.control"
        pieces = f.cut_frame(frame, next(self._requests))
        self.connection.post([(subject, piece) for piece in pieces])

    def _hear(self, subject: str, payload: bytes) -> None:
        try:
            _, name, session, last = subject.split(".")
        except ValueError:
            return
        line = self._lines.get(name)
        known = line is not None and line.session == session
        if line is not None and known:
            line.heard = time.monotonic()
        if last.isdecimal():
            self._hear_answer(subject, payload)
        else:
            with self._changed:
                self._hear_control(name, session, line if known else None, payload)
        if self._notices or (line is not None and known and line.silent):
            self._tell(line if known else None)

    def _hear_answer(self, subject: str, payload: bytes) -> None:
        call = self._call
        try:
            frame = f.read_up(payload)
            if not isinstance(frame, (f.Part, f.Failure)):
                raise f.FrameError(f"a {type(frame).__name__} where an answer is expected")
            if call is None or not call.take(subject, frame):
                self.dropped += 1
        except f.FrameError as error:
            _logger.warning("%s: %s", subject, error)
            if call is not None:
                call.spoil(subject, error)

    def _tell(self, line: _Line | None) -> None:
        """The observer is called without the lock."""
        with self._changed:
            if line is not None and line.silent:
                line.silent = False
                self._notice(self.events.back, line)
                self._changed.notify_all()
            notices, self._notices = self._notices, []
        for notice in notices:
            notice()

    def _notice(self, tell: Callable[[str, tuple[int, ...]], None], line: _Line) -> None:
        name, indices = line.name, tuple(line.presences)
        self._notices.append(lambda: tell(name, indices))

    def _hear_control(self, name: str, session: str, line: _Line | None, payload: bytes) -> None:
        try:
            frame: f.Up | None = f.read_up(payload)
            if isinstance(frame, f.Part):
                body = self._hellos.add(f"{name}.{session}", frame)
                frame = None if body is None else f.read_up(body)
        except f.FrameError as error:
            self._refuse(name, session, f"{error}; is the software of the same version?")
            return
        if isinstance(frame, f.Hello):
            self._greet(name, session, frame)
        elif frame is None or (self._finished is not None and not isinstance(frame, f.Bye)):
            if self._finished is not None:
                self._say(name, session, self._finished)
        elif line is None:
            # A carrier that this server does not know, as it was restarted.
            if not isinstance(frame, f.Bye):
                self._say(name, session, f.RollCall())
        elif isinstance(frame, f.Bye):
            self._part_with(line, frame.numbers)
        elif isinstance(frame, f.Pong):
            challenge = self._challenges.get(name)
            if challenge is not None and challenge.old == session:
                del self._challenges[name]
                self._refuse(
                    name,
                    challenge.new,
                    f"{name!r} is here already, and answers; stop the other process first, or use "
                    "credentials of another name",
                )

    def _greet(self, name: str, session: str, hello: f.Hello) -> None:
        line = self._lines.get(name)
        numbers = {offer.number for offer in hello.clients}
        if self._finished is not None:
            self._say(name, session, self._finished)
        elif hello.version != f.VERSION:
            self._refuse(
                name, session, f"frames of version {hello.version}, expected {f.VERSION}: update"
            )
        elif hello.session != session or len(numbers) != len(hello.clients) or not numbers:
            self._refuse(name, session, "a hello without clients, or with one of them twice")
        elif line is None or line.session == session:
            self._admit(name, session, hello)
        elif name in self._challenges:
            # It says hello again and again while its predecessor has time to answer.
            return
        elif self.silence(line, time.monotonic()) > _SILENT_BEATS * self._beat_seconds:
            self._admit(name, session, hello)
        else:
            challenge = self._challenges[name] = _Challenge(line.session, session, hello)
            self._say(name, line.session, f.Ping())
            self.connection.later(self._ping_seconds, lambda: self._judge(name, challenge))

    def _judge(self, name: str, challenge: _Challenge) -> None:
        with self._changed:
            if self._challenges.get(name) is challenge:
                del self._challenges[name]
                self._admit(name, challenge.new, challenge.hello)
        self._tell(None)

    def _refuse(self, name: str, session: str, reason: str) -> None:
        self._say(name, session, f.Refused(reason))
        self._notices.append(lambda: self.events.refused(name, reason))

    def _admit(self, name: str, session: str, hello: f.Hello) -> None:
        """A new session, or the same once more."""
        indices = self._roster.assign_all(name, hello.clients)
        presences = {
            indices[offer.number]: Presence(name, session, offer.number, offer.checkpoints)
            for offer in hello.clients
        }
        line = self._lines.get(name)
        if line is not None and line.session == session:
            self._leave(line.presences.keys() - presences.keys())
            line.indices, line.presences = indices, presences
            if self._call is not None:
                self._call.resend_soon(line)
        else:
            if line is not None:
                self._restarted |= self._concerned(line.presences.keys() & presences.keys())
                self._leave(line.presences.keys() - presences.keys())
            line = self._lines[name] = _Line(name, session, indices, presences, time.monotonic())
            self._restarted |= self._gone & presences.keys()
            self._gone -= presences.keys()
            self._notice(self.events.joined, line)
        self._places |= {index: (line, number) for number, index in indices.items()}
        self._say(name, session, f.Welcome(f.VERSION, self._about(min(presences)), indices))
        self._wake()

    def _part_with(self, line: _Line, numbers: Iterable[int]) -> None:
        leaving = {line.indices[number] for number in numbers if number in line.indices}
        self._leave(leaving)
        self._notices.append(lambda: self.events.left(line.name, tuple(sorted(leaving))))
        line.indices = {n: index for n, index in line.indices.items() if index not in leaving}
        line.presences = {i: one for i, one in line.presences.items() if i not in leaving}
        if not line.presences:
            del self._lines[line.name]
        self._wake()

    def _leave(self, indices: Iterable[int]) -> None:
        indices = set(indices)
        self._gone |= self._concerned(indices)
        for index in indices:
            del self._places[index]

    def _concerned(self, indices: Iterable[int]) -> set[int]:
        """Those of them whose fate a call wants to know."""
        asked = set[int]() if self._call is None else self._call.asked
        return {index for index in indices if index in self._watched or index in asked}

    def _look_for_silent(self) -> None:
        now = time.monotonic()
        with self._changed:
            for line in self._lines.values():
                silence = self.silence(line, now)
                if silence > _SILENT_BEATS * self._beat_seconds and not line.silent:
                    line.silent = True
                    self._notice(self.events.silent, line)
            # Somebody may be waiting for who is present, which time alone changes, too.
            self._changed.notify_all()
        self._tell(None)


class _BoardWatch(Watch):
    def __init__(self, board: Switchboard) -> None:
        self._board = board

    def waiting(self, reason: str, seconds: float) -> None:
        self._board.events.waiting(reason, seconds)

    def disconnected(self) -> None:
        self._board.lose_connection()

    def reconnected(self) -> None:
        self._board.regain_connection()

    def overrun(self) -> None:
        self._board.send_again()

    def failed(self, error: Exception) -> None:
        self._board.fail(error)
