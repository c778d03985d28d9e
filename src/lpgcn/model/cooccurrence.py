"""Which items go together, as a public list: from it, virtual items look like a taste.

For every item its most frequent companions and how often each was seen with it in a public sample,
itself among them. A draw of virtual items goes in walks: a walk begins at any item, and each of its
steps goes from there to a companion and back, so that the items of a walk go together as those of
one person do:

    start_w uniform over all items,   item_j ~ c(start_w, i) / Σ_i c(start_w, i),   w = j div 512

A walk that goes on from companion to companion, or begins at popular items, drifts to the most
popular ones, where an attacker finds it; measured in docs/RESULTS.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from io import BytesIO
from pathlib import Path
from typing import Final

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.errors import LpgcnError
from lpgcn.files import write_atomically
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, uniform

COMPANIONS: Final = 150
"""Kept for each item."""
STEPS: Final = 512
"""Draws of one walk."""
_ARRAYS: Final = ("offsets", "companions", "counts")


class CooccurrenceError(LpgcnError):
    """A list of what goes together that cannot be used."""


@dataclass(frozen=True, eq=False)
class Cooccurrence:
    """Row i are the companions of item i, itself the first."""

    companions: Ragged
    counts: Int64
    """For each companion, at least 1."""

    @classmethod
    def counted(cls, profiles: Ragged, n_items: int, most: int = COMPANIONS) -> Cooccurrence:
        """From public profiles, a row of items each."""
        by_item = profiles.transposed(n_items)
        companions, counts = [], []
        for item in range(n_items):
            together = np.bincount(profiles.only(by_item[item]).values, minlength=1)
            others = np.flatnonzero(together)
            others = others[others != item]
            best = others[np.argsort(-together[others], kind="stable")][: most - 1]
            companions.append(np.append(item, best))
            counts.append(np.append(max(len(by_item[item]), 1), together[best]))
        return cls(Ragged.from_arrays(companions), np.concatenate(counts))

    @cached_property
    def _running(self) -> Int64:
        """Counts added up over all rows."""
        return np.concatenate(([0], np.cumsum(self.counts)))

    def drawn(self, seed: int, users: Int64, points: Float64, first: int) -> Int64:
        """Draws `first`, first + 1, … of each user, one for each of its points in [0, 1)."""
        draws = np.arange(first, first + points.shape[1])
        walks = draws // STEPS
        begun = uniform(
            seed,
            Purpose.VIRTUAL_START,
            users,
            first=int(walks[0]),
            count=int(walks[-1] - walks[0]) + 1,
        )
        starts = (begun * len(self.companions)).astype(np.int64)[:, walks - walks[0]]
        rows = self.companions.offsets
        low, high = self._running[rows[starts]], self._running[rows[starts + 1]]
        # A whole number below high, which is in the start's own row.
        at = np.minimum(low + np.floor(points * (high - low)).astype(np.int64), high - 1)
        return self.companions.values[np.searchsorted(self._running, at, side="right") - 1]

    def write(self, path: Path) -> None:
        content = BytesIO()
        np.savez_compressed(
            content,
            offsets=self.companions.offsets,
            companions=self.companions.values,
            counts=self.counts,
        )
        write_atomically(path, content.getvalue())


@lru_cache(maxsize=2)
def read_cooccurrence(path: str, n_items: int) -> Cooccurrence:
    """A list that `lpgcn data cooccurrence` wrote, about so many items."""
    try:
        with np.load(path, allow_pickle=False) as found:
            offsets, values, counts = (found[name].astype(np.int64) for name in _ARRAYS)
    except (OSError, ValueError, KeyError) as error:
        raise CooccurrenceError(
            f"cannot read what goes together from {path}: {error}; expected a file that `lpgcn "
            "data cooccurrence` wrote"
        ) from error
    lists = Ragged(offsets, values)
    sound = (
        len(lists) == n_items
        and len(values) == len(counts) == int(offsets[-1])
        and bool(lists.lengths.all())
        and 0 <= int(values.min(initial=0)) <= int(values.max(initial=0)) < n_items
        and int(counts.min(initial=1)) > 0
    )
    if not sound:
        raise CooccurrenceError(
            f"{path} is about {len(lists)} items, or damaged; expected a list of companions for "
            f"each of the {n_items} items: make it from the same catalogue"
        )
    return Cooccurrence(lists, counts)
