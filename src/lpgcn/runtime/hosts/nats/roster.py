"""Which client has which index in the federation."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from lpgcn.errors import LpgcnError
from lpgcn.files import write_atomically
from lpgcn.runtime.hosts.nats.frames import Offer

LARGEST: Final = 1 << 31
"""Numbers of clients have 32 bits in a message."""


class RosterError(LpgcnError):
    """A roster file that cannot be read."""


class _Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    name: str
    number: int
    index: int


class _RosterFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    clients: list[_Entry]


class Roster:
    """(name of the carrier, number in it) → index in the federation, for ever."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._indices: dict[tuple[str, int], int] = {}
        if path.exists():
            try:
                entries = msgspec.json.decode(path.read_bytes(), type=_RosterFile).clients
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise RosterError(f"{path} is not a roster: {error}") from error
            self._indices = {(entry.name, entry.number): entry.index for entry in entries}
        if len(set(self._indices.values())) != len(self._indices):
            raise RosterError(f"{path} gives an index to two clients; restore it from a copy")

    def names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self._indices)

    def indices(self) -> dict[tuple[str, int], int]:
        """A copy."""
        return dict(self._indices)

    def assign_all(self, name: str, offers: Iterable[Offer]) -> dict[int, int]:
        """Number → index; the file is written before anybody knows, this roster included."""
        offers = list(offers)
        new = [offer for offer in offers if (name, offer.number) not in self._indices]
        if new:
            indices = self._with(name, new)
            entries = [_Entry(*key, index) for key, index in indices.items()]
            content = msgspec.json.format(msgspec.json.encode(_RosterFile(entries)), indent=0)
            write_atomically(self._path, content, mode=0o600)
            self._indices = indices
        return {offer.number: self._indices[name, offer.number] for offer in offers}

    def _with(self, name: str, new: Iterable[Offer]) -> dict[tuple[str, int], int]:
        """All indices and those of new clients."""
        indices, taken = dict(self._indices), set(self._indices.values())
        free = (index for index in itertools.count() if index not in taken)
        # Who has a wish comes first, so that nobody without one takes what is wished for.
        for offer in sorted(new, key=lambda offer: (offer.wish is None, offer.number)):
            index = offer.wish
            if index is None or not 0 <= index < LARGEST or index in taken:
                index = next(free)
            indices[name, offer.number] = index
            taken.add(index)
        return indices
