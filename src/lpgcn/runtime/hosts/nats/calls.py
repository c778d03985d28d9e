"""One call to many clients: what is on its way, what is sent again, and what breaks it off.

Messages are delivered at most once, so that a request is kept until its answer is here, and sent
again where something was or may have been lost; an answer counts once. How much is on its way is
bounded, for each carrier and for all.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Condition
from typing import Final, Protocol

from lpgcn.errors import LpgcnError
from lpgcn.runtime.engines.engine import RunInterruptedError
from lpgcn.runtime.hosts.nats import frames as f
from lpgcn.runtime.hosts.nats.attendance import Session
from lpgcn.runtime.hosts.nats.connection import Batch, Connection

WINDOW_BYTES: Final = 16 << 20
"""On their way to and from one carrier: a broker drops whoever has more waiting than it allows, 64
MiB unless it is told otherwise, as our own is."""
ALL_WINDOWS_BYTES: Final = 48 << 20
HELD_BYTES: Final = 64 << 20
"""Of requests that were taken and wait for room in their windows."""
FIRST_ANSWER_BYTES: Final = 256 << 10
"""How long an answer is taken to be before the first has come."""
SLOWEST_RATE: Final = 125_000
"""Bytes a second, 1 Mbit/s, as a poor line has: what this would still be carrying is not lost."""
LATE_TOO_OFTEN: Final = 3
"""One message after the other is lost less often than somebody's disk is full."""
_BATCH, _BATCH_BYTES = 48, 256 << 10


class MemberError(LpgcnError):
    """A client answered that it does not accept what it was asked."""

    def __init__(self, index: int, kind: str, text: str) -> None:
        super().__init__(f"client {index} did not accept a request: {kind}: {text}")
        self.index, self.kind, self.text = index, kind, text


class Interrupted(RunInterruptedError):  # noqa: N818 - an event, after which the run goes on
    """A round cannot be completed with those who began it."""

    def __init__(self, restarted: frozenset[int], silent: frozenset[int]) -> None:
        super().__init__(
            f"{len(restarted)} clients came back without their memory, {len(silent)} are away; go "
            "on from the last checkpoint when everybody is present"
        )
        self.restarted, self.silent = restarted, silent


class Events:
    """What an observer is told, in the thread where it happens; this one does not listen."""

    def joined(self, name: str, indices: tuple[int, ...]) -> None: ...
    def left(self, name: str, indices: tuple[int, ...]) -> None: ...
    def silent(self, name: str, indices: tuple[int, ...]) -> None: ...
    def back(self, name: str, indices: tuple[int, ...]) -> None: ...
    def retried(self, name: str, requests: int) -> None: ...
    def unanswered(self, name: str, requests: int) -> None:
        """Asked again and again, without an answer to anything; it may well be heard otherwise."""

    def refused(self, name: str, reason: str) -> None: ...
    def waiting(self, reason: str, seconds: float) -> None: ...
    def disconnected(self) -> None: ...
    def reconnected(self) -> None: ...


@dataclass(slots=True, eq=False)
class Pending:
    """A request without an answer."""

    request: int
    index: int
    line: Session
    data: bytes
    up: str
    """Where the answer comes from."""
    down: str
    weight: int = 0


@dataclass(slots=True, eq=False)
class Window:
    """What is on its way to and from one session."""

    line: Session
    wait: float
    since: float = 0.0
    """The last sign of progress."""
    late: int = 0
    """How often that was too long ago, one time after the other."""
    weight: int = 0
    backlog: deque[Pending] = field(default_factory=deque)


Answer = tuple[Pending, bytes | MemberError]


class Board(Protocol):
    """What a call needs of its switchboard."""

    patience: float
    retry: float
    events: Events
    connection: Connection

    def address(self, index: int, data: bytes) -> Pending:
        """A request to whoever this index is at present."""
        ...

    def silence(self, line: Session, now: float) -> float:
        """For how long nothing was heard of a session."""
        ...

    def interrupt(self) -> None:
        """Raise what has happened to members since they were asked, each once."""
        ...


