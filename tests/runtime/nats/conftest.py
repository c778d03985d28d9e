"""A real broker, without credentials, that can be killed and started again on its port."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


class PlainBroker:
    def __init__(self, folder: Path, port: int) -> None:
        self._port, self._log = port, folder / "broker.log"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def options(self) -> dict[str, Any]:
        return {"servers": [f"nats://127.0.0.1:{self._port}"]}

    def start(self, *more: str) -> None:
        program = Path(sys.executable).with_name("nats-server")
        command = [str(program), "-a", "127.0.0.1", "-p", str(self._port), "-l", str(self._log)]
        self._process = subprocess.Popen([*command, *more])
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end, self._log.read_text()
                assert self._process.poll() is None, self._log.read_text()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@pytest.fixture
def plain_broker(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[PlainBroker]:
    broker = PlainBroker(tmp_path, free_port())
    try:
        yield broker
    finally:
        broker.kill()
