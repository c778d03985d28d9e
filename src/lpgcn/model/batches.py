"""The public part of a batch: whose samples they are, and their negatives.

A server draws this, and a data centre draws the same; each user's positives are its own to draw.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lpgcn.model.sampling import batch_users, negative_places
from lpgcn.ragged import Int64


@dataclass(frozen=True)
class Batch:
    """The samples of a step, as far as the server knows them."""

    epoch: int
    positions: Int64
    users: Int64
    negatives: Int64
    """For each sample the place of its negative."""

    @property
    def size(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class Batches:
    """An epoch has one sample for each of all real interactions, `total`."""

    seed: int
    batch_size: int
    total: int
    n_users: int
    n_items: int
    listed_keys: Int64
    """user · n_items + place of everything that is listed, ascending (see `listing_keys`)."""

    @property
    def steps(self) -> int:
        """Steps an epoch."""
        return -(-self.total // self.batch_size)

    def draw(self, epoch: int, step: int) -> Batch:
        """Users at random, and for each sample a negative outside what its user listed."""
        first = step * self.batch_size
        positions = np.arange(first, min(first + self.batch_size, self.total))
        users = batch_users(self.seed, epoch, positions, self.n_users)
        negatives = negative_places(
            self.seed, epoch, positions, users, self.listed_keys, self.n_items
        )
        return Batch(epoch, positions, users, negatives)
