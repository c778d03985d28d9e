"""The public part of a step: whose samples it is about, and their negatives.

A server draws this, and a data centre draws the same; each user's positives are its own to draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.config import Config
from lpgcn.model.backbones import backbone_of
from lpgcn.model.sampling import batch_users, listing_keys, negative_places
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, integers, permutation

SMALLEST_GROUP: Final = 32
"""Of clients, for any d."""


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


@dataclass(frozen=True)
class UserBatches:
    """A step is a round of some users, each with as many samples as it has items: how the federated
    methods that we are compared with take turns. An epoch has everybody once."""

    seed: int
    users_a_round: int
    list_sizes: Int64
    """|I_u|."""
    n_items: int
    listed_keys: Int64
    """As in `Batches`."""

    @property
    def steps(self) -> int:
        return -(-len(self.list_sizes) // self.users_a_round)

    @property
    def total(self) -> int:
        """Samples an epoch."""
        return int(self.list_sizes.sum())

    @property
    def most_samples(self) -> int:
        """Of any round."""
        return int(np.sort(self.list_sizes)[-self.users_a_round :].sum())

    def round_of(self, epoch: int, step: int) -> Int64:
        """The users of a round, ascending."""
        order = permutation(self.seed, Purpose.ROUND, len(self.list_sizes), epoch)
        return np.sort(order[step * self.users_a_round : (step + 1) * self.users_a_round])

    def draw(self, epoch: int, step: int) -> Batch:
        """Samples are known by the places of all interactions, user by user."""
        chosen = self.round_of(epoch, step)
        every = Ragged.from_lengths(self.list_sizes, np.arange(self.total))
        own = every.only(chosen)
        users = chosen[own.rows]
        negatives = negative_places(
            self.seed, epoch, own.values, users, self.listed_keys, self.n_items
        )
        return Batch(epoch, own.values, users, negatives)


@dataclass(frozen=True)
class PooledBatch:
    """Everybody with all of its items, against the pool of its group."""

    epoch: int
    size: int
    """All interactions, or none where the epoch is over."""
    group: Int64
    """Of every client."""
    pools: Ragged
    """For each group the places of its negatives, all different, in the order of their draw."""
    answered: int
    """How many of each pool, the first ones, the clients answer about."""

    @property
    def answers(self) -> Ragged:
        """The first places of every pool."""
        return self.pools.where(self.pools.ranks < self.answered)


AnyBatch = Batch | PooledBatch


@dataclass(frozen=True)
class PooledBatches:
    """A step an epoch. A pool is drawn from what the server sees, how many clients list a place,
    and tells no more than that."""

    seed: int
    total: int
    group: Int64
    negatives: int
    answers: int
    listed: Int64
    """For every place how many clients list it."""

    @property
    def steps(self) -> int:
        return 1

    def draw(self, epoch: int, step: int) -> PooledBatch:
        groups = int(self.group.max()) + 1
        pools = Ragged.from_arrays([self._pool(epoch, group) for group in range(groups)])
        size = self.total if step == 0 else 0
        return PooledBatch(epoch, size, self.group, pools, self.answers)

    @cached_property
    def _cumulative(self) -> Int64:
        return np.cumsum(self.listed)

    def _pool(self, epoch: int, group: int) -> Int64:
        """Different places: every other draw by how many list a place, the others uniform."""
        drawn = first = np.empty(0, dtype=np.int64)
        while len(first) < self.negatives:
            draws = np.arange(len(drawn), len(drawn) + 2 * self.negatives)
            drawn = np.concatenate((drawn, self._draws(draws, epoch, group)))
            first = np.unique(drawn, return_index=True)[1]
        return drawn[np.sort(first)[: self.negatives]]

    def _draws(self, draws: Int64, epoch: int, group: int) -> Int64:
        places, total = len(self.listed), int(self._cumulative[-1])
        by_lists = draws % 2 == 0
        bounds = np.where(by_lists, total, places)
        drawn = integers(self.seed, Purpose.POOL, draws, bounds, epoch, draw=group)
        return np.where(by_lists, np.searchsorted(self._cumulative, drawn, side="right"), drawn)


def batches_of(
    config: Config, total: int, listed: Ragged, n_items: int, term: int = 0
) -> Batches | PooledBatches:
    """For the members of a term, with these lists of places, who have `total` interactions."""
    if config.pooled:
        return PooledBatches(
            config.seed,
            total,
            groups(config, len(listed), term),
            *pool_sizes(config, n_items),
            np.bincount(listed.values, minlength=n_items),
        )
    return Batches(
        config.seed,
        total if config.batch_size == "full" else config.batch_size,
        total,
        len(listed),
        n_items,
        np.sort(listing_keys(listed, n_items)),
    )


def pool_sizes(config: Config, n_items: int) -> tuple[int, int]:
    """How many negatives a pool has, and about how many of these a client answers."""
    negatives = min(config.negatives, n_items)
    return negatives, min(config.answers or negatives, negatives)


def weighted(answers: Int64, sizes: tuple[int, int]) -> Float64:
    """Answers about some of the negatives of a pool, as if they were about all."""
    negatives, answered = sizes
    return answers.astype(np.float64) * (negatives / answered)


def smallest_group(config: Config) -> int:
    """Among how many clients what each one says is hidden, if there are so many at all.

    Answers are slopes times directions of d numbers, as many as a final vector has. In a sum over d
    users or fewer, their directions are the shortest vectors of a lattice that the sum gives away.
    """
    return max(SMALLEST_GROUP, 2 * backbone_of(config).final_dim)


def group_count(config: Config, n_clients: int) -> int:
    """As many as are asked for, if each has clients enough."""
    return max(1, min(config.groups, n_clients // smallest_group(config)))


def groups(config: Config, n_clients: int, term: int = 0) -> Int64:
    """The group of every client, at random, of about equal sizes; other ones in every term, so
    that, where there are several, two sums do not differ by one client alone."""
    count = group_count(config, n_clients)
    group = np.empty(n_clients, dtype=np.int64)
    group[permutation(config.seed, Purpose.GROUP, n_clients, term)] = (
        np.arange(n_clients) * count // max(1, n_clients)
    )
    return group
