"""A client's own node: its user, its interactions and its virtual items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from lpgcn.array_types import Bits, Int64
from lpgcn.config import Config
from lpgcn.model.adam import Adam
from lpgcn.model.backbones import backbone_of
from lpgcn.model.dense import nodes_of
from lpgcn.model.features import Features
from lpgcn.model.initial import initial_tables
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.sampling import VirtualItems, positive_ranks, virtual_items
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.client.standing import Standing
from lpgcn.protocol.client.wishes import Drawn
from lpgcn.protocol.fan import FANS
from lpgcn.protocol.suite import SUITES
from lpgcn.protocol.wire.sizes import NO_WISH
from lpgcn.ragged import Ragged


def draw_virtual_items(about: Profile, real: Int64) -> Int64:
    """I'_u (Algorithm 2, line 10): what this user has listed before, and new ones for the rest."""
    how, before = VirtualItems.of(about.config), about.items("virtual")
    (alpha,) = how.alpha(np.array([len(real)]), about.n_items)
    before = before[~np.isin(before, real)][:alpha]
    new = virtual_items(
        about.private_seed,
        np.array([about.index]),
        Ragged.single(np.sort(np.concatenate((real, before)))),
        about.n_items,
        replace(how, count=int(alpha) - len(before), ratio=0.0, list_sizes="exact"),
        np.frombuffer(about.popularity) if about.popularity else None,
    ).values
    return np.concatenate((before, new))


@dataclass(frozen=True)
class Listing:
    """What this client uploaded, and where each item of it is computed."""

    real: Int64
    """I_u, ascending."""
    uploaded: Int64
    """I_u ∪ I'_u in the order of the tokens."""
    places: Int64
    owned_rows: Int64
    """For every uploaded item its row among the items that this client owns, or -1."""

    @classmethod
    def of(cls, real: Int64, uploaded: Int64, places: Int64, owned: Int64) -> Listing:
        """`owned` are the places that this client owns, rising."""
        rows = np.full(len(places), -1, dtype=np.int64)
        if len(owned):
            near = np.searchsorted(owned, places).clip(max=len(owned) - 1)
            rows = np.where(owned[near] == places, near, -1)
        return cls(real, uploaded, places, rows)

    @classmethod
    def from_standing(cls, about: Profile, standing: Standing) -> Listing:
        uploaded, places, owned = map(standing.numbers, ("uploaded", "places", "owned"))
        return cls.of(about.items("train"), uploaded, places, owned)

    @property
    def is_real(self) -> Bits:
        return np.isin(self.uploaded, self.real, assume_unique=True)

    @property
    def elsewhere(self) -> Int64:
        """The uploaded items that others own, by their positions."""
        return np.flatnonzero(self.owned_rows < 0)

    @property
    def really_owned(self) -> Int64:
        """The rows of the owned items that this client's user really has."""
        return np.sort(self.owned_rows[(self.owned_rows >= 0) & self.is_real])


class User:
    """The user node. Rows that arrive are what the owners of its items pushed; the last one is what
    this client pushes to itself."""

    def __init__(
        self, about: Profile, listing: Listing, asked: Ragged, tables: dict[str, Adam] | None,
        in_all: int, features: Features | None = None,
    ) -> None:  # fmt: skip
        """`asked` has for each owner the positions of the items that it asked about; without
        `tables` the parameters are drawn. There are `in_all` nodes in the federation."""
        config, real = about.config, listing.real
        self._seed, self.n_real = about.private_seed, len(real)
        self._asked_counts = asked.lengths.tolist()
        is_real = listing.is_real
        by_id = np.argsort(listing.uploaded, kind="stable")
        self._position_of_real = by_id[is_real[by_id]].tolist()
        """For each of I_u, ascending, its position in the uploaded list."""
        self.real_places = listing.places[self._position_of_real]
        owner = np.full(len(listing.uploaded), len(asked), dtype=np.int64)
        owner[asked.values] = asked.rows
        number = listing.owned_rows.copy()
        number[asked.values] = asked.ranks
        self._where = list(zip(owner.tolist(), number.tolist(), strict=True))
        """For each position the owner, and its number there; for what it owns itself, the row."""
        fan = FANS[SUITES[config.suite].owner_push]
        added = fan.added(len(asked), is_real[listing.elsewhere])
        self.n_arriving = len(added)
        rows = np.append(np.flatnonzero(added), self.n_arriving)
        name = f"the user of {about.name}"
        self.nodes = nodes_of(
            name, np.array([len(real)]), Ragged.single(rows), config, Plain(), in_all=in_all,
            features=features,
        )  # fmt: skip
        self.tables = own_tables(about, config) if tables is None else tables

    def draw(self, epoch: int, positions: Int64) -> Drawn:
        """The positives of some samples (Algorithm 9), each of them wished for at its owner.

        Lists, since they are short: a client has a handful of samples in a batch.
        """
        sizes = np.full(len(positions), self.n_real)
        ranks = positive_ranks(self._seed, epoch, positions, sizes).tolist()
        drawn = [self._position_of_real[rank] for rank in ranks]
        distinct = {position: number for number, position in enumerate(dict.fromkeys(drawn))}
        slots = [min(asked, len(positions)) for asked in self._asked_counts]
        following = list(accumulate(slots[:-1], initial=0)) if slots else []
        wishes = [NO_WISH] * sum(slots)
        own, own_rows, wished, slot = [], [], [], []
        for position, number in distinct.items():
            owner, at_owner = self._where[position]
            if owner == len(following):
                own.append(number)
                own_rows.append(at_owner)
                continue
            wishes[following[owner]] = at_owner
            wished.append(number)
            slot.append(following[owner])
            following[owner] += 1
        positive = np.array([distinct[position] for position in drawn])
        return Drawn(positive, len(distinct), own, own_rows, wished, slot, slots, wishes)

    @cached_property
    def everything(self) -> Drawn:
        """All of its items, each in the slot that it has at its owner."""
        begins = list(accumulate(self._asked_counts, initial=0))
        where = [self._where[position] for position in self._position_of_real]
        here = len(self._asked_counts)
        own = [number for number, (owner, _) in enumerate(where) if owner == here]
        wished = [number for number, (owner, _) in enumerate(where) if owner != here]
        return Drawn(
            positive=np.arange(len(where)),
            count=len(where),
            own=own,
            own_rows=[where[number][1] for number in own],
            wished=wished,
            slot=[begins[where[number][0]] + where[number][1] for number in wished],
            slots=self._asked_counts,
            wishes=[],
        )


def own_tables(about: Profile, config: Config) -> dict[str, Adam]:
    """The parameters of the user: e_u^(0), or none if users are built."""
    return initial_tables(
        backbone_of(config).held("users"),
        about.private_seed,
        np.array([about.index]),
        table_rows=about.n_users,
        config=config,
        kernels=Plain(),
    )
