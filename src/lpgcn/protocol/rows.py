"""Vectors as rows of bytes, and the doors through which rows leave and enter a party."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgcn.crypto import TAG_BYTES, Context, SecretKey, VectorChannel, VectorChannels
from lpgcn.protocol.suite import Key

Int64 = npt.NDArray[np.int64]
UInt8 = npt.NDArray[np.uint8]

PAIR = np.dtype([("coefficient", "<f4"), ("count", "<u4")])
"""s_ui and n_ui of one listed item."""


def negative_row(vector_bytes: int) -> np.dtype[np.void]:
    """What a client tells the owner of a negative: e_u, the place of the item, s and n."""
    return np.dtype([("vector", "u1", (vector_bytes,)), ("place", "<u4"), ("pair", PAIR)])


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


class SharedDoor(Protocol):
    """Rows under one key, each at its own index."""

    def seal(self, context: Context, indices: npt.ArrayLike, payload: UInt8) -> UInt8: ...
    def open(self, context: Context, indices: npt.ArrayLike, sealed: UInt8) -> UInt8: ...


class NeighbourDoor(Protocol):
    """Rows of several parties, each under a key of its own."""

    def seal(
        self, context: Context, payload: UInt8, keys: Int64, indices: npt.ArrayLike
    ) -> UInt8: ...

    def open(
        self,
        context: Context,
        senders: npt.ArrayLike,
        sealed: UInt8,
        keys: Int64 | None = None,
        indices: npt.ArrayLike | None = None,
    ) -> UInt8: ...


class Clear:
    """Leaves rows as they are: what a suite does not protect. It serves as either kind of door."""

    def seal(self, context: Context, *arguments: npt.ArrayLike) -> UInt8:
        payload = arguments[1] if len(arguments) == 2 else arguments[0]
        return np.asarray(payload, dtype=np.uint8)

    def open(
        self,
        context: Context,
        indices: npt.ArrayLike,
        sealed: UInt8,
        keys: Int64 | None = None,
        places: npt.ArrayLike | None = None,
    ) -> UInt8:
        return sealed


def shared_door(key: SecretKey | None) -> SharedDoor:
    return Clear() if key is None else VectorChannel(key)


def neighbour_door(
    keys: Sequence[SecretKey] | None, slots: Sequence[tuple[int, int]] = ()
) -> NeighbourDoor:
    return Clear() if keys is None else VectorChannels(keys, slots)
