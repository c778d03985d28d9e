"""Who carries which clients, and who of them is silent: what a server tells about its members."""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import Final

_NAMED = 3


GOOD_PART: Final = 10


def worth_telling(present: int, told: int, wanted: int) -> bool:
    """Whether so many members are something new: all, the first count, or a good part more or less
    than was told."""
    return present == wanted or told < 0 or abs(present - told) * GOOD_PART >= wanted


class Roll:
    """Kept from the events of a switchboard, which come in another thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._clients: dict[str, frozenset[int]] = {}
        self._silent: set[str] = set()
        self._left: set[str] = set()

    def joined(self, name: str, indices: Iterable[int]) -> None:
        with self._lock:
            self._clients[name] = frozenset(indices)
            self._silent.discard(name)
            self._left.discard(name)

    def left(self, name: str) -> None:
        """Its clients are still known, so that it can be said who is missing."""
        with self._lock:
            self._silent.discard(name)
            self._left.add(name)

    def silent(self, name: str) -> None:
        with self._lock:
            self._silent.add(name)

    def back(self, name: str) -> None:
        with self._lock:
            self._silent.discard(name)

    @property
    def silent_clients(self) -> int:
        with self._lock:
            return sum(len(self._clients.get(name, ())) for name in self._silent)

    def carriers(self, indices: Iterable[int]) -> dict[str, int]:
        """Who carries these clients, and how many of them; clients never heard of are left out."""
        wanted = frozenset(indices)
        with self._lock:
            found = {name: len(clients & wanted) for name, clients in self._clients.items()}
        return {name: count for name, count in sorted(found.items()) if count}

    def said_goodbye(self, indices: Iterable[int]) -> bool:
        """All who carry these clients."""
        found = self.carriers(indices).keys()
        with self._lock:
            return bool(found) and found <= self._left

    def named(self, indices: Iterable[int]) -> str:
        """`host-1 (471 clients), host-2 (1 client)`; some names of many."""
        wanted = frozenset(indices)
        found = self.carriers(wanted)
        parts = [f"{name} ({clients(count)})" for name, count in list(found.items())[:_NAMED]]
        rest = len(wanted) - sum(list(found.values())[:_NAMED])
        return ", ".join(parts + ([f"{rest:,} more"] if parts else [clients(rest)]) * bool(rest))


def clients(count: int) -> str:
    return f"{count:,} client{'' if count == 1 else 's'}"
