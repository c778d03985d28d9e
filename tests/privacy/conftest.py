"""Small deployments, each run once for all tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.data import Ids, Interactions, Split
from lpgcn.privacy.deployment import Deployment, deploy
from lpgcn.ragged import Ragged

N_USERS, N_ITEMS, TASTES = 48, 60, 4


def tasteful(seed: int = 1, n_users: int = N_USERS, n_items: int = N_ITEMS) -> Split:
    """Users of a few tastes, each with most of its items in its own quarter of the catalogue."""
    draw = np.random.default_rng(seed)
    users, items = [], []
    for user in range(n_users):
        taste = user % TASTES
        weight = np.where(np.arange(n_items) % TASTES == taste, 1.0, 0.02)
        weight = weight / (1 + np.arange(n_items) // TASTES)
        own = draw.choice(n_items, size=9, replace=False, p=weight / weight.sum())
        users += [user] * len(own)
        items += own.tolist()
    everything = Interactions.from_pairs(users, items, n_users, n_items)
    is_last = everything.by_user.ranks == 8

    def part(chosen: np.ndarray) -> Interactions:
        return Interactions(everything.users[chosen], everything.items[chosen], n_users, n_items)

    held = part(is_last)
    return Split(
        "tasteful", part(~is_last), held, held, Ids(np.arange(n_users)), Ids(np.arange(n_items))
    )


CONFIG = Config(
    model="lightgcn", dim=16, layers=3, batch_size=48, virtual_items="1.0x", planner="greedy",
    max_load="none", convolution_clients=10, lr=0.01,
)  # fmt: skip


@cache
def deployed(suite: str, model: str, alpha: str, steps: int) -> Deployment:
    config = CONFIG.changed(suite=suite, model=model, virtual_items=alpha)
    return deploy(tasteful(), config, steps)


@pytest.fixture(scope="session")
def deployment_of() -> Callable[..., Deployment]:
    def make(
        suite: str = "sealed", model: str = "lightgcn", alpha: str = "1.0x", steps: int = 2
    ) -> Deployment:
        return deployed(suite, model, alpha, steps)

    return make


@pytest.fixture(scope="session")
def split_with_tastes() -> Split:
    return tasteful()


@pytest.fixture(scope="session")
def shuffled_within() -> Callable[[Ragged, np.ndarray], np.ndarray]:
    """Truth that says nothing: flags exchanged at random within each list."""

    def shuffle(lists: Ragged, flags: np.ndarray) -> np.ndarray:
        order = np.lexsort((np.random.default_rng(5).random(len(flags)), lists.rows))
        return flags[order]

    return shuffle


@pytest.fixture(scope="session")
def heaviest() -> Callable[[Deployment], int]:
    def find(deployment: Deployment) -> int:
        topology = deployment.record.topology
        lengths: Int64 = topology.by_owner.lengths
        return int(lengths.argmax())

    return find
