"""A data set in its three parts, and the seeded split that makes them."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lpgcn.data.errors import DataError
from lpgcn.data.ids import Ids
from lpgcn.data.interactions import Interactions
from lpgcn.random import Purpose, words

Int64 = npt.NDArray[np.int64]
Ratio = tuple[float, float, float]


@dataclass(frozen=True, eq=False)
class Split:
    """Train, validation and test interactions over the same users and items."""

    name: str
    train: Interactions
    valid: Interactions
    test: Interactions
    user_ids: Ids
    item_ids: Ids

    def __post_init__(self) -> None:
        size = (len(self.user_ids), len(self.item_ids))
        if any((part.n_users, part.n_items) != size for part in self.parts.values()):
            raise ValueError(f"every part of a split has {size[0]} users and {size[1]} items")

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    @property
    def parts(self) -> dict[str, Interactions]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of the ids and of the sorted pairs of each part.

        An index is the rank of an external id, so the order of lines in a file, its format and its
        name have no influence, and any other pair, id, or size of the catalogue gives another one.
        """
        digest = hashlib.sha256(b"lpgcn split 1")
        for ids in (self.user_ids, self.item_ids):
            encoded = ids.encoded()
            digest.update(b"%d:%b" % (len(encoded), encoded))
        for part in self.parts.values():
            digest.update(b"%d:" % len(part))
            digest.update(np.stack((part.users, part.items)).astype("<i8").tobytes())
        return digest.hexdigest()


def ratio_split(
    interactions: Interactions, ratio: Ratio, seed: int
) -> tuple[Interactions, Interactions, Interactions]:
    """Train, validation and test parts: of each user's items these shares, in a random order.

    Of |I_u| items round(share · |I_u|) are held out for test, then for validation, halves rounded
    up, but one item always stays in training. A user's order comes from random words of its own,
    one for each of its items in ascending order, so no other user has an influence on it.
    """
    check_ratio(ratio)
    degree = interactions.user_degrees
    n_test = np.minimum(_share(ratio[2], degree), np.maximum(degree - 1, 0))
    n_valid = np.minimum(_share(ratio[1], degree), np.maximum(degree - 1, 0) - n_test)
    rank = _random_ranks(interactions, seed)
    user = interactions.users
    is_test = rank < n_test[user]
    is_valid = ~is_test & (rank < (n_test + n_valid)[user])

    def part(chosen: npt.NDArray[np.bool_]) -> Interactions:
        return Interactions(
            user[chosen], interactions.items[chosen], interactions.n_users, interactions.n_items
        )

    return part(~is_test & ~is_valid), part(is_valid), part(is_test)


def check_ratio(ratio: Ratio) -> None:
    """Shares of train, validation and test: not negative, train not zero, together 1."""
    if not (ratio[0] > 0 and min(ratio) >= 0 and math.isclose(sum(ratio), 1, abs_tol=1e-6)):
        raise DataError(
            f"the split ratio {ratio} is not usable: give three shares for train, validation and "
            "test that add up to 1, the first above 0, such as 0.8, 0.1, 0.1"
        )


def _share(share: float, degree: Int64) -> Int64:
    rounded: Int64 = np.floor(share * degree + 0.5).astype(np.int64)
    return rounded


def _random_ranks(interactions: Interactions, seed: int) -> Int64:
    """For each pair its rank in the random order of its user's items.

    Users of similar degree draw together, so that no more than twice the needed words are drawn.
    """
    offsets, degree = interactions.by_user.offsets, interactions.user_degrees
    word = np.empty(len(interactions), dtype=np.uint64)
    size_class = np.frexp(degree)[1]
    for size in np.unique(size_class[degree > 0]):
        users = np.flatnonzero(size_class == size)
        drawn = words(seed, Purpose.SPLIT, users, count=int(degree[users].max()))
        position = np.arange(drawn.shape[1])
        used = position < degree[users][:, None]
        word[(offsets[users][:, None] + position)[used]] = drawn[used]
    order = np.lexsort((word, interactions.users))
    rank = np.empty(len(interactions), dtype=np.int64)
    rank[order] = np.arange(len(interactions)) - offsets[interactions.users]
    return rank
