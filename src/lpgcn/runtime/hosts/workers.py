"""Clients spread over several processes, one for each core: Python runs one party at a time in one.

A worker is `python -m lpgcn.runtime.hosts.workers`. It reads frames from its standard input and
writes one answer to each to its standard output; a frame is its length and a MessagePack value.
"""

from __future__ import annotations

import contextlib
import gc
import signal
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any, Final

import msgspec

from lpgcn.checkpoints import CheckpointError
from lpgcn.errors import LpgcnError

_LENGTH: Final = struct.Struct("<Q")
_START: Final = "start"
_PUBLIC: Final = "public"
"""What all clients have, once for each worker: the features of items."""
_CLIENTS_PER_FRAME: Final = 48
_PIPE_BYTES: Final = 1 << 20

Frame = tuple[str, dict[int, bytes]]
"""An action and its argument for each of some clients."""
Answer = tuple[str, str, dict[int, bytes]]
"""The kind of an error and what it says, or nothing; and what each client returned."""


class WorkerError(LpgcnError):
    """A worker stopped, or one of its clients raised an error."""


class Worker:
    """One process. Two threads move frames, so that neither side waits for the other's pipe.

    All workers put their answers into one inbox, where they lie in the order of their arrival.
    """

    def __init__(self, inbox: SimpleQueue[Answer], folder: Path | None) -> None:
        # -P: a module of the same name in the present folder is not what is meant.
        command = [sys.executable, "-P", "-m", "lpgcn.runtime.hosts.workers"]
        command += [] if folder is None else [str(folder)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pipesize=_PIPE_BYTES
        )
        self._outbox: SimpleQueue[Frame | None] = SimpleQueue()
        self._inbox = inbox
        self._threads = [Thread(target=move, daemon=True) for move in (self._send, self._receive)]
        for thread in self._threads:
            thread.start()

    def post(self, frame: Frame) -> None:
        self._outbox.put(frame)

    def close(self) -> None:
        """The end of its input ends a worker."""
        self._outbox.put(None)
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            # What a worker that was killed has not read cannot be flushed.
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()

    def _send(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        # A worker that has stopped is noticed by who waits for its answer.
        with contextlib.suppress(WorkerError, BrokenPipeError):
            while (frame := self._outbox.get()) is not None:
                _write(pipe, frame)
            pipe.close()

    def _receive(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        with pipe:
            while True:
                try:
                    self._inbox.put(_read(pipe, Answer))
                except WorkerError as error:
                    self._inbox.put((type(error).__name__, f"{error}{self._end()}", {}))
                    return

    def _end(self) -> str:
        """How the process ended, and what to do."""
        code = self._process.wait()
        how = f"with exit code {code}; its output above says why"
        if code < 0:
            how = f"by signal {-code} ({signal.Signals(-code).name})"
            if -code == signal.SIGKILL:
                how += ", as the system does that runs out of memory"
        return f", ended {how}; continue the run with --resume"


class Workers:
    """A `Host` that shares its clients out among processes."""

    def __init__(
        self, profiles: Iterable[tuple[int, bytes]], count: int, folder: Path | None = None,
        item_features: bytes = b"",
    ) -> None:  # fmt: skip
        """Each client's checkpoints are in a folder of its own in `folder`, or in memory."""
        self._failure: BaseException | None = None
        self._inbox: SimpleQueue[Answer] = SimpleQueue()
        self._workers = [Worker(self._inbox, folder) for _ in range(count)]
        try:
            dict(self.perform(_PUBLIC, ((worker, item_features) for worker in range(count))))
            dict(self.perform(_START, profiles))
        except BaseException:
            self.close()
            raise

    def perform(
        self, action: str, arguments: Iterable[tuple[int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        """All workers at once, in frames of a few clients; answers as they arrive.

        After a failure nobody knows what the clients have done, so that every later call fails too;
        but who finds its checkpoint damaged is asked for the one before it.
        """
        if self._failure is not None:
            raise WorkerError(f"a call failed before: {self._failure!r}")
        try:
            yield from self._perform(action, arguments)
        except CheckpointError:
            raise
        except BaseException as error:
            self._failure = error
            raise

    def _perform(
        self, action: str, arguments: Iterable[tuple[int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        shares: list[dict[int, bytes]] = [{} for _ in self._workers]
        waiting = 0
        for index, argument in arguments:
            number = index % len(shares)
            shares[number][index] = argument
            if len(shares[number]) == _CLIENTS_PER_FRAME:
                self._workers[number].post((action, shares[number]))
                shares[number] = {}
                waiting += 1
            while waiting and not self._inbox.empty():
                waiting -= 1
                yield from self._answers(waiting)
        for worker, share in zip(self._workers, shares, strict=True):
            if share:
                worker.post((action, share))
                waiting += 1
        for others in reversed(range(waiting)):
            yield from self._answers(others)

    def _answers(self, waiting: int) -> Iterable[tuple[int, bytes]]:
        """Those of the next frame; so many others are on their way."""
        kind, error, result = self._inbox.get()
        if not kind:
            return result.items()
        if kind != CheckpointError.__name__:
            raise WorkerError(f"{kind}: {error}")
        # What is still to come is not an answer to the next call.
        for _ in range(waiting):
            other, problem, _ = self._inbox.get()
            if other not in ("", kind):
                raise WorkerError(f"{other}: {problem}")
        raise CheckpointError(error)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


def _write(pipe: IO[bytes], value: Any) -> None:
    data = msgspec.msgpack.encode(value)
    try:
        pipe.write(_LENGTH.pack(len(data)))
        pipe.write(data)
        pipe.flush()
    except BrokenPipeError as error:
        raise WorkerError("a worker process stopped") from error


def _read(pipe: IO[bytes], kind: Any) -> Any:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise WorkerError("a worker process stopped")
    length = _LENGTH.unpack(head)[0]
    body = pipe.read(length)
    if len(body) < length:
        raise WorkerError("a worker process stopped in the middle of an answer")
    return msgspec.msgpack.decode(body, type=kind)


def main() -> None:
    """Serve until the input ends."""
    from lpgcn.runtime.hosts.one_process import OneProcess
    from lpgcn.runtime.memory import keep_freed_memory

    # Ctrl-C is for the process that started this one, which then closes the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    # A client's objects live as long as the worker, and nothing here makes cycles: looking for
    # garbage among a million live objects would only take time.
    gc.disable()
    host, item_features = OneProcess({}), b""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    answers = sys.stdout.buffer
    # Whatever a library prints must not end up between two frames.
    sys.stdout = sys.stderr
    while True:
        try:
            action, arguments = _read(sys.stdin.buffer, tuple[str, dict[int, memoryview]])
        except WorkerError:
            return
        answer: Answer
        try:
            if action == _PUBLIC:
                (item_features,) = map(bytes, arguments.values())
                answer = "", "", dict.fromkeys(arguments, b"")
            elif action == _START:
                started = OneProcess(arguments, folder=folder, item_features=item_features)
                host.clients |= started.clients
                answer = "", "", dict.fromkeys(arguments, b"")
            else:
                answer = "", "", dict(host.perform(action, arguments.items()))
        except LpgcnError as error:
            answer = type(error).__name__, str(error), {}
        _write(answers, answer)


if __name__ == "__main__":
    main()
