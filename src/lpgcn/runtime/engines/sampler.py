"""The samples of a data set, as a data centre that has everything draws them."""

from __future__ import annotations

import numpy as np

from lpgcn.config import Config
from lpgcn.data import Interactions
from lpgcn.model.batches import Batch, Batches
from lpgcn.model.loss import Pairs
from lpgcn.model.sampling import (
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
from lpgcn.ragged import Int64


class Sampler:
    """Draws the batches of some members, or of everybody, and the virtual items that negatives keep
    clear of. Rows are by rank among the members."""

    def __init__(self, train: Interactions, config: Config, members: Int64 | None = None) -> None:
        self._seed, self._n_items = config.seed, train.n_items
        self._members = np.arange(train.n_users) if members is None else members
        self.real = train.by_user if members is None else train.by_user.only(members)
        if not self.real.lengths.all():
            nobody = int(self._members[np.flatnonzero(self.real.lengths == 0)[0]])
            raise SamplingError(
                f"user {nobody} (by index) has no training items, so no positive can be drawn; "
                "leave such users out of the data"
            )
        self.catalogue = catalogue(config.seed, train.n_items)
        count, ratio = config.alpha
        self.virtual = virtual_items(
            config.seed,
            self._members,
            self.real,
            train.n_items,
            VirtualItems(count, ratio, config.virtual_draw),
            train.item_degrees.astype(np.float64),
        )
        listed = union(self.real, self.virtual, train.n_items)
        self.listed_places = renumbered(listed, places(self.catalogue))
        """What each member lists, real or virtual, by place in the catalogue."""
        self.batches = Batches(
            config.seed,
            config.batch_size,
            len(self.real.values),
            len(self._members),
            train.n_items,
            listing_keys(self.listed_places, train.n_items),
        )

    def pairs(self, batch: Batch) -> Pairs:
        """With everybody's positives. These are called by their ids, a negative by n_items + its
        place."""
        real, members, n_items = self.real, batch.users, self._n_items
        ranks = positive_ranks(self._seed, batch.epoch, batch.positions, real.lengths[members])
        positives = real.values[real.offsets[members] + ranks]
        users = self._members[members]
        return Pairs.from_samples(users, positives, n_items + batch.negatives, 2 * n_items)
