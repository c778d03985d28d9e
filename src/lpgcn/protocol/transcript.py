"""What each party received, as far as it could read it: the ground of a privacy audit.

A party that is given a witness tells it about every message that it accepted. `Transcript` is a
witness that writes JSON, one message a line; bytes are in base64.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from lpgcn.files import StorageError, storing
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire import reading
from lpgcn.protocol.wire.encoding import Header


class Opened(msgspec.Struct, frozen=True):
    """Rows that a client could read: of a kind of `suite.Kind`, or the bits of a verification."""

    what: str
    senders: list[int]
    """The handle of each row's sender, or for item vectors the place of the item."""
    rows: list[bytes]


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """One message, as its receiver saw it."""

    party: str
    """Who received it: `server`, or `client 7`."""
    sender: str
    """Who sent it, as the receiver knows it. A client only ever hears the server; those whose rows
    the server passes on are known to it by the handles in `opened`."""
    kind: str
    pass_number: int
    phase: str
    layer: int
    size: int
    """In bytes, as it travelled."""
    fields: dict[str, bytes | list[int]]
    """The message without its header; numbers are decoded, all else is as it came."""
    opened: list[Opened]


Witness = Callable[[Observation], None]

NUMBERS: Final[Mapping[type[m.Message], tuple[str, ...]]] = {
    m.Resume: ("number",),
    m.Begin: ("term", "members"),
    m.Placement: ("places", "owned", "offsets", "listed"),
    m.Questions: ("offsets", "positions"),
    m.Exchange: ("positions", "epoch"),
    m.Finish: ("slots",),
    m.Samples: ("negatives", "negative_places", "contacts"),
    m.LossRows: ("contacts",),
    m.Update: ("batch_size",),
    m.Shared: ("batch_size",),
    m.Mark: ("number",),
    m.Estates: ("number", "counts", "bundles", "offsets", "rows"),
    m.Bequests: ("counts", "rows"),
}
"""Fields of numbers, by the kind of the message."""


def observe(
    party: str, sender: str, message: m.Message, header: Header, size: int, opened: list[Opened]
) -> Observation:
    fields: dict[str, bytes | list[int]] = msgspec.structs.asdict(message)
    del fields["header"]
    for name in NUMBERS.get(type(message), ()):
        fields[name] = reading.numbers(getattr(message, name), name, below=1 << 32).tolist()
    return Observation(
        party=party,
        sender=sender,
        kind=type(message).__name__,
        pass_number=header.pass_number,
        phase=Phase(header.phase).name,
        layer=header.layer,
        size=size,
        fields=fields,
        opened=opened,
    )


class Transcript:
    """A witness that writes to a file, which takes its name when it is complete."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._temporary = self._path.with_name(f".{self._path.name}.{os.getpid()}.tmp")

    def __enter__(self) -> Self:
        with storing(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._temporary.open("wb")
        return self

    def __call__(self, observation: Observation) -> None:
        with storing(self._path):
            self._file.write(msgspec.json.encode(observation) + b"\n")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Also what was written before an error is worth keeping, but for a full disk."""
        try:
            with storing(self._path):
                self._file.close()
                self._temporary.replace(self._path)
        except StorageError:
            self._temporary.unlink(missing_ok=True)
            if kind is None:
                raise


def read(path: Path | str) -> list[Observation]:
    """All observations of a transcript."""
    lines = Path(path).read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Observation) for line in lines]
