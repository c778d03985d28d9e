"""The clients' end of the network: a process with one connection, for one client or thousands.

Requests are handled in the thread that called `run`, one after the other. Beats, and the answer to
a ping, go out from the connection's thread, however long a client thinks.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, Final

from lpgcn import __version__
from lpgcn.checkpoints import CheckpointError
from lpgcn.crypto.errors import CryptoError
from lpgcn.errors import LpgcnError
from lpgcn.files import StorageError
from lpgcn.fixed_point import DivergedError
from lpgcn.model.grid import ADVICE, GridError
from lpgcn.protocol.errors import ProtocolError, ReplayedMessageError
from lpgcn.runtime.hosts.nats import frames as f
from lpgcn.runtime.hosts.nats.connection import Batch, ClosedError, Connection, Watch
from lpgcn.runtime.hosts.nats.jwt import check_name

Handler = Callable[[bytes], bytes]
Request = tuple[int, int, bytes]
"""A client's number, the request's, and its body."""

_LONGEST_PAUSE: Final = 60.0
"""Between two hellos."""
_BATCH, _BATCH_BYTES, _BATCH_SECONDS = 48, 256 << 10, 0.005
_TEXT: Final = 4000
_PUBLIC: Final = (ProtocolError, CryptoError, DivergedError, f.FrameError)
"""What these say is about the request, in numbers that the server knows."""
_TOLD: Final[Mapping[type[LpgcnError], str]] = {
    CheckpointError: "its checkpoint is missing or damaged",
    GridError: f"a number of its own does not fit the grid; {ADVICE}",
}
_ELSEWHERE: Final = "what it is about is told on its own device"


class RefusedError(LpgcnError):
    """The server does not want this carrier."""


class CarrierEvents:
    """What an observer is told, in the thread where it happens; this one does not listen."""

    def waiting(self, reason: str, seconds: float) -> None: ...
    def welcomed(self, indices: Mapping[int, int]) -> None: ...
    def disconnected(self) -> None: ...
    def reconnected(self) -> None: ...
    def storage_failed(self, error: StorageError) -> None: ...
    def request_failed(self, error: LpgcnError) -> None:
        """The server is told less than this says."""


class Carrier:
    """Says hello, answers requests until the server says that the run is over."""

    def __init__(
        self,
        options: dict[str, Any],
        name: str,
        offers: Iterable[f.Offer],
        admit: Callable[[f.Welcome], Mapping[int, Handler]],
        checkpoints: Callable[[int], Iterable[int]],
        *,
        events: CarrierEvents | None = None,
        beat_seconds: float = f.BEAT_SECONDS,
    ) -> None:
        """`admit` makes the clients, once their indices are known; `checkpoints` are asked for by
        number whenever hello is said."""
        self._name, self._offers, self._beat_seconds = check_name(name), tuple(offers), beat_seconds
        self._admit, self._checkpoints = admit, checkpoints
        self.session = secrets.token_hex(8)
        self._up = f"up.{name}.{self.session}"
        self._handlers: Mapping[int, Handler] = {}
        self._indices: dict[int, int] = {}
        self._about = b""
        self._events = events or CarrierEvents()
        self._inbox: SimpleQueue[Request | f.Down | Exception | None] = SimpleQueue()
        self._assembler = f.Assembler()
        self._queued: set[tuple[int, int]] = set()
        self._hello_due = False
        self._hellos, self._next_hello = 0, 0.0
        self._stopping = False
        self._batch: Batch = []
        self._batch_bytes, self._batch_begun = 0, 0.0
        self.replayed = self.repeated = self.malformed = 0
        """Late requests, requests that came again before they were handled, unreadable frames."""
        self._connection = Connection(options, _CarrierWatch(self, self._events))

    def run(self) -> str:
        """The text with which the run ended; nothing if `stop` was called.

        Raises `RefusedError`, and what no reconnection mends.
        """
        text, greeted = "", False
        try:
            self._connection.open()
            self._connection.subscribe(f"down.{self._name}.all", self._hear)
            self._connection.subscribe(f"down.{self._name}.{self.session}.*", self._hear)
            self._connection.every(self._beat_seconds, self._beat)
            self._say_hello()
            greeted = True
            text = self._serve()
        except ClosedError:
            return ""
        finally:
            # Who came back only to hear that the run is over confirms that, too; and who is stopped
            # may have been welcomed without having heard it yet.
            if self._indices or text or (greeted and self._stopping):
                numbers = tuple(offer.number for offer in self._offers)
                self._post([(f"{self._up}.bye", f.encode(f.Bye(numbers)))])
            self._connection.close()
        return text

    def stop(self) -> None:
        """From any thread: `run` says goodbye after the request that it is handling."""
        self._stopping = True
        self._connection.give_up()
        self._inbox.put(None)

    def _serve(self) -> str:
        while not self._stopping:
            if self._batch and (self._inbox.empty() or self._batch_is_due()):
                self._send_batch()
            try:
                item = self._inbox.get(timeout=None if self._indices else self._until_hello())
            except Empty:
                self._say_hello()
                continue
            if isinstance(item, tuple):
                self._answer(*item)
            elif isinstance(item, f.Welcome):
                self._enter(item)
            elif isinstance(item, f.Refused):
                raise RefusedError(f"the server refused {self._name!r}: {f.shown(item.reason)}")
            elif isinstance(item, f.Finished):
                return f.shown(item.text)
            elif isinstance(item, f.RollCall):
                self._say_hello()
            elif isinstance(item, Exception):
                raise item
        return ""

    def _until_hello(self) -> float:
        return max(0.0, self._next_hello - time.monotonic())

    def _hello_seconds(self) -> float:
        """Twice as long every time: each hello brings the whole catalogue, and a line that is too
        slow for one would have to carry all of them."""
        pause = min(_LONGEST_PAUSE, self._beat_seconds * 2.0 ** min(self._hellos, 10))
        self._hellos += 1
        return pause * secrets.SystemRandom().uniform(0.75, 1.25)

    def _say_hello(self) -> None:
        self._hello_due = False
        self._next_hello = time.monotonic() + self._hello_seconds()
        offers = tuple(
            f.Offer(offer.number, offer.wish, tuple(self._checkpoints(offer.number)))
            for offer in self._offers
        )
        hello = f.Hello(f.VERSION, self.session, offers, __version__)
        pieces = f.cut_frame(hello, secrets.randbits(48))
        self._post([(f"{self._up}.hello", piece) for piece in pieces])

    def _enter(self, welcome: f.Welcome) -> None:
        """The clients are kept, unless they have become others, or the federation has."""
        if welcome.version != f.VERSION:
            raise RefusedError(
                f"the server speaks version {welcome.version}, this is {f.VERSION}: update"
            )
        if (welcome.indices, welcome.about) != (self._indices, self._about):
            self._handlers = self._admit(welcome)
            if self._handlers.keys() != welcome.indices.keys():
                raise LpgcnError(
                    f"{len(welcome.indices)} clients were welcomed, {len(self._handlers)} were made"
                )
            self._indices, self._about = dict(welcome.indices), welcome.about
        self._events.welcomed(welcome.indices)

    def _answer(self, number: int, request: int, body: bytes) -> None:
        handler = self._handlers.get(number)
        try:
            # Before the welcome there is nobody to ask, and the server asks again.
            if handler is not None:
                self._put(number, f.cut(request, handler(body)))
        except ReplayedMessageError:
            self.replayed += 1
        except StorageError as error:
            # The client is as it was before, and the server asks again.
            self._events.storage_failed(error)
        except LpgcnError as error:
            self._events.request_failed(error)
            failure = f.Failure(request, type(error).__name__, _told(error))
            self._put(number, [f.encode(failure)])
        finally:
            self._queued.discard((number, request))

    def _put(self, number: int, frames: Iterable[bytes]) -> None:
        if not self._batch:
            self._batch_begun = time.monotonic()
        subject = f"{self._up}.{number}"
        for frame in frames:
            self._batch.append((subject, frame))
            self._batch_bytes += len(frame)

    def _batch_is_due(self) -> bool:
        return (
            len(self._batch) >= _BATCH
            or self._batch_bytes >= _BATCH_BYTES
            or time.monotonic() - self._batch_begun >= _BATCH_SECONDS
        )

    def _send_batch(self) -> None:
        self._post(self._batch)
        self._batch, self._batch_bytes = [], 0

    def _post(self, batch: Batch) -> None:
        self._connection.post(batch)

    # In the connection's thread.

    def fail(self, error: Exception) -> None:
        self._inbox.put(error)

    def ask_for_hello(self) -> None:
        if not self._hello_due:
            self._hello_due = True
            self._inbox.put(f.RollCall())

    def _beat(self) -> None:
        if self._indices:
            self._post([(f"{self._up}.beat", f.encode(f.Beat()))])

    def _hear(self, subject: str, payload: bytes) -> None:
        last = subject.rpartition(".")[2]
        try:
            frame = f.read_down(payload)
            if isinstance(frame, f.Part):
                self._hear_part(subject, last, frame)
                return
        except f.FrameError:
            # The server asks again; where it does not speak our version, hello is refused.
            self.malformed += 1
            return
        self._hear_control(frame)

    def _hear_part(self, subject: str, last: str, part: f.Part) -> None:
        if last.isdecimal() and (int(last), part.request) in self._queued:
            self.repeated += 1
            return
        self._assembler.forget_others(subject, part.request)
        try:
            body = self._assembler.add(subject, part)
        except f.OversizedBodyError as error:
            # All parts say so, and the server would send them for ever.
            if part.part == 0 and last.isdecimal():
                failure = f.Failure(part.request, type(error).__name__, str(error))
                self._post([(f"{self._up}.{last}", f.encode(failure))])
            raise
        if body is None:
            return
        if last.isdecimal():
            self._queued.add((int(last), part.request))
            self._inbox.put((int(last), part.request, body))
        else:
            self._hear_control(f.read_down(body))

    def _hear_control(self, frame: f.Down) -> None:
        if isinstance(frame, f.Ping):
            self._post([(f"{self._up}.pong", f.encode(f.Pong()))])
        elif isinstance(frame, f.RollCall):
            self.ask_for_hello()
        else:
            self._inbox.put(frame)


def _told(error: LpgcnError) -> str:
    """What the server is told: where a device keeps its files, and what numbers it has, is nobody
    else's business."""
    if isinstance(error, _PUBLIC):
        return str(error)[:_TEXT]
    return _TOLD.get(type(error), _ELSEWHERE)


class _CarrierWatch(Watch):
    def __init__(self, carrier: Carrier, events: CarrierEvents) -> None:
        self._carrier, self._events = carrier, events

    def waiting(self, reason: str, seconds: float) -> None:
        self._events.waiting(reason, seconds)

    def disconnected(self) -> None:
        self._events.disconnected()

    def reconnected(self) -> None:
        self._carrier.ask_for_hello()
        self._events.reconnected()

    def overrun(self) -> None:
        self._carrier.ask_for_hello()

    def failed(self, error: Exception) -> None:
        self._carrier.fail(error)
