"""Copies of items' states, sealed to heirs, and how they come to the items' new owners.

The server keeps them and reads none of them. In a new term it asks one who can open a copy, the
former owner itself if it is still there, to seal what is needed to each new owner.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.errors import LpgcnError
from lpgcn.protocol.ledger import Ledger
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.server.script import Script, inner_offsets
from lpgcn.protocol.server.topology import Topology
from lpgcn.protocol.wire.fields import Packed, Round, Stored, Stores, TableRows
from lpgcn.protocol.wire.reading import NUMBER_BYTES
from lpgcn.protocol.wire.sizes import HEIRS, SEALED_KEY_BYTES
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, integers


class LostItemsError(LpgcnError):
    """Everybody who could open the copy of some items' state is gone."""


def draw_heirs(topology: Topology) -> Ragged:
    """For an owner itself and some others at random, by rank; for anybody else nobody."""
    owners, others = np.flatnonzero(topology.is_owner), topology.n_clients - 1
    chosen = [owners]
    for number in range(min(HEIRS, others)):
        drawn = integers(topology.seed, Purpose.HEIR, owners, others - number, draw=number)
        # A number among those who are left becomes one among all, by stepping over the chosen.
        for before in np.sort(np.stack(chosen), axis=0):
            drawn = drawn + (drawn >= before)
        chosen.append(drawn)
    each = np.where(topology.is_owner, len(chosen), 0)
    return Ragged.from_lengths(each, np.stack(chosen, axis=1).reshape(-1))


@dataclass(frozen=True, eq=False)
class FormerTerm:
    """A term that is over, as its last checkpoint has it."""

    term: int
    run: bytes
    members: Int64
    topology: Topology
    heirs: Ragged
    number: int
    """Of the checkpoint."""
    estates: list[bytes]
    keys: list[bytes]
    ledger: Ledger

    def openers(self, members: Int64) -> tuple[Int64, Int64]:
        """For every former owner the rank of a present member who can open its copy, and the number
        of the key that is sealed to it: the owner itself, if it is still there."""
        rank = {number: rank for rank, number in enumerate(members.tolist())}
        heir, key = np.full(len(self.members), -1), np.full(len(self.members), -1)
        owners = np.flatnonzero(self.topology.is_owner).tolist()
        for owner in owners:
            for number, one in enumerate(self.members[self.heirs[owner]].tolist()):
                if one in rank:
                    heir[owner], key[owner] = rank[one], self.heirs.offsets[owner] + number
                    break
        if lost := [owner for owner in owners if heir[owner] < 0]:
            items = int(self.topology.owned.lengths[lost].sum())
            names = ", ".join(str(self.members[owner]) for owner in lost[:5])
            raise LostItemsError(
                f"the state of {items} items is lost: their owners (clients {names}"
                f"{', …' if len(lost) > 5 else ''}) and all heirs of these are gone; bring one of "
                "them back, or begin a new run"
            )
        return heir, key


class Inheritance:
    """Who gets what from whom, between two terms."""

    def __init__(
        self, former: FormerTerm, members: Int64, topology: Topology, script: Script
    ) -> None:
        self._former, self._topology, self._script = former, topology, script
        old, new = former.topology.owner, topology.owner
        moved = np.flatnonzero(former.members[old] != members[new])
        heir, key = former.openers(members)
        estate, receiver = old[moved], new[moved]
        order = np.lexsort((moved, receiver, estate, heir[estate]))
        self._places, estate, receiver = moved[order], estate[order], receiver[order]
        together = estate * topology.n_clients + receiver
        first = np.flatnonzero(np.append(True, together[1:] != together[:-1])[: len(together)])
        self._bundle = Ragged(np.append(first, len(moved)), self._places)
        """For each bundle its places."""
        self._estate, self._receiver = estate[first], receiver[first]
        self._heir, self._key = heir[self._estate], key[self._estate]

    @property
    def needed(self) -> bool:
        return len(self._places) > 0

    def stores(self) -> Stores:
        return {"former estates": self._former.estates, "former keys": self._former.keys}

    def rounds(self) -> list[Round]:
        """INHERIT and ENDOW."""
        topology, former, script = self._topology, self._former, self._script
        n, count = topology.n_clients, len(self._estate)
        each, besides = script.package
        sizes = each * self._bundle.lengths + besides
        by_heir = Ragged.from_rows(self._heir, np.arange(count), n)
        first = np.flatnonzero(np.append(True, np.diff(self._estate) != 0)[:count])
        opened = Ragged.from_rows(self._heir[first], first, n)
        """For an heir the first bundle of each estate that it opens."""
        owned = former.topology.owned.lengths
        number = np.repeat(opened.ranks, np.diff(np.append(first, count)))
        by_receiver = np.argsort(self._receiver, kind="stable")
        gets = Ragged.from_rows(self._receiver[by_receiver], by_receiver, n)
        arrives = self._bundle.only(gets.values)
        estates = Ragged(opened.offsets, self._estate[opened.values])
        inherit = Round(
            Phase.INHERIT,
            np.unique(self._heir),
            {
                "number": Stored("number", NUMBER_BYTES),
                "keys": TableRows(
                    "former keys", len(former.keys),
                    Ragged(opened.offsets, self._key[opened.values]), SEALED_KEY_BYTES,
                ),
                "estates": TableRows(
                    "former estates", len(owned), estates, script.estate_sizes(owned)
                ),
                "counts": Packed(Ragged(opened.offsets, owned[estates.values])),
                "bundles": Packed(Ragged(by_heir.offsets, number)),
                "receivers": script.entries(Ragged(by_heir.offsets, self._receiver)),
                "offsets": Packed(inner_offsets(by_heir, self._bundle)),
                "rows": Packed(
                    Ragged(
                        self._bundle.offsets[by_heir.offsets],
                        former.topology.owned_row[self._places],
                    )
                ),
            },
            {"packages": TableRows("packages", count, by_heir, sizes)},
        )  # fmt: skip
        endow = Round(
            Phase.ENDOW,
            np.unique(self._receiver),
            {
                "packages": TableRows("packages", count, gets, sizes),
                "counts": Packed(Ragged(gets.offsets, self._bundle.lengths[gets.values])),
                "rows": Packed(
                    Ragged(arrives.offsets[gets.offsets], topology.owned_row[arrives.values])
                ),
            },
            {},
        )
        return [inherit, endow]
