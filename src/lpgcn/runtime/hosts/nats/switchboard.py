"""The server's end of the network: who is there, and a call to many of them at once.

A carrier is a process with one connection and one or many clients. Callbacks run in the
connection's thread, calls in the caller's; `_changed` is the lock between them. `attendance` keeps
the book of who is there.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Condition
from typing import Any, Final

from lpgcn import __version__
from lpgcn.errors import LpgcnError
from lpgcn.files import StorageError
from lpgcn.runtime.hosts.nats import frames as f
from lpgcn.runtime.hosts.nats.attendance import Attendance, Challenge, Presence, Session
from lpgcn.runtime.hosts.nats.calls import Call, Events, Interrupted, MemberError, Pending
from lpgcn.runtime.hosts.nats.connection import ClosedError, Connection, Watch
from lpgcn.runtime.hosts.nats.jwt import CredentialsError, check_name
from lpgcn.runtime.hosts.nats.roster import Roster

__all__ = ["Events", "Interrupted", "MemberError", "Presence", "Roster", "Switchboard"]

_SILENT_BEATS: Final = 3
_logger = logging.getLogger(__name__)


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
        ping_seconds: float = 1.5 * f.BEAT_SECONDS,
        beat_seconds: float = f.BEAT_SECONDS,
        events: Events | None = None,
        check: Callable[[], None] | None = None,
    ) -> None:
        """`about` is asked with the smallest index of a carrier, for all of its clients; `check`
        every beat, in the connection's thread, and what it raises ends all waiting. `ping_seconds`
        are longer than a beat: a pong may come late, behind what a slow line has to carry."""
        self.patience, self.retry, self.events = patience, retry, events or Events()
        self._about, self._attendance = about, Attendance(roster)
        self._ping_seconds, self._beat_seconds = ping_seconds, beat_seconds
        self._changed = Condition()
        self._challenges: dict[str, Challenge] = {}
        self._hellos = f.Assembler(limit=64 << 20, memory=128 << 20)
        self._call: Call | None = None
        self._failure: Exception | None = None
        self._finished: f.Finished | None = None
        self._untold: set[str] = set()
        """Names of carriers that have not confirmed that the run is over."""
        self._notices: list[Callable[[], None]] = []
        self._requests = itertools.count(secrets.randbits(48))
        self.dropped = 0
        """Answers that nobody waited for: late, or for the second time."""
        self.connection = Connection(options, _BoardWatch(self))
        if check is not None:
            self.connection.every(beat_seconds, check)
        try:
            self.connection.open()
        except ClosedError:
            self._raise_failure()
            raise
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
        with self._changed:
            return {
                index: presence
                for line in self._attendance.heard_within(self.patience)
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
            self._attendance.watch(members)

    def call(self, requests: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        """Answers as they come, while requests are still being taken; one call at a time."""
        with self._changed:
            if self._call is not None:
                raise LpgcnError("a call is under way; end it, or close it, before the next")
            call = self._call = Call(self, self._changed)
            self._attendance.begin_call(call.asked)
        try:
            yield from call.run(requests)
        finally:
            with self._changed:
                self._call = None
                self._attendance.end_call()

    def finish(self, text: str, *, also: Iterable[str] = (), timeout: float = 20.0) -> None:
        """Tell everybody that the run is over, and wait until they have heard it: whoever was heard
        of within the patience, so that who is just being restarted hears it too, and some others.
        """
        end = time.monotonic() + timeout
        with self._changed:
            self._finished = f.Finished(text)
            present = self._attendance.heard_within(self.patience)
            self._untold = {line.name for line in present} | set(also)
            while self._untold and (now := time.monotonic()) < end and self._failure is None:
                lines = self._attendance.lines
                for name in self._untold & lines.keys():
                    self._say(name, lines[name].session, self._finished)
                self._changed.wait(min(1.0, end - now))

    def close(self) -> None:
        self.connection.close()

    # For the call that is under way.

    def address(self, index: int, data: bytes) -> Pending:
        """A request to whoever this index is at present."""
        with self._changed:
            place = self._attendance.place(index)
        if place is None:
            raise Interrupted(frozenset(), frozenset([index]))
        line, number = place
        up = f"up.{line.name}.{line.session}.{number}"
        return Pending(next(self._requests), index, line, data, up, line.subject(number))

    def silence(self, line: Session, now: float) -> float:
        return self._attendance.silence(line, now)

    def interrupt(self) -> None:
        """Raise what has happened to members."""
        self._raise_failure()
        with self._changed:
            restarted, gone = self._attendance.take_changes()
        if restarted or gone:
            raise Interrupted(restarted, gone)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # In the connection's thread.

    def fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = error
            self._wake()
        self.connection.give_up()

    def lose_connection(self) -> None:
        with self._changed:
            self._attendance.disconnect()
        self.events.disconnected()

    def regain_connection(self) -> None:
        with self._changed:
            self._attendance.reconnect()
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
            check_name(name)
            check_name(session)
        except (ValueError, CredentialsError):
            # The broker sees to the name alone, and a session is told to the operator, too.
            _logger.warning("%s: no carrier says anything there", f.shown(subject))
            return
        line = self._attendance.lines.get(name)
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
            _logger.warning("%s: %s", f.shown(subject), error)
            if call is not None:
                call.spoil(subject, error)

    def _tell(self, line: Session | None) -> None:
        """The observer is called without the lock."""
        with self._changed:
            if line is not None and line.silent:
                line.silent = False
                self._notice(self.events.back, line)
                self._changed.notify_all()
            notices, self._notices = self._notices, []
        for notice in notices:
            notice()

    def _notice(self, tell: Callable[[str, tuple[int, ...]], None], line: Session) -> None:
        name, indices = line.name, tuple(line.presences)
        self._notices.append(lambda: tell(name, indices))

    def _hear_control(self, name: str, session: str, line: Session | None, payload: bytes) -> None:
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
        elif isinstance(frame, f.Bye):
            self._untold.discard(name)
            self._changed.notify_all()
            if line is not None:
                self._part_with(line, frame.numbers)
        elif frame is None or self._finished is not None:
            if self._finished is not None:
                self._say(name, session, self._finished)
        elif line is None:
            # A carrier that this server does not know, as it was restarted.
            self._say(name, session, f.RollCall())
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
        line = self._attendance.lines.get(name)
        numbers = {offer.number for offer in hello.clients}
        if self._finished is not None:
            self._say(name, session, self._finished)
        elif hello.version != f.VERSION:
            self._refuse(
                name,
                session,
                f"frames of version {hello.version}, of lpgcn {f.shown(hello.software)}, expected "
                f"{f.VERSION}, of lpgcn {__version__}: update the older one",
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
            self._challenge(name, line.session, session, hello)

    def _challenge(self, name: str, old: str, new: str, hello: f.Hello) -> None:
        challenge = self._challenges[name] = Challenge(old, new, hello, time.monotonic())
        self._say(name, old, f.Ping())
        self.connection.later(self._ping_seconds, lambda: self._judge(name, challenge))

    def _judge(self, name: str, challenge: Challenge) -> None:
        with self._changed:
            if self._challenges.get(name) is challenge:
                line = self._attendance.lines.get(name)
                if line is not None and line.heard > challenge.since:
                    # It lives on a slow line, or its last messages outlive it: it is asked again.
                    self._challenge(name, challenge.old, challenge.new, challenge.hello)
                else:
                    del self._challenges[name]
                    self._admit(name, challenge.new, challenge.hello)
        self._tell(None)

    def _refuse(self, name: str, session: str, reason: str) -> None:
        self._say(name, session, f.Refused(reason))
        self._notices.append(lambda: self.events.refused(name, reason))

    def _admit(self, name: str, session: str, hello: f.Hello) -> None:
        """A new session, or the same once more."""
        try:
            line, new = self._attendance.admit(name, session, hello.clients)
        except StorageError as error:
            # It says hello again; a disk that is full must not end everybody's run.
            _logger.warning("%s could not be let in: %s", name, error)
            return
        if new:
            self._notice(self.events.joined, line)
        elif self._call is not None:
            self._call.resend_soon(line)
        about = self._about(min(line.presences))
        self._say(name, session, f.Welcome(f.VERSION, about, line.indices))
        self._wake()

    def _part_with(self, line: Session, numbers: Iterable[int]) -> None:
        leaving = self._attendance.part_with(line, numbers)
        self._notices.append(lambda: self.events.left(line.name, leaving))
        self._wake()

    def _look_for_silent(self) -> None:
        with self._changed:
            for line in self._attendance.fall_silent(_SILENT_BEATS * self._beat_seconds):
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
