"""A way to the broker that can be slow, stuck or cut. TLS goes through it unread."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time

_CHUNK = 1 << 16
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: close with a reset, as a connection that breaks does."""


class Proxy:
    """Passes connections on to a port of this machine."""

    def __init__(self, port: int, *, rate: int | None = None) -> None:
        """`rate` is in bytes a second, from that port only."""
        self._port, self._rate, self._open = port, rate, threading.Lock()
        self._sockets: list[socket.socket] = []
        self._flowing = threading.Event()
        self._flowing.set()
        self.delay = 0.0
        """Seconds for every piece of data, either way."""
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"tls://127.0.0.1:{self._listener.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = self._connected()
            except OSError:
                near.close()
                continue
            for one in (near, far):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._open:
                self._sockets += [near, far]
            self.connections += 1
            for source, target, rate in ((near, far, None), (far, near, self._rate)):
                pumped = (source, target, rate)
                threading.Thread(target=self._pump, args=pumped, daemon=True).start()

    def _connected(self) -> socket.socket:
        far = socket.socket()
        try:
            if self._rate is not None:
                # What is slow must not be hidden by a buffer; this is for before the connection.
                far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _CHUNK)
            far.settimeout(10)
            far.connect(("127.0.0.1", self._port))
        except OSError:
            far.close()
            raise
        far.settimeout(None)
        return far

    def _pump(self, source: socket.socket, target: socket.socket, rate: int | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK if rate is None else rate // 10):
                self._flowing.wait()
                if pause := self.delay if rate is None else len(data) / rate:
                    time.sleep(pause)
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """All connections break; new ones are passed on."""
        with self._open:
            broken, self._sockets = self._sockets, []
        for one in broken:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def stop(self) -> None:
        """Nothing passes, and nobody is told."""
        self._flowing.clear()

    def go_on(self) -> None:
        self._flowing.set()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.go_on()
        self.cut()
        self._thread.join()
