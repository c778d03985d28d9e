"""What a field of a message holds for each client: laid out once, for sending and for counting.

A field knows its length for every client, from numbers of rows alone; so that an experiment of any
size gets the exact traffic without a cipher. And it knows how to fill itself from the rows that the
server has in store, and how to put what a client sent into the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Bits, Int64
from lpgcn.protocol.phases import PHASES, Phase
from lpgcn.protocol.wire import encoding, reading
from lpgcn.protocol.wire.encoding import Header, Message
from lpgcn.ragged import Ragged

Stores = dict[str, Any]
"""What the server has in its hands, by name: mostly tables, lists of rows."""


class Field:
    """One field of all messages of a round."""

    @property
    def lengths(self) -> Int64 | int:
        """In bytes, for every client of the federation."""
        raise TypeError(f"{type(self).__name__} has no lengths")

    def fill(self, stores: Stores, client: int) -> bytes:
        raise TypeError(f"{type(self).__name__} is a client's to fill")

    def prepare(self, stores: Stores) -> None:
        """Make room for what clients will send."""

    def read(self, stores: Stores, client: int, content: bytes, name: str) -> None:
        raise TypeError(f"{type(self).__name__} is the server's to fill")


Fields = Mapping[str, Field]
"""Of a message, by their names."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Of the rows that each client could get or give, those that are flagged."""

    possible: Ragged
    flags: Bits

    @cached_property
    def lengths(self) -> Int64:
        return self.possible.count(self.flags)

    @cached_property
    def _chosen(self) -> Ragged:
        return Ragged.from_lengths(self.lengths, self.possible.values[self.flags])

    def __getitem__(self, client: int) -> Int64:
        return self._chosen[client]


@dataclass(frozen=True)
class TableRows(Field):
    """Rows `ids[client]` of a table in store, all of one size or each of its own."""

    store: str
    table_rows: int
    ids: Ragged | Selection
    sizes: Int64 | int

    @cached_property
    def lengths(self) -> Int64:
        if isinstance(self.sizes, int):
            return self.ids.lengths * self.sizes
        assert isinstance(self.ids, Ragged), "rows of different sizes are listed one by one"
        return self.ids.sum(self.sizes[self.ids.values])

    def fill(self, stores: Stores, client: int) -> bytes:
        table = stores[self.store]
        return b"".join([table[row] for row in self.ids[client].tolist()])

    def prepare(self, stores: Stores) -> None:
        stores[self.store] = [b""] * self.table_rows

    def read(self, stores: Stores, client: int, content: bytes, name: str) -> None:
        ids, table = self.ids[client], stores[self.store]
        if isinstance(self.sizes, int):
            parts = reading.split(content, self.sizes, name, count=len(ids))
        else:
            parts = reading.cut(content, self.sizes[ids].tolist(), name)
        for row, part in zip(ids.tolist(), parts, strict=True):
            table[row] = part


