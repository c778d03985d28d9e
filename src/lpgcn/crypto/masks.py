"""Additive masks in Z_2^64 that cancel in a sum (Bonawitz et al. 2017; SecAgg+, Bell et al. 2020).

Parties are the nodes of a graph; the two ends of an edge share a key. One end adds the stream of
that key to its value, the other subtracts it. The sum over all parties is the sum of the values;
less than all of a connected component tells nothing but its own sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from lpgcn.crypto.context import Context, NonceGuard
from lpgcn.crypto.errors import FormatError
from lpgcn.crypto.keys import SecretKey

UInt64 = npt.NDArray[np.uint64]
Sign = Literal[1, -1]
_BLOCK_ZERO: Final = bytes(8)
_BLOCK_BYTES: Final = 16


class Masks:
    """One party's masks: for each peer the key they share and the sign that this party takes."""

    __slots__ = ("_guard", "_peers")

    def __init__(self, peers: Sequence[tuple[SecretKey, Sign]]) -> None:
        if not peers:
            raise FormatError("no peers: a value masked with nobody would go out in the clear")
        self._peers = [(AES256(key.reveal()), sign) for key, sign in peers]
        self._guard = NonceGuard()

    def mask(self, context: Context, count: int) -> UInt64:
        """Σ ± AES-256-CTR(key, place of the context) mod 2^64, for `count` values.

        One mask hides one value: a second one for the same place is refused.
        """
        self._guard.claim(context)
        counter = CTR(context.place + _BLOCK_ZERO)
        total, zeros = np.zeros(count, dtype=np.uint64), bytes(8 * count)
        # The cipher asks for room for one more block.
        stream = bytearray(8 * count + _BLOCK_BYTES)
        values = np.frombuffer(stream, dtype="<u8", count=count)
        for key, sign in self._peers:
            Cipher(key, counter).encryptor().update_into(zeros, stream)
            (np.add if sign == 1 else np.subtract)(total, values, out=total)
        return total
