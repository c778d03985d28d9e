"""Tokens in parts, one part per owner: what a move costs, and the move itself.

A client *touches* a part if it lists one of its tokens. Traffic is the number of touches, and a
part's load is the number of clients that touch it, without the owner if the owner is among them.
So a move of token i from part p to part q takes away the clients for whom i was the only token in
p, and adds those clients of i that had nothing in q.

Every client keeps a short list of the parts that it touches and how many of its tokens lie in each.
The lists live in the client's own stretch of two long arrays, which is never too short, because a
client touches no more parts than it lists tokens. A move is then a handful of array operations over
the lists of the token's clients, and memory is linear in the number of listings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lpgcn.array_types import Bits, Int64
from lpgcn.plan.graph import TokenGraph
from lpgcn.ragged import starts


@dataclass(frozen=True)
class Limits:
    """The most that one part may hold: load in clients, and tokens."""

    max_load: int
    max_items: int


class TouchedLists(NamedTuple):
    """A token's clients, and the entries of all their lists one after another."""

    clients: Int64
    entries: Int64
    """Where in the long arrays."""
    parts: Int64
    """Which part each entry is about."""


class Parts:
    """A changeable assignment of tokens to `n_parts` parts; some may be empty.

    `owner_lists[i]` says that every part which token i may go to has an owner that lists i. Such an
    owner is a client of its own part and is not counted in its load. Where owners are not yet known
    or are strangers to the token, it is false.
    """

    def __init__(self, graph: TokenGraph, part_of: Int64, n_parts: int, owner_lists: Bits) -> None:
        self.graph = graph
        self.part_of = part_of.copy()
        self.n_parts = n_parts
        self.owner_lists = owner_lists
        touching = graph.clients * n_parts + part_of[graph.tokens]
        keys, counts = np.unique(touching, return_counts=True)
        clients, parts = np.divmod(keys, n_parts)
        self._length = np.bincount(clients, minlength=graph.n_clients)
        rank = np.arange(keys.size) - starts(self._length)[clients]
        self._part = np.zeros(graph.tokens.size, dtype=np.int64)
        self._count = np.zeros(graph.tokens.size, dtype=np.int64)
        self._part[graph.listed.offsets[clients] + rank] = parts
        self._count[graph.listed.offsets[clients] + rank] = counts
        self.touches = np.bincount(parts, minlength=n_parts)
        self.sizes = np.bincount(part_of, minlength=n_parts)
        self._listed_by_owner = np.bincount(part_of[owner_lists], minlength=n_parts)
        self.n_moves = 0
        self.changed = np.zeros(n_parts, dtype=np.int64)
        """After which move, counted from 1, each part last changed."""

    def loads(self) -> Int64:
        """|N| of every part."""
        return self.touches - (self._listed_by_owner > 0)

    def neighbours(self) -> int:
        """Σ |N|, what the traffic of the plan is proportional to."""
        return int(self.loads().sum())

    def over(self, limits: Limits) -> Int64:
        """Parts above a limit, the most loaded first."""
        loads = self.loads()
        order = np.argsort(-loads, kind="stable")
        return order[(loads[order] > limits.max_load) | (self.sizes[order] > limits.max_items)]

    def touched(self, token: int) -> TouchedLists:
        clients = self.graph.by_token[token]
        lengths = self._length[clients]
        entries = np.repeat(self.graph.listed.offsets[clients] - starts(lengths)[:-1], lengths)
        entries += np.arange(entries.size)
        return TouchedLists(clients, entries, self._part[entries])

    def relief(self, token: int, touched: TouchedLists) -> int:
        """By how much the load of a token's part falls when the token leaves."""
        part = self.part_of[token]
        leaving = int((self._count[touched.entries[touched.parts == part]] == 1).sum())
        return leaving - int(self.owner_lists[token] and self._listed_by_owner[part] == 1)

    def best_target(
        self, token: int, touched: TouchedLists, candidates: Int64 | slice, limits: Limits
    ) -> tuple[int, int] | None:
        """The part whose load rises least by taking a token, and that rise; None if none may."""
        connected = np.bincount(touched.parts, minlength=self.n_parts)[candidates]
        entering = touched.clients.size - connected
        has_owner = self._listed_by_owner[candidates] > 0
        touches = self.touches[candidates]
        rise = entering - (self.owner_lists[token] & ~has_owner)
        allowed = touches - has_owner + rise <= limits.max_load
        allowed &= self.sizes[candidates] < limits.max_items
        here = int(self.part_of[token])
        if isinstance(candidates, slice):
            allowed[here] = False
        else:
            allowed &= candidates != here
        best = int(np.where(allowed, rise, self.graph.n_clients + 1).argmin())
        if not allowed[best]:
            return None
        target = best if isinstance(candidates, slice) else int(candidates[best])
        return target, int(rise[best])

    def move(self, token: int, target: int, touched: TouchedLists) -> None:
        """Put a token into another part; `touched` must be fresh."""
        clients, entries, parts = touched
        source = self.part_of[token]
        # Every client of the token has exactly one entry about the source, in the clients' order.
        left = entries[parts == source]
        is_target = parts == target
        had_target = np.zeros(clients.size, dtype=np.bool_)
        had_target[np.repeat(np.arange(clients.size), self._length[clients])[is_target]] = True
        self._count[entries[is_target]] += 1
        self._count[left] -= 1
        gone = self._count[left] == 0
        self._overwrite(left[gone & ~had_target], target)
        self._remove(clients[gone & had_target], left[gone & had_target])
        self._append(clients[~gone & ~had_target], target)
        self.touches[source] -= gone.sum()
        self.touches[target] += clients.size - had_target.sum()
        self.n_moves += 1
        for part, change in ((source, -1), (target, 1)):
            self.changed[part] = self.n_moves
            self.sizes[part] += change
            self._listed_by_owner[part] += change * int(self.owner_lists[token])
        self.part_of[token] = target

    def _overwrite(self, entries: Int64, part: int) -> None:
        self._part[entries] = part
        self._count[entries] = 1

    def _remove(self, clients: Int64, entries: Int64) -> None:
        self._length[clients] -= 1
        last = self.graph.listed.offsets[clients] + self._length[clients]
        self._part[entries] = self._part[last]
        self._count[entries] = self._count[last]

    def _append(self, clients: Int64, part: int) -> None:
        self._overwrite(self.graph.listed.offsets[clients] + self._length[clients], part)
        self._length[clients] += 1
