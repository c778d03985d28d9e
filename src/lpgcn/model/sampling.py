"""What a training step is about: whose turn it is, which items are compared, which are virtual.

Everything here is drawn per entity (see `lpgcn.random`), so a client that draws for itself, a
server that draws negatives for it and a data centre that draws for all of them agree. A sample is
known by (epoch, position in the epoch). Its user is public; its positive is the client's own
draw; its negative is the server's, outside everything that the client *listed*, so that it says
nothing about which listed items are real.

The server must not learn item ids, so it knows items by their place in the *catalogue*: a secret
random order of the item ids, the same for everybody but the server.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Int64
from lpgcn.config import Config, ListSizes, VirtualDraw
from lpgcn.errors import LpgcnError
from lpgcn.model.cooccurrence import read_cooccurrence
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, integers, permutation, uniform

Popularity = npt.NDArray[np.float64]

_MOST_ATTEMPTS = 1 << 20
_FEW_ATTEMPTS = 64
"""After these it is looked up who listed everything: more would not help, and take minutes."""
_FIRST_SIZE = 8
"""Of bucketed lists; each one after it is half as large again."""
_COHERENT_DRAWS = 1 << 15
"""A list that is not full after so many is filled uniformly."""


class SamplingError(LpgcnError):
    """A sample that cannot be drawn: a user who listed everything has no negative, one without
    training items no positive."""


NO_ITEMS = "found no training items of {}, expected at least one each: nobody can draw a positive"
"""Says how many, and never who."""


def listing_keys(lists: Ragged, n_items: int) -> Int64:
    """user · n_items + item of every entry, ascending where the items of a user are."""
    return lists.rows * n_items + lists.values


def union(lists: Ragged, others: Ragged, n_items: int) -> Ragged:
    """What a user has in either, ascending; nobody has an item in both."""
    keys = np.concatenate((listing_keys(lists, n_items), listing_keys(others, n_items)))
    return _from_keys(keys, len(lists), n_items)


def renumbered(lists: Ragged, numbers: Int64) -> Ragged:
    """The same lists, ascending again, with item i called numbers[i]."""
    keys = lists.rows * len(numbers) + numbers[lists.values]
    return _from_keys(keys, len(lists), len(numbers))


def _from_keys(keys: Int64, n_rows: int, n_items: int) -> Ragged:
    """The lists with these keys, which come in any order. Sorting keys is quicker than pairs."""
    ascending = np.sort(keys)
    return Ragged.from_rows(ascending // n_items, ascending % n_items, n_rows)


def contains(keys: Int64, wanted: Int64) -> npt.NDArray[np.bool_]:
    """Which of `wanted` are among the ascending `keys`; looked up in order, for the cache."""
    order = np.argsort(wanted)
    place = np.empty_like(order)
    place[order] = np.searchsorted(keys, wanted[order])
    found = np.zeros(wanted.shape, dtype=np.bool_)
    inside = place < len(keys)
    found[inside] = keys[place[inside]] == wanted[inside]
    return found


@lru_cache(maxsize=2)
def catalogue(seed: int, n_items: int) -> Int64:
    """Item ids in the order of the catalogue: place p holds item catalogue[p].

    It is read-only and kept: an experiment asks for the same one at every client.
    """
    order = permutation(seed, Purpose.CATALOGUE_ORDER, n_items)
    order.flags.writeable = False
    return order


def places(order: Int64) -> Int64:
    """The inverse of a catalogue: item i is at place places[i]."""
    inverse = np.empty_like(order)
    inverse[order] = np.arange(len(order))
    return inverse


def batch_users(seed: int, epoch: int, positions: Int64, n_users: int) -> Int64:
    """The public users of some samples of an epoch: uniform, with replacement."""
    return integers(seed, Purpose.BATCH_USER, positions, n_users, epoch)


def positive_ranks(seed: int, epoch: int, positions: Int64, list_sizes: Int64) -> Int64:
    """Which of its own items, in the order of their ids, a user takes for each sample."""
    return integers(seed, Purpose.POSITIVE, positions, list_sizes, epoch)


def negative_places(
    seed: int, epoch: int, positions: Int64, rows: Int64, keys: Int64, n_items: int
) -> Int64:
    """For each sample a place in the catalogue, uniform outside what the user listed.

    `keys` are row · n_items + place of everything listed, ascending; `rows` the samples' users.
    Draw a of a sample is its a-th attempt; the first that is not listed counts.
    """
    chosen = np.empty(len(positions), dtype=np.int64)
    open_samples = np.arange(len(positions))
    for attempt in range(_MOST_ATTEMPTS):
        drawn = integers(
            seed, Purpose.NEGATIVE, positions[open_samples], n_items, epoch, draw=attempt
        )
        chosen[open_samples] = drawn
        open_samples = open_samples[contains(keys, rows[open_samples] * n_items + drawn)]
        if not len(open_samples):
            return chosen
        if attempt == _FEW_ATTEMPTS:
            first, last = (
                np.searchsorted(keys, (rows[open_samples] + n) * n_items) for n in (0, 1)
            )
            if (last - first == n_items).any():
                break
    raise SamplingError(
        f"found a user who listed (almost) all {n_items} items and so has no negative, which loss "
        "bpr takes from the others; leave such users out, draw fewer virtual items, or choose loss "
        "softmax"
    )


@dataclass(frozen=True)
class VirtualItems:
    """How many virtual items α a client draws, once for ever (Algorithm 2, line 10), and how."""

    count: int = 0
    ratio: float = 0.0
    """Added to `count`: this many times |I_u|, rounded up."""
    draw: VirtualDraw = "uniform"
    list_sizes: ListSizes = "exact"
    cooccurrence: str | None = None
    """The file of what goes together, for draw="coherent"."""

    @classmethod
    def of(cls, config: Config) -> VirtualItems:
        count, ratio = config.alpha
        return cls(count, ratio, config.virtual_draw, config.list_sizes, config.cooccurrence)

    def wanted(self, real: Int64) -> Int64:
        """So many per user were asked for, whether there are as many items or not."""
        wanted: Int64 = self.count + np.ceil(self.ratio * real).astype(np.int64)
        return wanted

    def alpha(self, real: Int64, n_items: int) -> Int64:
        """α per user. One item stays unlisted, so that there is always a negative."""
        wanted = self.wanted(real)
        if self.list_sizes == "bucketed":
            sizes = bucket_sizes(n_items)
            filled = sizes[np.searchsorted(sizes, np.minimum(real + wanted, sizes[-1]))]
            wanted = np.maximum(filled - real, 0)
        capped: Int64 = np.minimum(wanted, np.maximum(n_items - real - 1, 0))
        return capped


def bucket_sizes(n_items: int) -> Int64:
    """8, 12, 18, 27, …: the sizes that bucketed lists have. The tail is merged: who lists more than
    the last of them that is at most half of all items lists all but one."""
    sizes = [_FIRST_SIZE]
    while (larger := -(-sizes[-1] * 3 // 2)) <= n_items // 2:
        sizes.append(larger)
    return np.array([one for one in sizes if one < n_items - 1] + [max(n_items - 1, 1)])


def virtual_items(
    seed: int,
    users: Int64,
    real: Ragged,
    n_items: int,
    how: VirtualItems,
    popularity: Popularity | None = None,
) -> Ragged:
    """I'_u for the clients `users`, whose real items are the rows of `real`.

    Draws of a user are taken in their order; those that are real or drawn before are passed over.
    `popularity` is public: how often each item is taken, by item id, for draw="popularity". With
    draw="coherent" they are walks on a public list of what goes together (`model.cooccurrence`).
    """
    missing = how.alpha(real.lengths, n_items)
    taken = listing_keys(real, n_items)
    virtual: list[Int64] = [np.empty(0, dtype=np.int64)]
    cumulative = _cumulative(popularity, n_items) if how.draw == "popularity" else None
    together = None
    if how.draw == "coherent" and missing.any():
        together = read_cooccurrence(how.cooccurrence or "", n_items)
    first = 0
    while missing.any():
        rows = np.flatnonzero(missing)
        count = int(min(1 << 12, 2 * missing.max() + 8))
        points = uniform(seed, Purpose.VIRTUAL_ITEM, users[rows], first=first, count=count)
        drawn = (points * n_items).astype(np.int64)
        if cumulative is not None:
            drawn = np.searchsorted(cumulative, points, side="right")
        elif together is not None and first < _COHERENT_DRAWS:
            # By the number of the draw, not of the block: another user's list makes other blocks.
            walked = np.arange(first, first + count) < _COHERENT_DRAWS
            drawn = np.where(walked, together.drawn(seed, users[rows], points, first), drawn)
        first += count
        keys = rows[:, None] * n_items + drawn
        fresh = _first_occurrences(keys) & ~contains(taken, keys.reshape(-1)).reshape(keys.shape)
        fresh &= np.cumsum(fresh, axis=1) <= missing[rows, None]
        missing[rows] -= fresh.sum(axis=1)
        virtual.append(keys[fresh])
        taken = np.sort(np.concatenate((taken, virtual[-1])))
    return _from_keys(np.concatenate(virtual), len(real), n_items)


def _cumulative(popularity: Popularity | None, n_items: int) -> Popularity:
    """The distribution function over items. One extra count each keeps every item possible."""
    if popularity is None or len(popularity) != n_items:
        raise SamplingError(
            f"drawing virtual items by popularity needs one public number for each of the "
            f"{n_items} items; found {'none' if popularity is None else len(popularity)}"
        )
    total = np.cumsum(popularity + 1.0)
    return np.asarray(total[:-1] / total[-1])


def _first_occurrences(keys: Int64) -> npt.NDArray[np.bool_]:
    """Which entries of a (rows, draws) array, distinct between rows, are the first of their key."""
    first = np.zeros(keys.size, dtype=np.bool_)
    first[np.unique(keys.reshape(-1), return_index=True)[1]] = True
    return first.reshape(keys.shape)
