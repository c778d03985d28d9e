"""The sizes of rows under a suite: a row of one kind has one size, whatever it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.config import BatchSize, Config
from lpgcn.crypto import KEY_BYTES, SEAL_OVERHEAD, TAG_BYTES
from lpgcn.model.backbones import backbone_of
from lpgcn.model.batches import pool_sizes
from lpgcn.model.losses.softmax import Softmax
from lpgcn.protocol.suite import SUITES, Kind, Suite
from lpgcn.protocol.wire.reading import MASKED_BYTES, NUMBER_BYTES

LARGEST: Final = 1 << 30
SEED_BYTES: Final = 8
SHARED_BYTES: Final = KEY_BYTES + SEED_BYTES
"""The shared key S and the seed that all clients, and not the server, draw from."""
SEALED_SHARED_BYTES: Final = SHARED_BYTES + SEAL_OVERHEAD
SEALED_KEY_BYTES: Final = KEY_BYTES + SEAL_OVERHEAD
ANSWER_KEYS: Final = 2 * KEY_BYTES
"""A verification answer carries K_u and a fresh pairwise key before its bits."""
MASK_REACH: Final = 3
"""A client shares masks with the three before and the three after it, in a random circle."""
HEIRS: Final = 3
"""Clients besides its owner to whom a copy of an item's state is sealed, if there are so many."""
NO_WISH: Final = 0xFFFFFFFF
"""Fills the slots that a client has no wish for."""


def verification_answer(listed: Int64) -> Int64:
    """A sealed answer about so many listed items."""
    return SEAL_OVERHEAD + ANSWER_KEYS + (listed + 7) // 8


@dataclass(frozen=True)
class Sizes:
    """Bytes of one row as it travels."""

    suite: Suite
    vector: int
    """A plain vector: d numbers."""
    shown: np.dtype[Any]
    """A number of a final vector as the loss shows it to others: itself, or of its direction."""
    pair: np.dtype[np.void]
    """s_ui and n_ui, in the precision of the vectors that s_ui multiplies."""
    dim: int
    """Numbers of a final vector."""
    pool: tuple[int, int] = (0, 0)
    """Negatives that a client gets at most, and those that it answers about."""
    shared: int = 0
    """Numbers of all dense weights together."""
    copy: int = 0
    """All dense weights with their Adam states."""

    @classmethod
    def of(cls, config: Config) -> Sizes:
        number = np.dtype(config.dtype).newbyteorder("<")
        pair = np.dtype([("coefficient", number), ("count", "<u4")])
        suite, vector = SUITES[config.suite], config.dim * number.itemsize
        backbone = backbone_of(config)
        shapes = backbone.shared().values()
        shared = sum(rows * columns for rows, columns in shapes)
        # Four numbers for each of theirs, and a count of steps a row.
        copy = 4 * shared * number.itemsize + sum(8 * rows for rows, _ in shapes)
        shown: np.dtype[Any] = Softmax.of(config).number if config.pooled else number
        pool = pool_sizes(config, config.negatives) if config.pooled else (0, 0)
        return cls(suite, vector, shown, pair, backbone.final_dim, pool, shared, copy)

    @property
    def _final_vector(self) -> int:
        """A plain one, which the readout of some backbones makes longer than other vectors."""
        return self.dim * self.pair["coefficient"].itemsize

    @property
    def final(self) -> int:
        """A final vector as the loss shows it."""
        return self.dim * self.shown.itemsize

    @property
    def answer(self) -> int:
        """What is said about one negative of a pool."""
        return self.dim * MASKED_BYTES

    @cached_property
    def negative_content(self) -> np.dtype[np.void]:
        """What a client tells the owner of a negative: e_u, the place of the item, s and n."""
        return np.dtype(
            [("vector", "u1", (self._final_vector,)), ("place", "<u4"), ("pair", self.pair)]
        )

    def row(self, kind: Kind) -> int:
        """A vector, or what is said about one negative."""
        return self._rows[kind]

    @cached_property
    def _rows(self) -> dict[Kind, int]:
        rows = {kind: self.vector + self._tag(kind) for kind in self.suite.keys}
        rows[Kind.ITEM_FINAL] = self._final_vector + self._tag(Kind.ITEM_FINAL)
        rows[Kind.NEGATIVE] = self.negative_content.itemsize + self._tag(Kind.NEGATIVE)
        for kind in (Kind.USER_FINAL, Kind.POOL):
            rows[kind] = self.final + self._tag(kind)
        return rows

    def slots(self, kind: Kind) -> tuple[int, int]:
        """Of a message with slots between a client and an owner: bytes a slot, and besides."""
        plain = {
            Kind.WISH: NUMBER_BYTES,
            Kind.GRANT: self.final,
            Kind.SCALARS: self.pair.itemsize,
        }
        return plain[kind], self._tag(kind)

    def node(self, tables: Sequence[str]) -> np.dtype[np.void]:
        """The state of one node in these tables: its parameters, Adam's means and count, and the
        parameters that were kept as the best so far."""
        vector = (self.pair["coefficient"], (self.vector // self.pair["coefficient"].itemsize,))
        state = np.dtype(
            [(name, *vector) for name in ("parameter", "mean", "square")]
            + [("steps", "<i8"), ("kept", *vector)]
        )
        return np.dtype([(name, state) for name in sorted(tables)])

    def package(self, tables: Sequence[str]) -> tuple[int, int]:
        """A bequest, sealed: bytes an item, and besides."""
        return self.node(tables).itemsize, SEAL_OVERHEAD

    @property
    def introduction(self) -> int:
        """A fresh key, sealed to a contact; nobody is met where negatives travel in the clear."""
        return KEY_BYTES + SEAL_OVERHEAD if self.suite.protects(Kind.NEGATIVE) else 0

    def _tag(self, kind: Kind) -> int:
        return TAG_BYTES if self.suite.protects(kind) else 0

    def largest(self, n_users: int, n_items: int, batch_size: BatchSize) -> int:
        """No message is longer: a row of every kind for all that there can be one for, and a
        kilobyte for the rest. A message of more than a gigabyte is no message for a client."""
        row = max(self.vector, self._final_vector) + TAG_BYTES + 64
        if batch_size == "full":
            if not any(self.pool):
                return LARGEST
            batch_size = 0
        per_sample = self.row(Kind.NEGATIVE) + 2 * row
        granted = self.final if any(self.pool) else 0
        per_entry = max(self.pair.itemsize, NUMBER_BYTES, granted) * n_users * n_items
        # A copy of an item's state has four vectors in each of at most two tables.
        rows = n_users * (2 * row + 256) + 9 * n_items * row + batch_size * per_sample
        rows += self.pool[0] * row + (self.pool[1] + n_items) * self.answer
        rows += self.shared * MASKED_BYTES + self.copy
        return min(1024 + rows + per_entry, LARGEST)
