"""Every message of the protocol: typed, versioned, of a length that its receiver can check.

A message is a msgspec struct in MessagePack, all of whose fields are byte strings: a header of
fixed size, and arrays of fixed-size numbers or rows. So the size of a message is a function of the
number of rows in it, and never of what the rows say; `encoded_size` is that function.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import cache
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from lpgcn.protocol.errors import (
    MalformedMessageError,
    OversizedMessageError,
    UnexpectedMessageError,
    UnknownVersionError,
    WrongPartyError,
    WrongRunError,
)

Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]
Bits = npt.NDArray[np.bool_]

VERSION: Final = 1
RUN_BYTES: Final = 16
_HEADER: Final = struct.Struct(">B16sQBBI")
HEADER_BYTES: Final = _HEADER.size


class Phase(IntEnum):
    """The stages of the protocol, in their order. Initialisation is step 0; every later step is one
    pass forward and, in training, backward. Values are part of the format."""

    KEYS = 1
    SHARE_KEY = 2
    LIST = 3
    CATALOGUE = 4
    PLAN = 5
    VERIFY = 6
    ANSWERS = 7
    BUILD = 10
    """W_i goes out to the users that are built from it (LightGCN+)."""
    FORWARD = 11
    FINAL = 12
    LOSS = 13
    BACKWARD = 14
    UPDATE = 15
    UPDATE_BUILT = 16
    """∂Loss/∂W_i has arrived at the owner of W_i (LightGCN+)."""
    RANK = 17
    SUM = 18
    """Numbers that the server learns only the sum of."""


class Header(msgspec.Struct, frozen=True, order=True):
    """Where a message belongs. Headers of one party's messages rise strictly."""

    step: int
    phase: int
    layer: int = 0

    def __str__(self) -> str:
        name = Phase(self.phase).name if self.phase in set(Phase) else f"phase {self.phase}"
        return f"step {self.step} {name} {self.layer}"


class Message(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True
):
    """The fields that every message has."""

    header: bytes


class Ask(Message, tag=1, frozen=True):
    """Server → client: nothing but the header, which says what is asked."""


class PublicKeys(Message, tag=2, frozen=True):
    """Server → u_c: the public keys of all clients (Algorithm 2, line 5)."""

    keys: bytes


class SealedKey(Message, tag=3, frozen=True):
    """Server → client: the shared key, sealed to this client (line 7)."""

    sealed: bytes


class Placement(Message, tag=4, frozen=True):
    """Server → client: the places of what it listed, and what it owns (Algorithm 3, line 8).

    Its neighbours are numbered by handles 0, 1, …; handle h listed the owned items
    `listed[offsets[h]:offsets[h + 1]]`, given as positions in `owned`.
    """

    places: bytes
    owned: bytes
    offsets: bytes
    listed: bytes
    own_rank: bytes
    """How many neighbours come before this client in the order of sums."""
    peers: bytes
    """Public keys of the clients that share masks with this one."""


class Questions(Message, tag=5, frozen=True):
    """Server → client: who asks about which of its listed items (Algorithm 2, line 17)."""

    askers: bytes
    offsets: bytes
    positions: bytes


class Exchange(Message, tag=6, frozen=True):
    """Server → client: rows that arrived for it, and which rows it shall push next.

    `…_present` has a bit for each row that could be there; empty means all. `wanted` has a bit for
    each owned item to push, and `wants_user` is one byte: whether to push the user's own vector.
    """

    item_rows: bytes = b""
    item_present: bytes = b""
    user_rows: bytes = b""
    user_present: bytes = b""
    wanted: bytes = b""
    wants_user: bytes = b"\1"
    learning_rate: bytes = b""


class Samples(Message, tag=7, frozen=True):
    """Server → batch client: final item vectors, samples and negatives (Algorithm 9, line 1).

    Negatives are in the order of their places; `contacts` are the handles of their owners, and
    `new_contacts` the public keys of those that this client meets for the first time.
    """

    item_rows: bytes
    positions: bytes
    negatives: bytes
    """For each sample the number of its negative among `negative_rows`."""
    negative_places: bytes
    negative_rows: bytes
    contacts: bytes
    new_contacts: bytes
    batch_size: bytes
    epoch: bytes


