"""The samples of a data set, as a data centre that has everything draws them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.data import Interactions
from lpgcn.model.batches import Batch, PooledBatches, UserBatches, batches_of
from lpgcn.model.losses.bpr import Pairs
from lpgcn.model.sampling import (
    NO_ITEMS,
    SamplingError,
    VirtualItems,
    catalogue,
    listing_keys,
    places,
    positive_ranks,
    renumbered,
    union,
    virtual_items,
)
from lpgcn.ragged import Ragged


@dataclass(frozen=True)
class Group:
    """Users with a pool of negatives."""

    users: Int64
    entries: Int64
    """Of `Sampler.real`."""
    positives: Ragged


class Sampler:
    """Draws the batches of some members, or of everybody, and the virtual items that negatives keep
    clear of. Rows are by rank among the members."""

    def __init__(
        self,
        train: Interactions,
        config: Config,
        members: Int64 | None = None,
        term: int = 0,
        *,
        users_a_round: int | None = None,
    ) -> None:
        """With `users_a_round`, steps are rounds of so many users."""
        self._seed, self._n_users, self._n_items = config.seed, train.n_users, train.n_items
        self.members = np.arange(train.n_users) if members is None else members
        self.real = train.by_user if members is None else train.by_user.only(members)
        if not self.real.lengths.all():
            without = int(np.count_nonzero(self.real.lengths == 0))
            raise SamplingError(NO_ITEMS.format(f"{without:,} of {len(self.members):,} users"))
        self.catalogue = catalogue(config.seed, train.n_items)
        self.virtual = virtual_items(
            config.seed,
            self.members,
            self.real,
            train.n_items,
            VirtualItems.of(config),
            train.item_degrees.astype(np.float64),
        )
        listed = union(self.real, self.virtual, train.n_items)
        self.listed_places = renumbered(listed, places(self.catalogue))
        """What each member lists, real or virtual, by place in the catalogue."""
        self.batches = (
            batches_of(config, len(self.real.values), self.listed_places, train.n_items, term)
            if users_a_round is None
            else UserBatches(
                config.seed,
                users_a_round,
                self.real.lengths,
                train.n_items,
                np.sort(listing_keys(self.listed_places, train.n_items)),
            )
        )

    @cached_property
    def item_ids(self) -> Int64:
        """Of what `pairs` calls items."""
        return np.concatenate((np.arange(self._n_items), self.catalogue))

    @cached_property
    def positives(self) -> tuple[Ragged, Ragged]:
        """For every user its items, and for every item its users, among the members: what the loss
        is about, also where an item stays out of the exchange."""
        lengths = np.zeros(self._n_users, dtype=np.int64)
        lengths[self.members] = self.real.lengths
        by_user = Ragged.from_lengths(lengths, self.real.values)
        return by_user, by_user.transposed(self._n_items)

    @cached_property
    def order_by_item(self) -> Int64:
        """The entries of `real` in the order of their items."""
        return np.argsort(self.real.values, kind="stable")

    @cached_property
    def groups(self) -> list[Group]:
        """Those who share a pool of negatives, if there are pools."""
        assert isinstance(self.batches, PooledBatches)
        every, group = (
            Ragged(self.real.offsets, np.arange(len(self.real.values))),
            self.batches.group,
        )
        found = []
        for one in range(int(group.max()) + 1):
            ranks = np.flatnonzero(group == one)
            entries = every.only(ranks)
            positives = Ragged(entries.offsets, self.real.values[entries.values])
            found.append(Group(self.members[ranks], entries.values, positives))
        return found

    def pairs(self, batch: Batch) -> Pairs:
        """With everybody's positives. These are called by their ids, a negative by n_items + its
        place."""
        real, members, n_items = self.real, batch.users, self._n_items
        ranks = positive_ranks(self._seed, batch.epoch, batch.positions, real.lengths[members])
        positives = real.values[real.offsets[members] + ranks]
        users = self.members[members]
        return Pairs.from_samples(users, positives, n_items + batch.negatives, 2 * n_items)