@dataclass(frozen=True)
class Present(Field):
    """A bit for each of the rows that a client could get or give; nothing if all are there."""

    rows: Selection

    @cached_property
    def lengths(self) -> Int64:
        possible = self.rows.possible.lengths
        return np.where(self.rows.lengths == possible, 0, (possible + 7) // 8)

    def fill(self, stores: Stores, client: int) -> bytes:
        if not self.lengths[client]:
            return b""
        offsets = self.rows.possible.offsets
        return np.packbits(self.rows.flags[offsets[client] : offsets[client + 1]]).tobytes()


@dataclass(frozen=True)
class Packed(Field):
    """32-bit numbers, a different array for each client."""

    numbers: Ragged

    @cached_property
    def lengths(self) -> Int64:
        return reading.NUMBER_BYTES * self.numbers.lengths

    @cached_property
    def _packed(self) -> npt.NDArray[np.uint32]:
        return self.numbers.values.astype("<u4")

    def fill(self, stores: Stores, client: int) -> bytes:
        offsets = self.numbers.offsets
        return self._packed[offsets[client] : offsets[client + 1]].tobytes()


@dataclass(frozen=True)
class Flag(Field):
    """One byte: yes or no."""

    flags: Bits

    @property
    def lengths(self) -> int:
        return 1

    def fill(self, stores: Stores, client: int) -> bytes:
        return b"\1" if self.flags[client] else b"\0"


@dataclass(frozen=True)
class Stored(Field):
    """What the server has in store, the same for everybody: a number, a whole table, or sums."""

    store: str
    length: int

    @property
    def lengths(self) -> int:
        return self.length

    def fill(self, stores: Stores, client: int) -> bytes:
        if isinstance(stores[self.store], list):
            stores[self.store] = b"".join(stores[self.store])
        elif isinstance(stores[self.store], np.ndarray):
            stores[self.store] = stores[self.store].astype("<u8").tobytes()
        content: bytes = stores[self.store]
        return content


@dataclass(frozen=True)
class Summed(Field):
    """Masked numbers, of which the server keeps only the sum over each group of clients."""

    store: str
    group: Int64
    """Of every client."""
    count: int
    """Numbers of a client."""

    @property
    def lengths(self) -> int:
        return reading.MASKED_BYTES * self.count

    def prepare(self, stores: Stores) -> None:
        groups = int(self.group.max(initial=0)) + 1
        stores[self.store] = np.zeros((groups, self.count), dtype=np.uint64)

    def read(self, stores: Stores, client: int, content: bytes, name: str) -> None:
        reading.check_length(content, name, self.count, reading.MASKED_BYTES)
        stores[self.store][self.group[client]] += np.frombuffer(content, dtype="<u8")


@dataclass(frozen=True)
class SummedRows(Field):
    """What was summed, in rows of d numbers: row r is about row `about[r]` of a table, of which
    each client gets those rows that are its own."""

    store: str
    about: Int64
    table_rows: int
    ids: Selection
    dim: int

    @cached_property
    def lengths(self) -> Int64:
        return self.ids.lengths * (reading.MASKED_BYTES * self.dim)

    def fill(self, stores: Stores, client: int) -> bytes:
        sums = stores[self.store]
        if isinstance(sums, np.ndarray):
            table = np.zeros((self.table_rows, self.dim), dtype=np.uint64)
            np.add.at(table, self.about, sums.reshape(-1, self.dim))
            sums = stores[self.store] = [row.tobytes() for row in table.astype("<u8")]
        return b"".join([sums[row] for row in self.ids[client].tolist()])


@dataclass(frozen=True)
class Listed(Field):
    """Tokens, of which the server learns the number when they arrive; a count knows it before."""

    store: str
    counts: Int64 | None
    width: int

    @property
    def lengths(self) -> Int64:
        assert self.counts is not None, "only an account of lists that are known has sizes"
        return self.counts * self.width

    def prepare(self, stores: Stores) -> None:
        stores[self.store] = {}

    def read(self, stores: Stores, client: int, content: bytes, name: str) -> None:
        stores[self.store][client] = reading.split(content, self.width, name)


@dataclass(frozen=True)
class Round:
    """One call of the server: who is asked, what goes down, what comes up."""

    phase: Phase
    called: Int64
    down: Fields
    up: Fields
    layer: int = 0

    @property
    def kinds(self) -> tuple[type[Message], type[Message]]:
        row = PHASES[self.phase]
        return row.request, row.reply

    def header(self, pass_number: int) -> Header:
        return Header(pass_number, self.phase, self.layer)

    def request(self, stores: Stores, client: int, header: bytes) -> Message:
        kind = self.kinds[0]
        return kind(
            header=header, **{name: field.fill(stores, client) for name, field in self.down.items()}
        )

    def read(self, stores: Stores, client: int, reply: Message) -> None:
        """A field that was not asked for must be empty."""
        for name in encoding.content_fields(type(reply)):
            content = getattr(reply, name)
            if name in self.up:
                self.up[name].read(stores, client, content, name)
            elif content:
                reading.check_length(content, name, 0, 0)

    @cached_property
    def sizes_down(self) -> Int64:
        return self._sizes(self.kinds[0], self.down)

    @cached_property
    def sizes_up(self) -> Int64:
        return self._sizes(self.kinds[1], self.up)

    def _sizes(self, kind: type[Message], fields: Fields) -> Int64:
        """Of the messages of all who are called."""
        lengths = {}
        for name, field in fields.items():
            each = field.lengths
            lengths[name] = each if isinstance(each, int) else each[self.called]
        return np.broadcast_to(encoding.encoded_size(kind, **lengths), self.called.shape)
