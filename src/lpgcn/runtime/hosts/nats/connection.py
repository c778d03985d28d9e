"""One connection to the broker, for code that is not asynchronous.

nats-py works in an event loop in a thread of its own. It reconnects by itself, but ends for good
after some errors of the broker; then a new client takes over. What is posted while there is no
connection is dropped: messages are delivered at most once anyway, and whoever waits asks again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import Any, Final

from nats import errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from lpgcn.runtime.hosts.nats.frames import shown
from lpgcn.runtime.hosts.nats.nats_client import (
    CONNECT_SECONDS,
    FLUSH_SECONDS,
    DistrustfulClient,
    ForbiddenSubjectError,
    NetworkError,
    UnauthorizedError,
    close,
    flush,
    refusal,
)

Batch = list[tuple[str, bytes]]
"""Subjects and payloads."""
Receive = Callable[[str, bytes], None]

_FIRST_WAIT: Final = 0.2
_LONGEST_WAIT: Final = 15.0
_REFUSALS: Final = 8
"""Of credentials that were good before: so many take a quarter of a minute, in which whoever
started the broker with another configuration may notice."""
_PENDING_BYTES: Final = 512 << 20
_logger = logging.getLogger(__name__)


class ClosedError(NetworkError):
    """The connection was closed from this side."""


class Watch:
    """What the owner of a connection is told, in the loop's thread; here it does not listen."""

    def waiting(self, reason: str, seconds: float) -> None:
        """The broker is out of reach, the next attempt is in so many seconds."""

    def disconnected(self) -> None: ...

    def reconnected(self) -> None:
        """Whatever was in flight is lost."""

    def overrun(self) -> None:
        """A message was dropped on this side, because too many were waiting."""

    def failed(self, error: Exception) -> None:
        """What no reconnection mends."""


