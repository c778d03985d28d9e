"""Handles for those who meet only through negatives: a client, and the owner of an item it drew.

Each side knows the other by a number that the server makes up. Pairs share a key from verification
on and come first: a client's owners in the order in which they asked, an owner's neighbours by
their handles. New handles are higher than all before, so that in a message new contacts come last,
and among those that are new in one step at random: a handle tells nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lpgcn.array_types import Int64, UInt64
from lpgcn.protocol.server.topology import Topology
from lpgcn.random import Purpose, words


@dataclass(frozen=True)
class Meeting:
    """Handles of some (client, owner) combinations, and which of these meet for the first time."""

    at_client: Int64
    """The handle of the owner at the client."""
    at_owner: Int64
    new_client: Int64
    """The first meetings, one each: client, owner, and the handles they get."""
    new_owner: Int64
    new_at_client: Int64
    new_at_owner: Int64


class Contacts:
    """Who has met whom so far."""

    def __init__(self, topology: Topology) -> None:
        n, self._seed = topology.n_clients, topology.seed
        self._n = n
        pairs = topology.n_pairs
        at_client, at_owner = np.empty(pairs, dtype=np.int64), np.empty(pairs, dtype=np.int64)
        at_client[topology.by_client.values] = topology.by_client.ranks
        at_owner[topology.by_owner.values] = topology.by_owner.ranks
        keys = topology.pair_client * n + topology.pair_owner
        order = np.argsort(keys)
        self._keys, self._at_client, self._at_owner = (
            keys[order], at_client[order], at_owner[order],
        )  # fmt: skip
        self._next_at_client = topology.by_client.lengths.copy()
        self._next_at_owner = topology.by_owner.lengths.copy()

    def arrays(self) -> dict[str, Int64]:
        """What a checkpoint holds of it."""
        return {
            "keys": self._keys,
            "at_client": self._at_client,
            "at_owner": self._at_owner,
            "next_at_client": self._next_at_client,
            "next_at_owner": self._next_at_owner,
        }

    def restore(self, arrays: Mapping[str, Int64]) -> None:
        self._keys, self._at_client, self._at_owner = (
            arrays["keys"], arrays["at_client"], arrays["at_owner"],
        )  # fmt: skip
        self._next_at_client = arrays["next_at_client"].copy()
        self._next_at_owner = arrays["next_at_owner"].copy()

    def meet(self, clients: Int64, owners: Int64) -> Meeting:
        """The handles of these; whoever has none yet gets the next ones."""
        wanted: Int64 = clients * self._n + owners
        distinct, which = np.unique(wanted, return_inverse=True)
        where = np.searchsorted(self._keys, distinct)
        known = np.append(self._keys, -1)[where] == distinct
        new, gap = distinct[~known], where[~known]
        client, owner = np.divmod(new, self._n)
        # What is known grows with every meeting, so that no draw is made twice.
        at_random = words(
            self._seed, Purpose.CONTACT, np.arange(len(new)), len(self._keys), count=2
        )
        at_client = _hand_out(self._next_at_client, client, at_random[:, 0])
        at_owner = _hand_out(self._next_at_owner, owner, at_random[:, 1])
        self._keys = np.insert(self._keys, gap, new)
        self._at_client = np.insert(self._at_client, gap, at_client)
        self._at_owner = np.insert(self._at_owner, gap, at_owner)
        # Every key that was put in before it moved a key by one.
        now = where + np.cumsum(~known) - ~known
        return Meeting(
            self._at_client[now][which], self._at_owner[now][which],
            client, owner, at_client, at_owner,
        )  # fmt: skip


def _hand_out(following: Int64, parties: Int64, at_random: UInt64) -> Int64:
    """The next free handles of each party, in this order; those handed out are gone."""
    order = np.lexsort((at_random, parties))
    rank = np.empty_like(parties)
    rank[order] = np.arange(len(parties)) - np.searchsorted(parties[order], parties[order])
    handles: Int64 = following[parties] + rank
    np.add.at(following, parties, 1)
    return handles
