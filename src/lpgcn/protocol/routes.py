"""Who gets which rows: what follows from the lists and the plan, worked out once.

An *entry* is a client's listed item that another client owns. Uploads of rows per item come in the
order (client, owner, place), deliveries in the order (owner, client, place).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lpgcn.plan import TokenGraph
from lpgcn.plan.graph import starts

Int64 = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Runs:
    """Several arrays behind one another: array r is `values[offsets[r]:offsets[r + 1]]`."""

    offsets: Int64
    values: Int64

    @classmethod
    def of(cls, rows: Int64, values: Int64, n_rows: int) -> Runs:
        """From one row number for each value, rising."""
        return cls(np.searchsorted(rows, np.arange(n_rows + 1)), values)

    def __getitem__(self, row: int) -> Int64:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> Int64:
        return np.diff(self.offsets)

    @cached_property
    def rows(self) -> Int64:
        return np.repeat(np.arange(len(self.offsets) - 1), self.lengths)

    def any(self, flags: Bits) -> Bits:
        """For each array, whether one of its entries is flagged."""
        return np.bincount(self.rows, flags, len(self.offsets) - 1) > 0

    def flagged(self, flags: Bits) -> Flagged:
        return Flagged(self, flags)


@dataclass(frozen=True)
class Flagged:
    """Some entries of each array: the rows that a message brings, or asks for."""

    runs: Runs
    flags: Bits

    @cached_property
    def _complete(self) -> Bits:
        lengths = self.runs.lengths
        complete: Bits = np.bincount(self.runs.rows, self.flags, len(lengths)) == lengths
        return complete

    def _of(self, row: int) -> Bits:
        return self.flags[self.runs.offsets[row] : self.runs.offsets[row + 1]]

    def chosen(self, row: int) -> Int64:
        return self.runs[row] if self._complete[row] else self.runs[row][self._of(row)]

    def packed(self, row: int) -> bytes:
        """A bit for each entry, as `messages.bits` reads it; nothing if all are flagged."""
        return b"" if self._complete[row] else np.packbits(self._of(row)).tobytes()

    @property
    def packed_lengths(self) -> Int64:
        return np.where(self._complete, 0, (self.runs.lengths + 7) // 8)


class Routes:
    """`listed[u]` are the places that client u listed, as it uploaded them; `owner` is the plan."""

    def __init__(self, listed: Sequence[Int64], owner: Int64) -> None:
        self.n_clients, self.n_items = len(listed), len(owner)
        self.owner = owner
        self.listed = Runs(starts([len(one) for one in listed]), np.concatenate(listed))
        client, place = self.listed.rows, self.listed.values
        foreign = np.flatnonzero(owner[place] != client)
        self.arriving = Runs.of(client[foreign], place[foreign], self.n_clients)
        """The places of a client's list that others own, as it uploaded them."""
        order = foreign[np.lexsort((place[foreign], owner[place[foreign]], client[foreign]))]
        self.entry_client, self.entry_place = client[order], place[order]
        self.entry_owner = owner[self.entry_place]
        self.entry_position = order - self.listed.offsets[self.entry_client]
        self.entry_offsets = np.searchsorted(self.entry_client, np.arange(self.n_clients + 1))
        by_owner = np.lexsort((self.entry_place, self.entry_client, self.entry_owner))
        self.delivered = Runs.of(self.entry_owner[by_owner], by_owner, self.n_clients)
        """For an owner its entries, in the order of delivery."""
        places_by_owner = np.argsort(owner, kind="stable")
        self.owned = Runs.of(owner[places_by_owner], places_by_owner, self.n_clients)
        self._find_neighbours(by_owner)

    def _find_neighbours(self, by_owner: Int64) -> None:
        owner, client = self.entry_owner[by_owner], self.entry_client[by_owner]
        new = np.ones(len(owner), dtype=np.bool_)
        new[1:] = (owner[1:] != owner[:-1]) | (client[1:] != client[:-1])
        self.neighbours = Runs.of(owner[new], client[new], self.n_clients)
        """For an owner its neighbours N_ũ, rising: handle h is neighbours[ũ][h]."""
        self._first_entry = np.append(np.flatnonzero(new), len(owner))
        self.neighbour_of_entry = np.cumsum(new) - 1
        """For each delivered entry its neighbour, counted over all owners."""

    @cached_property
    def is_owner(self) -> Bits:
        return self.owned.lengths > 0

    @cached_property
    def owned_row(self) -> Int64:
        """For each place its number among its owner's places."""
        rows = np.empty(self.n_items, dtype=np.int64)
        rows[self.owned.values] = np.arange(self.n_items) - self.owned.offsets[self.owned.rows]
        return rows

    def own_rank(self, client: int) -> int:
        return int(np.searchsorted(self.neighbours[client], client))

    def order_at(self, owner: int, sender: int) -> int:
        """How many of an owner's neighbours, it itself counted, come before a sender."""
        return int(np.searchsorted(self.neighbours[owner], sender)) + (owner < sender)

    def neighbourhood(self, owner: int) -> tuple[Int64, Int64]:
        """Offsets by handle, and the owned rows that each handle listed."""
        first, last = self.neighbours.offsets[owner], self.neighbours.offsets[owner + 1]
        offsets = self._first_entry[first : last + 1] - self._first_entry[first]
        return offsets, self.owned_row[self.entry_place[self.delivered[owner]]]

    def askers(self, client: int) -> tuple[Int64, Int64, Int64]:
        """The owners of a client's listed items; offsets; and the positions each asks about."""
        part = slice(self.entry_offsets[client], self.entry_offsets[client + 1])
        owners, first = np.unique(self.entry_owner[part], return_index=True)
        return owners, np.append(first, part.stop - part.start), self.entry_position[part]

    def listing(self, items: Bits) -> Bits:
        """Clients that list one of these items."""
        return self.listed.any(items[self.listed.values])

    def neighbours_listing(self, items: Bits) -> Bits:
        """For each neighbour of each owner, whether it lists one of these items of that owner."""
        flagged = items[self.entry_place[self.delivered.values]]
        return np.bincount(self.neighbour_of_entry, flagged, len(self.neighbours.values)) > 0

    def token_graph(self) -> TokenGraph:
        return TokenGraph.from_pairs(
            self.listed.rows, self.listed.values, n_clients=self.n_clients, n_tokens=self.n_items
        )