class LossRows(Message, tag=8, frozen=True):
    """Server → owner: what the batch says about its items; then `wanted` rows are pushed."""

    user_rows: bytes
    user_present: bytes
    pair_rows: bytes
    """The scalars of all (present neighbour, item) pairs."""
    negatives: bytes
    """Sealed (e_u, item, s, n), one after the other."""
    contacts: bytes
    order: bytes
    """For each negative how many neighbours come before its sender in the order of sums."""
    introductions: bytes
    wanted: bytes
    wants_user: bytes
    batch_size: bytes


class Sealed(Message, tag=9, frozen=True):
    """Server → owner: the sealed answers of its neighbours, in the order of their handles."""

    answers: bytes


class Reply(Message, tag=20, frozen=True):
    """Client → server: done."""


class PublicKey(Message, tag=21, frozen=True):
    """Client → server: its public key (Algorithm 2, line 3)."""

    key: bytes


class SealedKeys(Message, tag=22, frozen=True):
    """u_c → server: the shared key, sealed to every client (line 6)."""

    sealed: bytes


class Tokens(Message, tag=23, frozen=True):
    """Client → server: tokens, sorted; from u_c also the catalogue in its order."""

    tokens: bytes


class Answers(Message, tag=24, frozen=True):
    """Client → server: one sealed answer for each asker."""

    sealed: bytes


class Push(Message, tag=25, frozen=True):
    """Client → server: its vector, and those of its items that were wanted."""

    user: bytes
    items: bytes


class Gradients(Message, tag=26, frozen=True):
    """Batch client → server: e_u, one row of scalars for every listed item, and its negatives."""

    user: bytes
    pair_rows: bytes
    negatives: bytes
    introductions: bytes


class Numbers(Message, tag=27, frozen=True):
    """Client → server: masked 64-bit numbers."""

    masked: bytes


REQUESTS: Final = (
    Ask | PublicKeys | SealedKey | Placement | Questions | Sealed | Exchange | Samples | LossRows
)
REPLIES: Final = Reply | PublicKey | SealedKeys | Tokens | Answers | Push | Gradients | Numbers


def encode_header(run: bytes, header: Header, party: int) -> bytes:
    return _HEADER.pack(VERSION, run, header.step, header.phase, header.layer, party)


def encode(message: Message) -> bytes:
    return msgspec.msgpack.encode(message)


@cache
def _decoder(kinds: Any) -> msgspec.msgpack.Decoder[Any]:
    """Kept, because to find out what a union consists of takes longer than to decode a message."""
    return msgspec.msgpack.Decoder(kinds)