class Connection:
    """Synchronous and thread-safe; callbacks are called in the loop's thread."""

    def __init__(self, options: dict[str, Any], watch: Watch | None = None) -> None:
        self._options, self._watch = options, watch or Watch()
        self._opened: Future[None] = Future()
        self._listening: list[tuple[str, Receive]] = []
        self._outbox: deque[Batch] = deque()
        self._client: Client | None = None
        self._attempt = self._refusals = 0
        self._closing = False
        self._thread = Thread(target=self._work, name="lpgcn nats", daemon=True)
        self._loop = asyncio.new_event_loop()
        self._wake, self._idle, self._ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def open(self) -> None:
        """Connect, however long it takes to reach the broker; not if that does not want us."""
        logging.getLogger("asyncio").addFilter(_is_worth_telling)
        self._thread.start()
        self._opened.result()

    def post(self, batch: Batch) -> None:
        """Send in this order, as soon as the loop's thread comes round to it."""
        self._soon(self._take, batch)

    def subscribe(self, subject: str, receive: Receive) -> None:
        """From now on, over all reconnections. Errors of `receive` go to `Watch.failed`."""

        async def listen() -> None:
            self._listening.append((subject, receive))
            if self._client is not None:
                await self._listen(self._client, subject, receive)
                await flush(self._client)

        with contextlib.suppress(errors.Error):
            # What is not connected now is subscribed to when it is again.
            asyncio.run_coroutine_threadsafe(listen(), self._loop).result()

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """In the loop's thread."""
        self._soon(lambda: self._loop.call_later(seconds, self._guarded, act))

    def every(self, seconds: float, act: Callable[[], None]) -> None:
        """In the loop's thread, until the connection is closed."""

        def again() -> None:
            act()
            self._loop.call_later(seconds, self._guarded, again)

        self.later(seconds, again)

    def close(self) -> None:
        """Send what was posted, if there is somebody to send it to, and end."""
        if not self._thread.ident:
            self._loop.close()
            return

        self._soon(self._end)
        self._thread.join()

    def give_up(self) -> None:
        """Do not wait for the broker any longer: `open` raises `ClosedError`, if it is waiting."""
        self._soon(lambda: None if self._opened.done() else self._end())

    def _end(self) -> None:
        self._closing = True
        self._ended.set()

    def _soon(self, act: Callable[..., object], *arguments: object) -> None:
        # A loop that is closed has nobody left to tell.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(act, *arguments)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - handed to whoever owns this
            self._watch.failed(error)

    def _work(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._live())
            except Exception as error:  # noqa: BLE001 - handed to whoever owns this
                if self._opened.done():
                    self._watch.failed(error)
                else:
                    self._opened.set_exception(error)

    async def _live(self) -> None:
        sending = self._loop.create_task(self._send())
        sending.add_done_callback(lambda it: None if it.cancelled() else self._guarded(it.result))
        try:
            while (client := await self._connect()) is not None:
                for subject, receive in self._listening:
                    await self._listen(client, subject, receive)
                self._client = client
                if self._opened.done():
                    self._watch.reconnected()
                else:
                    self._opened.set_result(None)
                await self._ended.wait()
                if self._closing:
                    await self._finish(client)
                    return
                self._client = None
                self._watch.disconnected()
            raise ClosedError("the connection was closed before it was made")
        finally:
            sending.cancel()

    async def _finish(self, client: Client) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._idle.wait(), FLUSH_SECONDS)
        if client.is_connected:
            with contextlib.suppress(errors.Error, OSError):
                await flush(client)
        await close(client)

    async def _connect(self) -> Client | None:
        """A connected client; nothing if there is no need for one any more."""
        while not self._closing:
            self._ended.clear()
            client, troubles = DistrustfulClient(), list[Exception]()
            try:
                await self._attempt_to_connect(client, troubles)
            except (TimeoutError, OSError, errors.Error) as error:
                trouble = troubles[-1] if troubles else error
                await self._discard(client)
                if (typed := refusal(trouble)) is not None and self._is_lasting(typed):
                    raise typed from error
                seconds = self._pause()
                self._watch.waiting(shown(str(trouble)) or type(trouble).__name__, seconds)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), seconds)
            else:
                self._attempt = self._refusals = 0
                return client
        return None

    def _is_lasting(self, error: NetworkError) -> bool:
        self._refusals += isinstance(error, UnauthorizedError)
        return self._refusals >= _REFUSALS or not self._opened.done()

    async def _discard(self, client: Client) -> None:
        """A client that did not come to life: its end is not the end of a connection."""
        await close(client)
        if not self._closing:
            self._ended.clear()

    async def _attempt_to_connect(
        self, client: DistrustfulClient, troubles: list[Exception]
    ) -> None:
        async def error_cb(error: Exception) -> None:
            troubles.append(error)
            del troubles[:-1]
            if client.options["allow_reconnect"]:
                self._report(error)
                if isinstance(refusal(error), UnauthorizedError):
                    # nats-py would ask for ever, and close none of these connections.
                    client.ending = self._loop.create_task(end())

        async def closed_cb() -> None:
            self._ended.set()

        async def end() -> None:
            """Also where that takes too long for nats-py to say so."""
            await close(client)
            self._ended.set()

        async def disconnected_cb() -> None:
            if not client.is_closed:
                self._watch.disconnected()

        async def reconnected_cb() -> None:
            self._attempt = 0
            self._watch.reconnected()

        def choose(servers: list[Any], _: dict[str, Any]) -> tuple[Any, float]:
            seconds = self._pause()
            reason = shown(str(troubles[-1])) if troubles else "the connection was lost"
            self._watch.waiting(reason, seconds)
            return servers[self._attempt % len(servers)], seconds

        # One attempt here, with what went wrong; afterwards, nats-py reconnects for ever.
        options = {"ping_interval": 10, "connect_timeout": CONNECT_SECONDS, **self._options}
        # It ends at the first broker that is mute, so that the next attempt begins at another one.
        first = self._attempt % len(options["servers"])
        options["servers"] = options["servers"][first:] + options["servers"][:first]
        options |= {"allow_reconnect": False, "max_reconnect_attempts": 1, "reconnect_time_wait": 0}
        await client.connect(
            **options,
            error_cb=error_cb,
            closed_cb=closed_cb,
            disconnected_cb=disconnected_cb,
            reconnected_cb=reconnected_cb,
            reconnect_to_server_handler=choose,
            skip_subject_validation=True,
        )
        client.options |= {"allow_reconnect": True, "max_reconnect_attempts": -1}

    def _pause(self) -> float:
        """0.2 s · 2^k, at most 15 s, and of that a random share: not everybody at once."""
        longest = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(self._attempt, 10))
        self._attempt += 1
        return secrets.SystemRandom().uniform(0, longest)

    def _report(self, error: Exception) -> None:
        # A text of the broker's may have a subject in it, which somebody else chose.
        text = shown(str(error))
        if isinstance(error, errors.SlowConsumerError):
            _logger.warning("a message was dropped, too many were waiting: %s", text)
            self._watch.overrun()
        elif "permissions violation" in text.lower():
            self._watch.failed(
                ForbiddenSubjectError(f"{text}; the credentials are for other subjects")
            )
        elif isinstance(error, (errors.Error, OSError, TimeoutError)):
            _logger.info("connection to the broker: %r", error)
        else:
            self._watch.failed(error)

    async def _listen(self, client: Client, subject: str, receive: Receive) -> None:
        async def arrived(message: Msg) -> None:
            receive(message.subject, message.data)

        await client.subscribe(
            subject, cb=arrived, pending_msgs_limit=0, pending_bytes_limit=_PENDING_BYTES
        )

    def _take(self, batch: Batch) -> None:
        self._outbox.append(batch)
        self._idle.clear()
        self._wake.set()

    async def _send(self) -> None:
        """One task sends everything, so that the order is kept."""
        while True:
            self._idle.set()
            await self._wake.wait()
            self._wake.clear()
            while self._outbox:
                await self._publish(self._outbox[0])
                self._outbox.popleft()
                await asyncio.sleep(0)

    async def _publish(self, batch: Batch) -> None:
        """What cannot be sent is dropped."""
        client = self._client
        if client is None or not client.is_connected:
            return
        publish = client.publish
        for subject, payload in batch:
            try:
                await publish(subject, payload)
            except (errors.Error, OSError) as error:
                self._report(error)


def _is_worth_telling(record: logging.LogRecord) -> bool:
    """Not what asyncio says about nats-py whenever a connection with TLS ends."""
    return "returning true from eof_received()" not in record.getMessage()
