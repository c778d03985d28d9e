"""How a receiver reads a field: every length and every number is checked, and errors are typed."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import accumulate, pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Bits, Int64
from lpgcn.protocol.errors import MalformedMessageError
from lpgcn.ragged import Ragged

RATE: Final = struct.Struct("<d")
MASKED_BYTES: Final = 8
NUMBER_BYTES: Final = 4


def numbers(field: bytes, name: str, *, below: int, count: int | None = None) -> Int64:
    """A field of 32-bit numbers, each below a bound."""
    if len(field) % NUMBER_BYTES or (count is not None and len(field) != NUMBER_BYTES * count):
        expected = "a multiple of 4" if count is None else f"{NUMBER_BYTES * count}"
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
    if (values[1:] <= values[:-1]).any():
        raise MalformedMessageError(f"field {name} holds numbers that do not rise")
    return values


def one_number(field: bytes, name: str, *, least: int = 0) -> int:
    """A field of one 31-bit number."""
    value = int(numbers(field, name, below=1 << 31, count=1)[0])
    if value < least:
        raise MalformedMessageError(f"field {name} holds {value}, expected at least {least}")
    return value


def pack_numbers(values: npt.ArrayLike) -> bytes:
    return np.asarray(values).astype("<u4").tobytes()


def ragged(offsets: bytes, values: Int64, *, rows: int | None = None) -> Ragged:
    """`values` cut at `offsets`, a field of one number more than there are rows."""
    count = max(len(offsets) // NUMBER_BYTES - 1, 0) if rows is None else rows
    cuts = numbers(offsets, "offsets", below=len(values) + 1, count=count + 1)
    if cuts[0] != 0 or cuts[-1] != len(values) or bool((np.diff(cuts) < 0).any()):
        raise MalformedMessageError(f"offsets do not rise from 0 to {len(values)}")
    return Ragged(cuts, values)


def flag(field: bytes, name: str) -> bool:
    """A field of one byte: yes or no."""
    if field not in (b"\0", b"\1"):
        raise MalformedMessageError(f"field {name} is {field[:4]!r}, expected one byte, 0 or 1")
    return field == b"\1"


def bits(field: bytes, name: str, count: int) -> Bits:
    """One bit for each of `count` rows; an empty field stands for all of them."""
    if not field:
        return np.ones(count, dtype=np.bool_)
    if len(field) != (count + 7) // 8:
        raise MalformedMessageError(f"field {name} has {len(field)} bytes for {count} bits")
    return np.unpackbits(np.frombuffer(field, dtype=np.uint8), count=count).astype(np.bool_)


def check_length(field: bytes, name: str, count: int, width: int) -> None:
    """Refuse a field that does not hold `count` rows of `width` bytes."""
    if len(field) != count * width:
        raise MalformedMessageError(
            f"field {name} has {len(field)} bytes, expected {count} rows of {width}"
        )


def nothing_in(message: object, *names: str) -> None:
    """Fields that must be empty here."""
    for name in names:
        if length := len(getattr(message, name)):
            raise MalformedMessageError(f"field {name} has {length} bytes, expected none here")


def split(field: bytes, width: int, name: str, *, count: int | None = None) -> list[bytes]:
    """A field of parts of `width` bytes, of so many or of any number; of none, if they have no
    width."""
    if count is not None:
        check_length(field, name, count, width)
    elif len(field) % width if width else field:
        raise MalformedMessageError(f"field {name} has {len(field)} bytes, not rows of {width}")
    return [field[start : start + width] for start in range(0, len(field), width or 1)]


def cut(field: bytes, lengths: Iterable[int], name: str) -> list[bytes]:
    """A field of messages of these lengths, one behind the other."""
    ends = list(accumulate(lengths, initial=0))
    if len(field) != ends[-1]:
        raise MalformedMessageError(f"field {name} has {len(field)} bytes, expected {ends[-1]}")
    return [field[start:end] for start, end in pairwise(ends)]


def learning_rate(field: bytes) -> float:
    if len(field) != RATE.size:
        raise MalformedMessageError(
            f"field learning_rate has {len(field)} bytes, expected {RATE.size}"
        )
    rate: float = RATE.unpack(field)[0]
    if not 0 <= rate < float("inf"):
        raise MalformedMessageError(f"a learning rate of {rate}, expected a number from 0 on")
    return rate