def decode(data: bytes, kinds: Any, *, limit: int) -> Any:
    """A message of one of the `kinds`, a type or a union of types."""
    if len(data) > limit:
        raise OversizedMessageError(
            f"a message of {len(data):,} bytes; at most {limit:,} are expected here"
        )
    try:
        message = _decoder(kinds).decode(data)
    except msgspec.ValidationError as error:
        raise UnexpectedMessageError(
            f"a message of another kind than expected here: {error}"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedMessageError(f"a message that cannot be decoded: {error}") from error
    return message


def read_header(message: Message, run: bytes, party: int) -> Header:
    """The header of a message of this run, to or from this party."""
    if len(message.header) != HEADER_BYTES:
        raise MalformedMessageError(
            f"a header of {len(message.header)} bytes, expected {HEADER_BYTES}"
        )
    version, its_run, step, phase, layer, its_party = _HEADER.unpack(message.header)
    if version != VERSION:
        raise UnknownVersionError(f"a message of version {version}; this program speaks {VERSION}")
    if its_run != run:
        raise WrongRunError(f"a message of run {its_run.hex()[:8]}…, expected {run.hex()[:8]}…")
    if its_party != party:
        raise WrongPartyError(f"a message of party {its_party}, expected {party}")
    return Header(step, phase, layer)


def numbers(field: bytes, name: str, *, below: int, count: int | None = None) -> Int64:
    """A field of 32-bit numbers, each below a bound."""
    if len(field) % 4 or (count is not None and len(field) != 4 * count):
        expected = "a multiple of 4" if count is None else f"{4 * count}"
        raise MalformedMessageError(f"field {name} has {len(field)} bytes, expected {expected}")
    values = np.frombuffer(field, dtype="<u4").astype(np.int64)
    if values.size and int(values.max()) >= below:
        raise MalformedMessageError(
            f"field {name} holds {int(values.max())}, expected numbers below {below}"
        )
    return values


def rising(field: bytes, name: str, *, below: int) -> Int64:
    """A field of 32-bit numbers, each higher than the one before."""
    values = numbers(field, name, below=below)
    if bool((np.diff(values) <= 0).any()):
        raise MalformedMessageError(f"field {name} holds numbers that do not rise")
    return values


def one_number(field: bytes, name: str, *, least: int = 0) -> int:
    """A field of one 31-bit number."""
    value = int(numbers(field, name, below=1 << 31, count=1)[0])
    if value < least:
        raise MalformedMessageError(f"field {name} holds {value}, expected at least {least}")
    return value


def flag(field: bytes, name: str) -> bool:
    """A field of one byte: yes or no."""
    if field not in (b"\0", b"\1"):
        raise MalformedMessageError(f"field {name} is {field[:4]!r}, expected one byte, 0 or 1")
    return field == b"\1"


def unused(message: Message, *names: str) -> None:
    """Fields that must be empty here."""
    for name in names:
        if length := len(getattr(message, name)):
            raise MalformedMessageError(f"field {name} has {length} bytes, expected none here")


def split(field: bytes, width: int, name: str) -> list[bytes]:
    """A field of any number of parts of `width` bytes; of none, if they have no width."""
    if len(field) % width if width else field:
        raise MalformedMessageError(f"field {name} has {len(field)} bytes, not rows of {width}")
    return [field[start : start + width] for start in range(0, len(field), width or 1)]


def pack_numbers(values: npt.ArrayLike) -> bytes:
    return np.asarray(values).astype("<u4").tobytes()


def rows(field: bytes, name: str, *, count: int, width: int) -> UInt8:
    """A field of `count` rows of `width` bytes."""
    if len(field) != count * width:
        raise MalformedMessageError(
            f"field {name} has {len(field)} bytes, expected {count} rows of {width}"
        )
    return np.frombuffer(field, dtype=np.uint8).reshape(count, width)


def cut(field: bytes, lengths: Int64, name: str) -> list[bytes]:
    """A field of messages of these lengths, one behind the other."""
    ends = [0, *np.cumsum(lengths).tolist()]
    if len(field) != ends[-1]:
        raise MalformedMessageError(f"field {name} has {len(field)} bytes, expected {ends[-1]}")
    return [field[start:end] for start, end in pairwise(ends)]


def bits(field: bytes, name: str, count: int) -> Bits:
    """One bit for each of `count` rows; an empty field stands for all of them."""
    if not field:
        return np.ones(count, dtype=np.bool_)
    if len(field) != (count + 7) // 8:
        raise MalformedMessageError(f"field {name} has {len(field)} bytes for {count} bits")
    return np.unpackbits(np.frombuffer(field, dtype=np.uint8), count=count).astype(np.bool_)


def bytes_size(length: Int64 | int) -> Int64:
    """The size of a byte string in MessagePack."""
    lengths = np.asarray(length)
    return lengths + np.where(lengths < 1 << 8, 2, np.where(lengths < 1 << 16, 3, 5))


def encoded_size(kind: type[Message], **lengths: Int64 | int) -> Int64:
    """The size of a message whose fields have these lengths; the header's is known.

    One byte says how many fields there are, one the tag; fields left out have their default.
    """
    total = np.asarray(2) + bytes_size(HEADER_BYTES)
    for field in msgspec.structs.fields(kind):
        if field.name != "header":
            default = len(field.default) if isinstance(field.default, bytes) else 0
            total = total + bytes_size(lengths.pop(field.name, default))
    if lengths:
        raise TypeError(f"{kind.__name__} has no field {', '.join(lengths)}")
    return total
