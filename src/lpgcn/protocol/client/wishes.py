"""Positives of a batch: what a client asks its owners for, and what an owner is asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lpgcn.array_types import Int64


@dataclass(frozen=True)
class Drawn:
    """A client's positives in a batch, and the slots in which it asks for their vectors."""

    positive: Int64
    """For each sample which of the `count` different positives it has."""
    count: int
    own: list[int]
    """Those positives that this client owns itself, and their rows among the owned items."""
    own_rows: list[int]
    wished: list[int]
    """The others, and the slot of each."""
    slot: list[int]
    slots: list[int]
    """Slots for each owner."""
    wishes: list[int]
    """For each slot the number of an item among those that the owner asked about, or NO_WISH."""


@dataclass(frozen=True)
class Wishes:
    """As owner: what the batch's neighbours wished for."""

    handles: Int64
    slots: Int64
    """For each of these neighbours."""
    items: Int64
    """For each slot the owned row, or -1."""

    @classmethod
    def none(cls) -> Wishes:
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, nothing, nothing)
