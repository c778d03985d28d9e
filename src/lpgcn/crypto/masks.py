"""Additive masks in Z_2^64 that cancel in a sum (Bonawitz et al. 2017; SecAgg+, Bell et al. 2020).

Parties are the nodes of a graph; the two ends of an edge share a key. One end adds the stream of
that key to its value, the other subtracts it. The sum over all parties is the sum of the values;
less than all of a connected component tells nothing but its own sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from lpgcn.crypto.context import Context, NonceGuard
from lpgcn.crypto.errors import FormatError
from lpgcn.crypto.keys import SecretKey
from lpgcn.crypto.keystream import WORD64, Domain, UInt64, block_cipher, counter_blocks

Sign = Literal[1, -1]


class Masks:
    """One party's masks: for each peer the key they share and the sign that this party takes."""

    __slots__ = ("_guard", "_streams")

    def __init__(self, peers: Sequence[tuple[SecretKey, Sign]]) -> None:
        if not peers:
            raise FormatError("no peers: a value masked with nobody would go out in the clear")
        self._streams = [(block_cipher(key), sign) for key, sign in peers]
        self._guard = NonceGuard()

    def mask(self, context: Context, count: int) -> UInt64:
        """Σ ± AES-256(key, blocks of (step, phase, layer)) mod 2^64, for `count` values.

        One mask hides one value: a second one for the same place is refused.
        """
        self._guard.claim(context)
        index = np.zeros(1, dtype=np.uint32)
        blocks = counter_blocks(Domain.MASK, context.step, context.slot, index, -(-count // 2))
        counters = blocks.tobytes()
        total = np.zeros(count, dtype=np.uint64)
        for cipher, sign in self._streams:
            stream = np.frombuffer(cipher.update(counters), dtype=WORD64)[:count]
            if sign == 1:
                total += stream
            else:
                total -= stream
        return total
