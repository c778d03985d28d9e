"""The sizes of rows under a suite: a row of one kind has one size, whatever it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lpgcn.config import Config
from lpgcn.crypto import CHANNEL_OVERHEAD, SEAL_OVERHEAD
from lpgcn.protocol.rows import PAIRS, negative_row, row_bytes
from lpgcn.protocol.suite import SUITES, Key, Kind

Int64 = npt.NDArray[np.int64]

LARGEST: Final = 1 << 30


@dataclass(frozen=True)
class Sizes:
    """Bytes of one row as it travels."""

    vector: int
    """A plain vector: d numbers."""
    item: int
    user_forward: int
    user_backward: int
    loss_user: int
    pair_overhead: int
    pair: np.dtype[np.void]
    """s and n of one item, before they are sealed."""
    negative: int
    introduction: int

    @classmethod
    def of(cls, config: Config) -> Sizes:
        vector = config.dim * config.number_bytes
        suite = SUITES[config.suite]
        clear_loss = suite[Kind.LOSS] is Key.CLEAR
        pair = PAIRS[config.dtype]
        negative = negative_row(vector, pair).itemsize
        return cls(
            vector=vector,
            item=row_bytes(vector, suite[Kind.ITEM]),
            user_forward=row_bytes(vector, suite[Kind.USER_FORWARD]),
            user_backward=row_bytes(vector, suite[Kind.USER_BACKWARD]),
            loss_user=row_bytes(vector, suite[Kind.USER_FINAL]),
            pair_overhead=row_bytes(0, suite[Kind.LOSS]),
            pair=pair,
            negative=negative if clear_loss else negative + CHANNEL_OVERHEAD,
            introduction=0 if clear_loss else 32 + SEAL_OVERHEAD,
        )

    def pairs(self, items: Int64) -> Int64:
        """The scalars of so many items, to one owner."""
        return self.pair.itemsize * items + self.pair_overhead

    def user(self, kind: Kind) -> int:
        return {
            Kind.USER_FORWARD: self.user_forward,
            Kind.USER_BACKWARD: self.user_backward,
            Kind.USER_FINAL: self.loss_user,
        }[kind]

    def largest(self, n_users: int, n_items: int, batch_size: int) -> int:
        """No message is longer: a row of every kind for all that there can be one for, and a
        kilobyte for the rest. A message of more than a gigabyte is no message for a client."""
        per_user = self.user_forward + self.introduction + self.pair_overhead + 256
        per_sample = self.negative + self.item + 64
        per_entry = max(self.pair.itemsize, 4) * n_users * n_items
        rows = n_users * per_user + n_items * (self.item + 64) + batch_size * per_sample
        return min(1024 + rows + per_entry, LARGEST)
