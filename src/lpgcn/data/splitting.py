"""Ways to hold interactions out: by ratio, the last one of every user, or everything after a date.

Whatever is drawn comes from random words of the user whose items they are, so no other user has an
influence on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Bits, Float64, Int64
from lpgcn.config import SplitName
from lpgcn.data.errors import DataError
from lpgcn.data.interactions import Interactions
from lpgcn.random import Purpose, words

Ratio = tuple[float, float, float]
Parts = tuple[Interactions, Interactions, Interactions]


@dataclass(frozen=True)
class Splitting:
    """How interactions that are in one piece are split, and which of them count."""

    by: SplitName = "ratio"
    ratio: Ratio = (0.8, 0.1, 0.1)
    """Of train, validation and test."""
    valid_ratio: float = 0.1
    """Of a ready-made training part without a validation part."""
    k_core: int = 1
    """Only users and items with so many interactions or more, among those that remain."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.by not in get_args(SplitName):
            known = ", ".join(get_args(SplitName))
            raise DataError(f"unknown way to split {self.by!r}; the ways are {known}")
        check_ratio(self.ratio)
        if not 0 <= self.valid_ratio < 1:
            raise DataError(
                f"the share {self.valid_ratio} of the training part is not usable for validation: "
                "give one from 0 to 1, such as 0.1"
            )
        if self.k_core < 1:
            raise DataError(f"the k-core of {self.k_core} is not usable: give 1 or more")

    def parts(self, interactions: Interactions, times: Float64 | None) -> Parts:
        """Train, validation and test."""
        if self.by == "ratio":
            return ratio_split(interactions, self.ratio, self.seed)
        if self.by == "leave-one-out":
            return leave_one_out(interactions, times, self.seed)
        if times is None:
            raise DataError(
                "a temporal split needs the time of every interaction, and none is known; say "
                "which column has it with --time-column (in Python Columns(time=…)), or choose "
                "another split"
            )
        return temporal_split(interactions, times, self.ratio)


def ratio_split(interactions: Interactions, ratio: Ratio, seed: int) -> Parts:
    """Of each user's items these shares, in a random order.

    Of |I_u| items round(share · |I_u|) are held out for test, then for validation, halves rounded
    up, but one item always stays in training.
    """
    check_ratio(ratio)
    degree = interactions.user_degrees
    n_test, n_valid = (np.floor(share * degree + 0.5).astype(np.int64) for share in ratio[:0:-1])
    return _held_out(
        interactions, _ranks(interactions, _words(interactions, seed)), n_test, n_valid
    )


def leave_one_out(interactions: Interactions, times: Float64 | None, seed: int) -> Parts:
    """Of each user's items the last is the test, the one before it the validation.

    By time, where it is known; of items of one time, and without times, a random one is the last.
    One item always stays in training: who has two has no validation, who has one has no test.
    """
    word = _words(interactions, seed)
    keys = (word,) if times is None else (word, -times)
    one = np.ones(interactions.n_users, dtype=np.int64)
    return _held_out(interactions, _ranks(interactions, *keys), one, one)


def temporal_split(interactions: Interactions, times: Float64, ratio: Ratio) -> Parts:
    """One date for everybody: the first of all interactions train, the last of them test.

    With T(s) the first time at or before which a share s of all interactions lies: training has
    t ≤ T(train), validation t ≤ T(train + valid), test the rest. So no model learns from what
    comes after what it is tested on (Ji et al., "A critical study on data leakage in recommender
    system offline evaluation", TOIS 2023).
    """
    check_ratio(ratio)
    ordered = np.sort(times)
    shares = np.array([ratio[0], ratio[0] + ratio[1]])
    last = np.ceil(shares * len(ordered) - 1e-9).astype(np.int64).clip(1, len(ordered))
    train_until, valid_until = ordered[last - 1]
    is_train, is_test = times <= train_until, times > valid_until
    return (
        only(interactions, is_train),
        only(interactions, ~is_train & ~is_test),
        only(interactions, is_test),
    )


def in_k_core(interactions: Interactions, k: int) -> Bits:
    """Which pairs remain when users and items with fewer than k are removed, again and again."""
    kept = np.full(len(interactions), True)
    while True:
        users, items = interactions.users[kept], interactions.items[kept]
        of_user = np.bincount(users, minlength=interactions.n_users)
        of_item = np.bincount(items, minlength=interactions.n_items)
        enough = (of_user[users] >= k) & (of_item[items] >= k)
        if enough.all():
            return kept
        kept[kept] = enough


def only(interactions: Interactions, chosen: Bits) -> Interactions:
    """Some of the pairs, over the same users and items."""
    return Interactions(
        interactions.users[chosen],
        interactions.items[chosen],
        interactions.n_users,
        interactions.n_items,
    )


def check_ratio(ratio: Ratio) -> None:
    """Shares of train, validation and test: not negative, train not zero, together 1."""
    if not (ratio[0] > 0 and min(ratio) >= 0 and math.isclose(sum(ratio), 1, abs_tol=1e-6)):
        raise DataError(
            f"the split ratio {ratio} is not usable: give three shares for train, validation and "
            "test that add up to 1, the first above 0, such as 0.8, 0.1, 0.1"
        )


def _held_out(interactions: Interactions, rank: Int64, n_test: Int64, n_valid: Int64) -> Parts:
    """The first of a user's ranks are tested, the next validated; one pair is always trained on."""
    user, spare = interactions.users, np.maximum(interactions.user_degrees - 1, 0)
    n_test = np.minimum(n_test, spare)
    n_valid = np.minimum(n_valid, spare - n_test)
    is_test = rank < n_test[user]
    is_valid = ~is_test & (rank < (n_test + n_valid)[user])
    return (
        only(interactions, ~is_test & ~is_valid),
        only(interactions, is_valid),
        only(interactions, is_test),
    )


def _words(interactions: Interactions, seed: int) -> npt.NDArray[np.uint64]:
    """A random word for each pair: of a user's own, one for each of its items in ascending order.

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
    return word


def _ranks(interactions: Interactions, *keys: npt.NDArray[np.generic]) -> Int64:
    """For each pair its rank among its user's, by the last of the keys first."""
    order = np.lexsort((*keys, interactions.users))
    rank = np.empty(len(interactions), dtype=np.int64)
    rank[order] = np.arange(len(interactions)) - interactions.by_user.offsets[interactions.users]
    return rank
