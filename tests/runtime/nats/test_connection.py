"""The connection, at brokers that do not do what a broker should."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

import pytest

from lpgcn.runtime.hosts.nats import calls, configuration, connection
from lpgcn.runtime.hosts.nats.authority import FederationFolder
from lpgcn.runtime.hosts.nats.broker import Broker
from lpgcn.runtime.hosts.nats.connection import Connection, Watch
from lpgcn.runtime.hosts.nats.nats_client import UnauthorizedError

SECONDS = 30.0
"""No test waits longer for anything."""
LARGEST_WRITE = 64 << 20
"""Of nats-server, at once: 1024 pieces of 64 KiB."""


class PlainBroker(Protocol):
    options: dict[str, Any]

    def start(self, *more: str) -> None: ...
    def kill(self) -> None: ...


class Heard(Watch):
    def __init__(self) -> None:
        self.waits: SimpleQueue[str] = SimpleQueue()
        self.errors: SimpleQueue[Exception] = SimpleQueue()

    def waiting(self, reason: str, seconds: float) -> None:
        self.waits.put(reason)

    def failed(self, error: Exception) -> None:
        self.errors.put(error)


class Impostor:
    """Speaks the broker's words; what it says to a ping after the first is the test's wish."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.pings: SimpleQueue[int] = SimpleQueue()
        """The number of the connection, for every ping after its first."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        with suppress(OSError):
            for number in range(1000):
                near, _ = self._listener.accept()
                threading.Thread(target=self._talk, args=(near, number), daemon=True).start()

    def _talk(self, near: socket.socket, number: int) -> None:
        with suppress(OSError), near, near.makefile("rb") as lines:
            near.sendall(b'INFO {"max_payload": 1048576}\r\n')
            pings = (line for line in lines if line.startswith(b"PING"))
            next(pings)
            near.sendall(b"PONG\r\n")
            for _ in pings:
                self.pings.put(number)
                near.sendall(self._answer)

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.fixture
def impostor() -> Iterator[Callable[[bytes], Impostor]]:
    made: list[Impostor] = []

    def make(answer: bytes) -> Impostor:
        made.append(Impostor(answer))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_message_is_a_sign_of_life_where_no_pong_comes(
    impostor: Callable[[bytes], Impostor],
) -> None:
    """A pong queues behind everything that a slow line still has to carry."""
    broker = impostor(b"MSG x 1 2\r\nhi\r\n")
    with closing(Connection({"servers": [broker.url], "ping_interval": 0.05})) as line:
        line.open()
        assert [broker.pings.get(timeout=SECONDS) for _ in range(6)] == [0] * 6


def test_a_slow_line_has_time_for_the_largest_write_of_the_broker() -> None:
    [minutes] = re.findall(r'^write_deadline: "(\d+)m"$', configuration._BROKER, re.MULTILINE)
    assert 60 * int(minutes) >= LARGEST_WRITE / calls.SLOWEST_RATE


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_LONGEST_WAIT", 0.01)


@pytest.mark.usefixtures("short_waits")
def test_a_broker_that_does_not_want_us_any_more_is_asked_several_times(
    plain_broker: PlainBroker,
) -> None:
    """Somebody may have started it with a configuration that is mended soon."""
    heard = Heard()
    with closing(Connection(plain_broker.options, heard)) as line:
        line.open()
        plain_broker.kill()
        plain_broker.start("--auth", "secret")
        assert isinstance(heard.errors.get(timeout=SECONDS), UnauthorizedError)
    reasons = [heard.waits.get_nowait() for _ in range(heard.waits.qsize())]
    assert sum("Authorization" in reason for reason in reasons) >= connection._REFUSALS - 1


@pytest.mark.usefixtures("short_waits")
def test_who_is_revoked_is_told_so(tmp_path: Path, free_port: Callable[[], int]) -> None:
    folder, heard = FederationFolder.create(tmp_path / "federation", port=free_port()), Heard()
    alice = folder.enrol("alice").connect_options()
    with (
        Broker(folder.config, log=tmp_path / "broker.log") as broker,
        closing(Connection(alice, heard)) as line,
    ):
        line.open()
        folder.revoke("alice")
        broker.reload()
        error = heard.errors.get(timeout=SECONDS)
    assert isinstance(error, UnauthorizedError) and "refused the credentials" in str(error)


@pytest.mark.usefixtures("short_waits")
def test_a_mute_broker_does_not_hide_another_one(plain_broker: PlainBroker) -> None:
    """The system takes connections to it, and nobody ever says a word."""
    heard = Heard()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"nats://127.0.0.1:{mute.getsockname()[1]}"
        options = {"connect_timeout": 2, "dont_randomize": True, **plain_broker.options}
        options["servers"] = [url, *options["servers"]]
        with closing(Connection(options, heard)) as line:
            opening = threading.Thread(target=line.open, daemon=True)
            opening.start()
            opening.join(SECONDS)
            assert not opening.is_alive() and heard.waits.qsize() == 1


def test_the_owner_is_told_when_nothing_is_sent_any_more(
    plain_broker: PlainBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = Heard()
    with closing(Connection(plain_broker.options, heard)) as line:
        line.open()
        assert line._client is not None
        monkeypatch.setattr(line._client, "publish", lambda subject, _: {}[subject])
        line.post([("x", b"")])
        assert isinstance(heard.errors.get(timeout=SECONDS), KeyError)