class Call:
    """One round. `take` and `resend_soon` are for the connection's thread, all else is not."""

    def __init__(self, board: Board, lock: Condition) -> None:
        self._board, self._lock = board, lock
        self._assembler = f.Assembler()
        self.asked: set[int] = set()
        self.outstanding: dict[int, Pending] = {}
        self.inbox: SimpleQueue[Answer | None] = SimpleQueue()
        """None: there is something else to look at."""
        self._resend: set[Session] = set()
        self._windows: dict[Session, Window] = {}
        self._blocked: dict[Window, None] = {}
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
            body = MemberError(asked.index, f.shown(frame.kind), f.shown(frame.text))
        elif (body := self._assembler.add(subject, frame)) is None:
            # The rest of it is on its way.
            window = self._windows[asked.line]
            window.since, window.late = time.monotonic(), 0
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

    def resend_soon(self, line: Session | None) -> None:
        """To this carrier, or to all."""
        with self._lock:
            self._resend |= self._windows.keys() if line is None else {line}
        self.inbox.put(None)

    def run(self, requests: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        self._board.interrupt()
        for index, data in requests:
            self._ask(index, data)
            while self._held > HELD_BYTES or not self.inbox.empty():
                yield from self._next()
        while self._unanswered:
            yield from self._next()

    def _ask(self, index: int, data: bytes) -> None:
        f.check_length(data)
        asked = self._board.address(index, data)
        self.asked.add(index)
        self._unanswered += 1
        window = self._windows.get(asked.line)
        if window is None:
            window = Window(asked.line, self._board.retry)
            with self._lock:
                self._windows[asked.line] = window
        if window.backlog or not self._fits(window, asked):
            window.backlog.append(asked)
            self._blocked[window] = None
            self._held += len(data)
        else:
            self._dispatch(window, asked)

    def _fits(self, window: Window, asked: Pending) -> bool:
        """Counting the answer, too: it is as long as those so far."""
        mean = self._answer_bytes // self._answers if self._answers else FIRST_ANSWER_BYTES
        asked.weight = weight = len(asked.data) + mean
        return (window.weight + weight <= WINDOW_BYTES or not window.weight) and (
            self._weight + weight <= ALL_WINDOWS_BYTES or not self._weight
        )

    def _dispatch(self, window: Window, asked: Pending) -> None:
        if not window.weight:
            window.since = time.monotonic()
        window.weight += asked.weight
        self._weight += asked.weight
        with self._lock:
            self.outstanding[asked.request] = asked
        self._put(asked)

    def _put(self, asked: Pending) -> None:
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
        window.since, window.wait, window.late = now, self._board.retry, 0
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
            elif self._weight + window.backlog[0].weight > ALL_WINDOWS_BYTES:
                # Nobody else has room either.
                return

    def _look_around(self, now: float) -> None:
        """Who came back without its memory, who is silent, what may have been lost?"""
        self._next_look = now + self._period
        self._board.interrupt()
        with self._lock:
            outstanding = list(self.outstanding.values())
            resend, self._resend = self._resend, set()
        waiting: dict[Session, list[Pending]] = {}
        for asked in outstanding:
            waiting.setdefault(asked.line, []).append(asked)
        lost = [line for line in waiting if self._board.silence(line, now) > self._board.patience]
        if lost:
            silent = (asked.index for line in lost for asked in waiting[line])
            raise Interrupted(frozenset(), frozenset(silent))
        for line, asked_of_line in waiting.items():
            window = self._windows[line]
            on_its_way = sum(len(asked.data) for asked in asked_of_line)
            late = now - window.since >= window.wait + on_its_way / SLOWEST_RATE
            if late:
                window.late += 1
                window.wait = min(2 * window.wait, 8 * self._board.retry)
            if late or line in resend:
                window.since = now
                for asked in asked_of_line:
                    self._put(asked)
                self._board.events.retried(line.name, len(asked_of_line))
            if late and window.late == LATE_TOO_OFTEN:
                self._board.events.unanswered(line.name, len(asked_of_line))
        self._post()
