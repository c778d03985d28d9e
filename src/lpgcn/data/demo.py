"""The built-in data set: generated, so that a demo or a test needs no download."""

from __future__ import annotations

from typing import Final

import numpy as np

from lpgcn.data.ids import Ids
from lpgcn.data.interactions import Interactions
from lpgcn.data.split import Split
from lpgcn.data.splitting import ratio_split
from lpgcn.random import Purpose, integers, uniform

_USERS: Final = 1000
_ITEMS: Final = 1500
_COMMUNITIES: Final = 20
_MEAN_DEGREE: Final = 60


def demo(seed: int = 0) -> Split:
    """1,000 users and 1,500 items in 20 communities of taste, 60,000 interactions.

    An item of popularity rank r has weight (r + 10)^-0.75, times 30 for users whose first community
    is the item's own, and times 10 for those whose second it is. A user takes n_u items without
    replacement by these weights w: the n_u smallest of -log(uniform) / w. Degrees n_u have a
    power-law tail, n_u ∝ (1 - uniform)^-½. It is split 80/10/10 per user.
    """
    users, items = np.arange(_USERS), np.arange(_ITEMS)
    tail = np.minimum((1 - uniform(seed, Purpose.DEMO_DATA, users, step=1)[:, 0]) ** -0.5, 6)
    degree = np.rint(tail * _MEAN_DEGREE / tail.mean()).astype(np.int64)
    first = integers(seed, Purpose.DEMO_DATA, users, _COMMUNITIES, step=2, draw=0)
    second = integers(seed, Purpose.DEMO_DATA, users, _COMMUNITIES, step=2, draw=1)
    community = integers(seed, Purpose.DEMO_DATA, items, _COMMUNITIES, step=3)
    taste = 1.0 + 29 * (first[:, None] == community) + 9 * (second[:, None] == community)
    weight = taste * (items + 10.0) ** -0.75
    race = -np.log1p(-uniform(seed, Purpose.DEMO_DATA, users, step=4, count=_ITEMS)) / weight
    last = np.take_along_axis(np.sort(race, axis=1), degree[:, None] - 1, axis=1)
    user, item = np.nonzero(race <= last)

    user_names = [f"user-{number}" for number in range(1, _USERS + 1)]
    item_names = [f"item-{number}" for number in range(1, _ITEMS + 1)]
    user_ids, item_ids = Ids.of(user_names), Ids.of(item_names)
    user_index = np.searchsorted(user_ids.values, user_names)
    item_index = np.searchsorted(item_ids.values, item_names)
    interactions = Interactions.from_pairs(user_index[user], item_index[item], _USERS, _ITEMS)
    return Split("demo", *ratio_split(interactions, (0.8, 0.1, 0.1), seed), user_ids, item_ids)
