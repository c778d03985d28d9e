"""Clients spread over several processes, one for each core: Python runs one party at a time in one.

A worker is `python -m lpgcn.runtime.workers`. It reads frames from its standard input and writes
one answer to each to its standard output; a frame is its length and a MessagePack value.
"""

from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import IO, Any, Final

import msgspec

from lpgcn.errors import LpgcnError

_LENGTH: Final = struct.Struct("<Q")
_START: Final = "start"


class WorkerError(LpgcnError):
    """A worker stopped, or one of its clients raised an error."""


class Workers:
    """A `Host` that shares its clients out among processes."""

    def __init__(self, profiles: Iterable[tuple[int, bytes]], count: int) -> None:
        command = [sys.executable, "-m", "lpgcn.runtime.workers"]
        self._processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            for _ in range(count)
        ]
        everybody = list(profiles)
        try:
            self.perform(_START, dict(everybody))
        except BaseException:
            self.close()
            raise

    def perform(self, action: str, arguments: Mapping[int, bytes]) -> dict[int, bytes]:
        """All workers at once; the answers come in the order of the arguments."""
        count = len(self._processes)
        shares: list[dict[int, bytes]] = [{} for _ in range(count)]
        for index, argument in arguments.items():
            shares[index % count][index] = argument
        for process, share in zip(self._processes, shares, strict=True):
            _write(process.stdin, (action, share))
        answers: dict[int, bytes] = {}
        for process in self._processes:
            error, result = _read(process.stdout, tuple[str, dict[int, bytes]])
            if error:
                raise WorkerError(error)
            answers |= result
        return {index: answers[index] for index in arguments}

    def close(self) -> None:
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            process.wait()


def _write(pipe: IO[bytes] | None, value: Any) -> None:
    data = msgspec.msgpack.encode(value)
    try:
        assert pipe is not None
        pipe.write(_LENGTH.pack(len(data)))
        pipe.write(data)
        pipe.flush()
    except BrokenPipeError as error:
        raise WorkerError("a worker process stopped; its output above says why") from error


def _read(pipe: IO[bytes] | None, kind: Any) -> Any:
    assert pipe is not None
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise WorkerError("a worker process stopped; its output above says why")
    return msgspec.msgpack.decode(pipe.read(_LENGTH.unpack(head)[0]), type=kind)


def main() -> None:
    """Serve until the input ends."""
    import torch

    from lpgcn.runtime.inprocess import InProcess
    from lpgcn.runtime.memory import keep_freed_memory

    torch.set_num_threads(1)
    keep_freed_memory()
    host = InProcess({})
    answers = sys.stdout.buffer
    # Whatever a library prints must not end up between two frames.
    sys.stdout = sys.stderr
    while True:
        try:
            action, arguments = _read(sys.stdin.buffer, tuple[str, dict[int, bytes]])
        except WorkerError:
            return
        try:
            if action == _START:
                host = InProcess(arguments)
                result = dict.fromkeys(arguments, b"")
            else:
                result = host.perform(action, arguments)
            _write(answers, ("", result))
        except LpgcnError as error:
            _write(answers, (f"{type(error).__name__}: {error}", {}))


if __name__ == "__main__":
    main()
