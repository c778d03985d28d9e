"""How messages travel: a header that says where each belongs, the encoding, and its size.

A message is a msgspec struct in MessagePack, all of whose fields are byte strings: a header of
fixed size, and arrays of fixed-size numbers or rows. So the size of a message is a function of the
number of rows in it, and never of what the rows say; `encoded_size` is that function.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, Final

import msgspec
import numpy as np

from lpgcn.array_types import Int64
from lpgcn.protocol.errors import (
    MalformedMessageError,
    OversizedMessageError,
    UnexpectedMessageError,
    UnknownVersionError,
    WrongPartyError,
    WrongRunError,
)

VERSION: Final = 5
RUN_BYTES: Final = 16
_HEADER: Final = struct.Struct(">B16sQBBI")
HEADER_BYTES: Final = _HEADER.size

STRETCH_PASSES: Final = 1 << 24
"""A *stretch* is what runs without going back: from one RESUME to the next. Its number is the high
part of its passes' numbers, so that what is run again runs under numbers never used before."""
STRETCHES: Final = 1 << 16
"""Nonces have 40 bits for the number of a pass."""


class Header(msgspec.Struct, frozen=True, order=True):
    """Where a message belongs. Headers of one party's messages rise strictly."""

    pass_number: int
    """RESUME and initialisation are the first pass of a stretch; every later pass goes forward and,
    in training, backward."""
    phase: int
    layer: int = 0
    """Of propagation, in the phases that have layers."""

    @property
    def stretch(self) -> int:
        return self.pass_number // STRETCH_PASSES

    @property
    def begins_stretch(self) -> bool:
        return self.pass_number % STRETCH_PASSES == 0


class Message(
    msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True
):
    """The fields that every message has."""

    header: bytes = b""


def encode_header(run: bytes, header: Header, party: int) -> bytes:
    return _HEADER.pack(VERSION, run, header.pass_number, header.phase, header.layer, party)


def run_of(message: Message) -> bytes:
    """The run that a message says it belongs to."""
    return message.header[1 : 1 + RUN_BYTES]


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
    version, its_run, pass_number, phase, layer, its_party = _HEADER.unpack(message.header)
    if version != VERSION:
        raise UnknownVersionError(f"a message of version {version}; this program speaks {VERSION}")
    if its_run != run:
        raise WrongRunError(f"a message of run {its_run.hex()[:8]}…, expected {run.hex()[:8]}…")
    if its_party != party:
        raise WrongPartyError(f"a message of party {its_party}, expected {party}")
    return Header(pass_number, phase, layer)


def header_of(data: bytes) -> Header:
    """Of an encoded message, without decoding the rest: it is the last field of every one."""
    if len(data) < HEADER_BYTES:
        raise MalformedMessageError(f"a message of {len(data)} bytes, too short for a header")
    _, _, pass_number, phase, layer, _ = _HEADER.unpack(data[-HEADER_BYTES:])
    return Header(pass_number, phase, layer)


@cache
def content_fields(kind: type[Message]) -> dict[str, int]:
    """The names of a message's fields but for the header, and the lengths of their defaults."""
    return {
        field.name: len(field.default) if isinstance(field.default, bytes) else 0
        for field in msgspec.structs.fields(kind)
        if field.name != "header"
    }


def encoded_size(kind: type[Message], **lengths: Int64 | int) -> Int64:
    """The size of a message whose fields have these lengths; the header's is known.

    One byte says how many fields there are, one the tag; fields left out have their default.
    """
    defaults = content_fields(kind)
    if strange := lengths.keys() - defaults.keys():
        raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(strange))}")
    given = [lengths.get(name, default) for name, default in defaults.items()]
    numbers = [HEADER_BYTES, *(length for length in given if isinstance(length, int))]
    known = 2 + sum(length + 2 + (length >= 1 << 8) + 2 * (length >= 1 << 16) for length in numbers)
    arrays = [length for length in given if not isinstance(length, int)]
    if not arrays:
        return np.asarray(known)
    # A byte string has one, two or four bytes of length behind its type.
    block = np.stack(np.broadcast_arrays(*arrays))
    size: Int64 = block.sum(axis=0) + (known + 2 * len(block))
    size += np.count_nonzero(block >= 1 << 8, axis=0)
    size += 2 * np.count_nonzero(block >= 1 << 16, axis=0)
    return size
