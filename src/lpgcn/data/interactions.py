"""Interactions: a set of (user, item) pairs in dense indices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Int64
from lpgcn.ragged import Ragged


@dataclass(frozen=True, eq=False)
class Interactions:
    """Pairs (users[r], items[r]), sorted by user and then item, each once.

    Users are 0 … n_users - 1 and items 0 … n_items - 1; some may have no pair here. Make it with
    `from_pairs`, which brings any pairs into this form.
    """

    users: Int64
    items: Int64
    n_users: int
    n_items: int

    @classmethod
    def from_pairs(
        cls, users: npt.ArrayLike, items: npt.ArrayLike, n_users: int, n_items: int
    ) -> Interactions:
        """The pairs in any order; those that come more than once are merged."""
        user = np.asarray(users, dtype=np.int64).reshape(-1)
        item = np.asarray(items, dtype=np.int64).reshape(-1)
        if user.size != item.size:
            raise ValueError(f"{user.size} users and {item.size} items do not make pairs")
        for indices, bound in ((user, n_users), (item, n_items)):
            if indices.size and not (indices.min() >= 0 and indices.max() < bound):
                raise ValueError(f"an index is outside [0, {bound})")
        key = user * n_items + item
        if bool((key[1:] <= key[:-1]).any()):
            key.sort()  # np.unique takes fifty times as long on ten million pairs.
            is_first = np.concatenate(([True], key[1:] != key[:-1]))
            user, item = np.divmod(key[is_first], n_items)
        return cls(user, item, n_users, n_items)

    def merged(self, other: Interactions) -> Interactions:
        """The pairs of either, of the same users and items."""
        return Interactions.from_pairs(
            np.concatenate((self.users, other.users)),
            np.concatenate((self.items, other.items)),
            self.n_users,
            self.n_items,
        )

    def __len__(self) -> int:
        return self.users.size

    @cached_property
    def keys(self) -> Int64:
        """One ascending number for each pair, user · n_items + item."""
        return self.users * self.n_items + self.items

    @cached_property
    def by_user(self) -> Ragged:
        """I_u for every user, ascending."""
        return Ragged.from_lengths(np.bincount(self.users, minlength=self.n_users), self.items)

    @cached_property
    def by_item(self) -> Ragged:
        """U_i for every item, ascending."""
        return Ragged.from_pairs(self.items, self.users, self.n_items)

    def items_of(self, user: int) -> Int64:
        """I_u, ascending."""
        return self.by_user[user]

    @property
    def user_degrees(self) -> Int64:
        """|I_u| for every user."""
        return self.by_user.lengths

    @cached_property
    def item_degrees(self) -> Int64:
        """|U_i| for every item."""
        return np.bincount(self.items, minlength=self.n_items)

    @cached_property
    def edge_weights(self) -> npt.NDArray[np.float64]:
        """(|I_u||U_i|)^-½ for every pair, by which LightGCN's sums are weighted (Eqs. 1 and 2)."""
        product = self.user_degrees[self.users] * self.item_degrees[self.items]
        return 1 / np.sqrt(product.astype(np.float64))
