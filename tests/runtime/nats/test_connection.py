"""The connection, at brokers that do not do what a broker should."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import SimpleQueue

import pytest

from lpgcn.runtime.hosts.nats import calls, configuration
from lpgcn.runtime.hosts.nats.connection import Connection

SECONDS = 30.0
"""No test waits longer for anything."""
LARGEST_WRITE = 64 << 20
"""Of nats-server, at once: 1024 pieces of 64 KiB."""


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
    connection = Connection({"servers": [broker.url], "ping_interval": 0.05})
    connection.open()
    assert [broker.pings.get(timeout=SECONDS) for _ in range(6)] == [0] * 6
    connection.close()


def test_a_slow_line_has_time_for_the_largest_write_of_the_broker() -> None:
    [minutes] = re.findall(r'^write_deadline: "(\d+)m"$', configuration._BROKER, re.MULTILINE)
    assert 60 * int(minutes) >= LARGEST_WRITE / calls.SLOWEST_RATE
