"""What travels between the switchboard and its carriers, and how long bodies are cut and joined.

A frame is a tagged msgspec struct in MessagePack. A broker takes 1 MiB at most unless it is told
otherwise, as our own is (4 MiB), so that a longer body travels as several parts of one request.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final

import msgspec

from lpgcn.errors import LpgcnError
from lpgcn.protocol.wire.sizes import LARGEST

VERSION: Final = 1
CHUNK_BYTES: Final = 512 * 1024
LIMIT_BYTES: Final = LARGEST
"""Of one body: as long as a message of the protocol may be."""
BEAT_SECONDS: Final = 2.0
PIECE_BYTES: Final = 1024
"""What a part that waits for the others takes besides its body, generously."""
_TEXT: Final = 4000


class FrameError(LpgcnError):
    """A frame that cannot be read, or parts that do not fit together."""


class OversizedBodyError(FrameError):
    """A body that is longer than anything that is sent; sending it again would not help."""

    def __init__(self, found: int, limit: int) -> None:
        super().__init__(
            f"a message of {found:,} bytes or more, expected at most {limit:,}; train with fewer "
            "items or smaller vectors (--dim)"
        )


class Frame(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Fields in their order; the tag comes first."""


class Offer(Frame, frozen=True):
    """A client that a carrier brings."""

    number: int
    """Within its carrier."""
    wish: int | None = None
    """The index that it would like to have in the federation."""
    checkpoints: tuple[int, ...] = ()
    """What it could go on from."""


class Hello(Frame, tag=1, frozen=True):
    """Carrier → server: here we are. Said at the start, after a reconnection, at a roll call."""

    version: int
    session: str
    clients: tuple[Offer, ...]
    software: str


class Beat(Frame, tag=2, frozen=True):
    """Carrier → server: still here."""


class Pong(Frame, tag=3, frozen=True):
    """Carrier → server: the answer to a `Ping`."""


class Bye(Frame, tag=4, frozen=True):
    """Carrier → server: these clients leave on purpose."""

    numbers: tuple[int, ...]


class Part(Frame, tag=5, frozen=True):
    """Both ways: a request, an answer, or a piece of one."""

    request: int
    part: int
    parts: int
    check: int
    """The CRC-32 of the whole body where there are several parts: those of another sending, with
    another body, are not mixed in."""
    body: bytes


class Failure(Frame, tag=6, frozen=True):
    """Carrier → server: the client did not accept the request."""

    request: int
    kind: str
    text: str


class RollCall(Frame, tag=17, frozen=True):
    """Server → carrier: say hello, please."""


class Welcome(Frame, tag=18, frozen=True):
    """Server → carrier: you are in."""

    version: int
    about: bytes
    """What the clients need to know, as the server's user wrote it."""
    indices: dict[int, int]
    """Number within the carrier → index in the federation."""


class Refused(Frame, tag=19, frozen=True):
    """Server → carrier: you are not in."""

    reason: str


class Ping(Frame, tag=20, frozen=True):
    """Server → carrier: are you there?"""


class Finished(Frame, tag=21, frozen=True):
    """Server → carrier: the run is over."""

    text: str


Up = Hello | Beat | Pong | Bye | Part | Failure
Down = RollCall | Welcome | Refused | Ping | Finished | Part

encode: Final = msgspec.msgpack.Encoder().encode
_UP: Final[msgspec.msgpack.Decoder[Up]] = msgspec.msgpack.Decoder(Up)
_DOWN: Final[msgspec.msgpack.Decoder[Down]] = msgspec.msgpack.Decoder(Down)


def read_up(data: bytes) -> Up:
    try:
        return _UP.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FrameError(f"a carrier's frame of {len(data)} bytes: {error}") from error


def read_down(data: bytes) -> Down:
    try:
        return _DOWN.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FrameError(f"a server's frame of {len(data)} bytes: {error}") from error


def check_length(body: bytes) -> None:
    """Refuse what nobody would accept before any of it is sent."""
    if len(body) > LIMIT_BYTES:
        raise OversizedBodyError(len(body), LIMIT_BYTES)


def cut(request: int, body: bytes) -> Iterator[bytes]:
    """The frames of a request or an answer, ready to be sent."""
    check_length(body)
    if len(body) <= CHUNK_BYTES:
        yield encode(Part(request, 0, 1, 0, body))
        return
    parts, check, view = -(-len(body) // CHUNK_BYTES), zlib.crc32(body), memoryview(body)
    for part in range(parts):
        piece = bytes(view[part * CHUNK_BYTES : (part + 1) * CHUNK_BYTES])
        yield encode(Part(request, part, parts, check, piece))


def cut_frame(frame: Frame, request: int) -> Iterator[bytes]:
    """A frame as it is, or where it is too long as the body of parts: thousands of clients."""
    data = encode(frame)
    return iter([data]) if len(data) <= CHUNK_BYTES else cut(request, data)


def shown(text: str) -> str:
    """What somebody else wrote, as it may be shown: not too long, and nothing that steers a
    terminal."""
    return "".join(letter for letter in text[:_TEXT] if letter.isprintable())


class Assembler:
    """Joins parts: in any order, some of them twice, those of several sendings mixed.

    What was begun first is forgotten where more than `memory` bytes lie around; whoever waits for
    it asks again. There is room for one body of the longest and for others beside it.
    """

    def __init__(
        self, *, limit: int = LIMIT_BYTES, memory: int = LIMIT_BYTES + LIMIT_BYTES // 4
    ) -> None:
        self._limit, self._memory = limit, memory
        self._begun: dict[tuple[str, int, int, int], dict[int, bytes]] = {}
        self.held = 0
        """Bytes of bodies that are not whole yet."""

    def add(self, sender: str, part: Part) -> bytes | None:
        """The whole body, once, when its last missing part has come."""
        self._check(sender, part)
        if part.parts == 1:
            return part.body
        key = (sender, part.request, part.parts, part.check)
        pieces = self._begun.setdefault(key, {})
        if part.part in pieces:
            return None
        pieces[part.part] = part.body
        self.held += len(part.body) + PIECE_BYTES
        if len(pieces) < part.parts:
            self._make_room()
            return None
        self._drop(key)
        body = b"".join(pieces[number] for number in range(part.parts))
        if zlib.crc32(body) != part.check:
            raise FrameError(f"the {part.parts} parts of {sender} do not make up what was cut")
        return body

    def forget_others(self, sender: str, request: int) -> None:
        """For who is asked one thing after the other: what was begun before was given up."""
        for key in [key for key in self._begun if key[0] == sender and key[1] != request]:
            self._drop(key)

    def _check(self, sender: str, part: Part) -> None:
        last = part.part == part.parts - 1
        full = part.parts == 1 or (last and part.body) or len(part.body) == CHUNK_BYTES
        if not (0 <= part.part < part.parts and len(part.body) <= CHUNK_BYTES and full):
            raise FrameError(
                f"part {part.part} of {part.parts} with {len(part.body)} bytes, from {sender}"
            )
        if (part.parts - 1) * CHUNK_BYTES >= self._limit:
            raise OversizedBodyError((part.parts - 1) * CHUNK_BYTES + 1, self._limit)

    def _make_room(self) -> None:
        while self.held > self._memory:
            self._drop(next(iter(self._begun)))

    def _drop(self, key: tuple[str, int, int, int]) -> None:
        self.held -= sum(len(one) + PIECE_BYTES for one in self._begun.pop(key).values())
