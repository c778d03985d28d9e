"""Vectors as rows of bytes, and the doors through which rows leave and enter a party."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgcn.crypto import TAG_BYTES, Context, Indices
from lpgcn.protocol.suite import Key

Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]

PAIRS: Final = {
    "float32": np.dtype([("coefficient", "<f4"), ("count", "<u4")]),
    "float64": np.dtype([("coefficient", "<f8"), ("count", "<u4")]),
}
"""s_ui and n_ui of one listed item, in the precision of the vectors that s_ui multiplies."""


def negative_row(vector_bytes: int, pair: np.dtype[np.void]) -> np.dtype[np.void]:
    """What a client tells the owner of a negative: e_u, the place of the item, s and n."""
    return np.dtype([("vector", "u1", (vector_bytes,)), ("place", "<u4"), ("pair", pair)])


def to_rows(vectors: Tensor) -> UInt8:
    array: UInt8 = vectors.contiguous().numpy().view(np.uint8)
    return array


def to_vectors(rows: UInt8, dtype: torch.dtype) -> Tensor:
    """Copies rows that are still the bytes of a message, which nobody may write to."""
    owned = rows if rows.flags.writeable and rows.flags.c_contiguous else rows.copy()
    return torch.from_numpy(owned.view(np.float32 if dtype == torch.float32 else np.float64))


def row_bytes(payload: int, key: Key) -> int:
    """The size of a row that travels."""
    return payload if key is Key.CLEAR else payload + TAG_BYTES


class Clear:
    """Leaves everything as it is: the door of what a suite does not protect."""

    def seal_rows(self, context: Context, indices: Indices | npt.ArrayLike, rows: UInt8) -> UInt8:
        return rows

    def open_rows(self, context: Context, which: Indices | npt.ArrayLike, sealed: UInt8) -> UInt8:
        return sealed

    def seal(self, context: Context, messages: Sequence[bytes]) -> list[bytes]:
        return list(messages)

    def open(self, context: Context, keys: Sequence[int], messages: Sequence[bytes]) -> list[bytes]:
        return list(messages)
