"""Where a message belongs, and the guard that no place is sealed for twice."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from lpgcn.crypto.errors import FormatError, NonceReuseError

VERSION: Final = 2
STEP_BITS: Final = 40
_STEPS: Final = 1 << STEP_BITS
_ENCODING: Final = struct.Struct(">BBBB16sQ")
_PLACE: Final = struct.Struct(">Q")


class Context(msgspec.Struct, frozen=True):
    """The associated data of a message: it opens in the context it was sealed in, or not at all.

    Who sends it to whom is in the key: a kind of message goes one way between the holders of a key.
    """

    run: bytes
    step: int
    """Of whatever never goes back: it is the most significant part of a nonce."""
    phase: int
    layer: int
    kind: int

    def __post_init__(self) -> None:
        if len(self.run) != 16:
            raise FormatError(f"a run is named by 16 bytes, found {len(self.run)}")
        if not 0 <= self.step < _STEPS:
            raise FormatError(f"step {self.step} is outside [0, 2^{STEP_BITS})")
        if not (0 <= self.phase < 256 and 0 <= self.layer < 256 and 0 <= self.kind < 256):
            raise FormatError(
                f"phase {self.phase}, layer {self.layer}, kind {self.kind}: each must fit one byte"
            )

    @property
    def slot(self) -> int:
        """The place of a message within its step: phase, layer and kind, a byte each."""
        return self.phase << 16 | self.layer << 8 | self.kind

    @property
    def place(self) -> bytes:
        """Step and slot, 8 bytes: all of a nonce but the index."""
        return _PLACE.pack(self.step << 24 | self.slot)

    def encode(self) -> bytes:
        """28 bytes, big-endian: version, phase, layer, kind, run, step."""
        return _ENCODING.pack(VERSION, self.phase, self.layer, self.kind, self.run, self.step)

    def __str__(self) -> str:
        return f"step {self.step}, phase {self.phase}, layer {self.layer}, kind {self.kind}"


class NonceGuard:
    """Refuses a (step, slot) that was claimed before; forgets a step when the next begins.

    Going back to an earlier step is refused as a whole, so only the present step is remembered.
    The memory is this object's: who takes up a key again after a restart begins at a later step.
    """

    __slots__ = ("_claimed", "_step")

    def __init__(self) -> None:
        self._step = -1
        self._claimed: tuple[int, ...] = ()

    def claim(self, context: Context) -> None:
        """Takes the place of `context`, once."""
        if context.step > self._step:
            self._step, self._claimed = context.step, ()
        if context.step < self._step or context.slot in self._claimed:
            raise NonceReuseError(
                f"a message for {context} would repeat a nonce: this key has been used up to "
                f"step {self._step}; take a new step, slot or key"
            )
        self._claimed += (context.slot,)
