"""Who gets which rows: what follows from the lists and the plan, worked out once.

A *pair* is an owner and a client that lists items of it; it is the owner's neighbour. An *entry* is
one such item. Pairs are numbered owner by owner, and within an owner at random: the number of a
pair among its owner's is the *handle* by which the owner knows the neighbour, and tells nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from lpgcn.array_types import Bits, Int64
from lpgcn.model.batches import Batch
from lpgcn.model.sampling import places
from lpgcn.plan import TokenGraph
from lpgcn.ragged import Ragged, flags
from lpgcn.random import Purpose, words


class Topology:
    """Lists of places, the owner of every place, and a seed that only the server has."""

    def __init__(self, listed: Ragged, owner: Int64, seed: int) -> None:
        self.listed, self.owner, self.seed = listed, owner, seed
        self.n_clients, self.n_items = len(listed), len(owner)
        client, place = listed.rows, listed.values
        foreign = np.flatnonzero(owner[place] != client)
        client, place = client[foreign], place[foreign]
        keys, pair = np.unique(owner[place] * self.n_clients + client, return_inverse=True)
        at_random = words(seed, Purpose.HANDLE, np.arange(len(keys)), count=2)
        order = np.lexsort((at_random[:, 0], keys // self.n_clients))
        self.pair_owner, self.pair_client = np.divmod(keys[order], self.n_clients)
        pair = places(order)[pair]
        by_pair = np.lexsort((place, pair))
        positions = foreign - listed.offsets[client]
        self.entries = Ragged.from_rows(pair[by_pair], place[by_pair], len(keys))
        """The places of every pair, rising."""
        self.entry_positions = positions[by_pair]
        """For every entry its position in the client's list."""
        self.by_owner = Ragged.from_rows(self.pair_owner, np.arange(len(keys)), self.n_clients)
        """For an owner its pairs: handle h is by_owner[ũ][h]."""
        of_client = np.lexsort((at_random[order, 1], self.pair_client))
        self.by_client = Ragged.from_rows(self.pair_client[of_client], of_client, self.n_clients)
        """For a client its pairs, at random."""
        self.owned = Ragged.from_pairs(owner, np.arange(self.n_items), self.n_clients)

    @property
    def n_pairs(self) -> int:
        return len(self.pair_owner)

    @cached_property
    def is_owner(self) -> Bits:
        return self.owned.lengths > 0

    @cached_property
    def neighbours(self) -> Ragged:
        """For an owner its neighbours N_ũ, in the order of their handles."""
        return Ragged(self.by_owner.offsets, self.pair_client)

    @cached_property
    def listed_elsewhere(self) -> Ragged:
        """For a client the places of its list that others own, as it uploaded them."""
        return self.listed.where(self.owner[self.listed.values] != self.listed.rows)

    @cached_property
    def owned_row(self) -> Int64:
        """For each place its number among its owner's places."""
        rows = np.empty(self.n_items, dtype=np.int64)
        rows[self.owned.values] = self.owned.ranks
        return rows

    def listing(self, items: Bits) -> Bits:
        """Clients that list one of these items."""
        return self.listed.any(items[self.listed.values])

    def token_graph(self) -> TokenGraph:
        return TokenGraph.from_pairs(
            self.listed.rows, self.listed.values, n_clients=self.n_clients, n_tokens=self.n_items
        )


@dataclass(frozen=True, eq=False)
class Scope:
    """Whom a pass is for: the users, and the items Q, whose final vectors are needed."""

    users: Bits
    listed: Bits
    """Items that these users list."""
    finals: Bits
    """Items whose final vectors everybody can open who has K_item: negatives, or all."""
    pairs: Bits
    """Pairs about an item of Q."""

    @property
    def items(self) -> Bits:
        """Q: listed by these users, or negatives."""
        return self.listed | self.finals

    @classmethod
    def of_batch(cls, topology: Topology, batch: Batch) -> Scope:
        users = flags(topology.n_clients, batch.users)
        finals = flags(topology.n_items, batch.negatives)
        listed = flags(topology.n_items, topology.listed.values[users[topology.listed.rows]])
        entries = topology.entries
        return cls(users, listed, finals, entries.any((listed | finals)[entries.values]))

    @classmethod
    def everything(cls, topology: Topology) -> Scope:
        users, items, pairs = (
            np.ones(count, dtype=np.bool_)
            for count in (topology.n_clients, topology.n_items, topology.n_pairs)
        )
        return cls(users, items, items, pairs)

    def with_finals(self, places: Int64) -> Scope:
        """The same, with the final vectors of these items only."""
        return replace(self, finals=flags(len(self.finals), places))
