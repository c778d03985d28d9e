"""Where a message belongs, and the guard that no place is sealed for twice."""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from lpgcn.crypto.errors import FormatError, NonceReuseError

VERSION: Final = 1
BROADCAST: Final = 0xFFFFFFFF
"""The receiver of a message that the server fans out."""

STEP_BITS: Final = 40
_ENCODING: Final = struct.Struct(">BBBB16sQII")


class Context(msgspec.Struct, frozen=True):
    """The associated data of a message: it opens in the context it was sealed in, or not at all."""

    run: bytes
    step: int
    phase: int
    layer: int
    sender: int
    receiver: int = BROADCAST
    version: int = VERSION

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise FormatError(f"context version {self.version}, but this program speaks {VERSION}")
        if len(self.run) != 16:
            raise FormatError(f"a run is named by 16 bytes, found {len(self.run)}")
        if not 0 <= self.step < 1 << STEP_BITS:
            raise FormatError(f"step {self.step} is outside [0, 2^{STEP_BITS})")
        if not (0 <= self.phase < 256 and 0 <= self.layer < 256):
            raise FormatError(f"phase {self.phase}, layer {self.layer}: each must fit one byte")
        if not (0 <= self.sender < 1 << 32 and 0 <= self.receiver < 1 << 32):
            raise FormatError(
                f"sender {self.sender}, receiver {self.receiver}: each must fit four bytes"
            )

    @property
    def slot(self) -> int:
        """The place of a message within its step: phase · 256 + layer."""
        return self.phase << 8 | self.layer

    def encode(self) -> bytes:
        """36 bytes, big-endian: version, phase, layer, zero, run, step, sender, receiver."""
        return _ENCODING.pack(
            self.version,
            self.phase,
            self.layer,
            0,
            self.run,
            self.step,
            self.sender,
            self.receiver,
        )

    def __str__(self) -> str:
        return f"step {self.step}, phase {self.phase}, layer {self.layer}"


class NonceGuard:
    """Refuses a (step, slot, index) that was claimed before; forgets a step when the next begins.

    Going back to an earlier step is refused as a whole, so only the present step is remembered.
    The memory is this object's: who takes up a key again after a restart begins at a later step.
    """

    __slots__ = ("_claimed", "_step")

    def __init__(self) -> None:
        self._step = -1
        self._claimed: dict[int, set[int] | None] = {}

    def claim(self, context: Context, index: int | None = None) -> None:
        """Takes the place of `context` and `index`, or without an index the whole slot, once."""
        if context.step > self._step:
            self._step = context.step
            self._claimed.clear()
        indices = self._claimed.get(context.slot, set())
        taken = indices is None or (indices if index is None else index in indices)
        if context.step < self._step or taken:
            raise NonceReuseError(
                f"a message for {context} would repeat a nonce: this key has been used up to "
                f"step {self._step}; take a new step, slot, index or key"
            )
        if index is None or indices is None:
            self._claimed[context.slot] = None
        else:
            indices.add(index)
            self._claimed[context.slot] = indices
