"""As it is deployed: the server's seed, the clients' seed and each client's own are all different.

An experiment takes one number for all of them; here the reference is a data centre that is told
every seed and draws with each what the party that has it would draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest

from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import PlainRanker
from lpgcn.model.adam import Adam
from lpgcn.model.backbones import BUILDING
from lpgcn.model.batches import Batch
from lpgcn.model.initial import embedding_rows
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.losses.bpr import Pairs
from lpgcn.model.sampling import (
    VirtualItems,
    listing_keys,
    places,
    positive_ranks,
    renumbered,
    union,
    virtual_items,
)
from lpgcn.protocol.client.client import Client
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.server.server import key_client
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.hosts.one_process import profiles
from lpgcn.runtime.machine import Machine

Make = Callable[..., Any]
CONFIG = Config(dim=3, layers=2, lr=0.05, batch_size=7, virtual_items="2", seed=5)
N_USERS, N_ITEMS = 5, 11
TRAIN = [(user, item) for user in range(N_USERS) for item in range(8) if (3 * user + item) % 4 < 2]
PROPOSED = [2**61 + 17 * user for user in range(N_USERS)]
"""What each client would have as the seed of all clients, if it were u_c."""
OWN = [2**62 + 1001 * user for user in range(N_USERS)]


class SampledByAll(Sampler):
    """The order of items from the clients' seed, a user's own draws from its own seed."""

    def __init__(self, split: Split, config: Config, clients_seed: int) -> None:
        super().__init__(split.train, config.changed(seed=clients_seed))
        users, n_items = np.arange(split.n_users), split.n_items
        drawn = [
            virtual_items(OWN[user], users[[user]], only(mine), n_items, VirtualItems(2)).values
            for user in users
            if len(mine := self.real[user])
        ]
        listed = union(self.real, Ragged.from_arrays(drawn), n_items)
        self.listed_places = renumbered(listed, places(self.catalogue))
        keys = listing_keys(self.listed_places, n_items)
        self.batches = replace(self.batches, seed=config.seed, listed_keys=keys)

    def pairs(self, batch: Batch) -> Pairs:
        positives = np.empty(batch.size, dtype=np.int64)
        for user in set(batch.users.tolist()):
            mine, samples = self.real[user], np.flatnonzero(batch.users == user)
            sizes = np.full(len(samples), len(mine))
            ranks = positive_ranks(OWN[user], batch.epoch, batch.positions[samples], sizes)
            positives[samples] = mine[ranks]
        negatives = self._n_items + batch.negatives
        return Pairs.from_samples(batch.users, positives, negatives, 2 * self._n_items)


def only(items: Int64) -> Ragged:
    return Ragged.from_arrays([items])


class KnowsAllSeeds(Centralized):
    """Users from their own seeds, items from those of their owners."""

    def __init__(
        self, split: Split, config: Config, clients_seed: int, owner: npt.NDArray[np.int64]
    ) -> None:
        machine = Machine(Plain(), PlainRanker())
        super().__init__(split, config.changed(seed=clients_seed), machine)
        self.sampler = SampledByAll(split, config, clients_seed)
        if "users" in self._adam:
            about = {"table_rows": split.n_users, "config": config}
            rows = [
                embedding_rows(OWN[user], Purpose.USER_EMBEDDING, np.array([user]), **about)
                for user in range(split.n_users)
            ]
            self._adam["users"] = Adam(np.concatenate(rows), Plain())
        purposes = {"items": Purpose.ITEM_EMBEDDING, BUILDING: Purpose.ITEM_USER_EMBEDDING}
        for name in purposes.keys() & self._adam.keys():
            about = {"table_rows": split.n_items, "config": config}
            rows = [
                embedding_rows(OWN[owner[item]], purposes[name], np.array([item]), **about)
                for item in range(split.n_items)
            ]
            self._adam[name] = Adam(np.concatenate(rows), Plain())


def deployed(split: Split, config: Config, others: int = 0) -> list[Client]:
    """`others` is added to what all but u_c would propose."""
    made = []
    for user, data in profiles(split, config):
        profile = msgspec.msgpack.decode(data, type=Profile)
        proposed = PROPOSED[user] + others * (user != key_client(config.seed, N_USERS))
        profile = msgspec.structs.replace(profile, seed=proposed, private_seed=OWN[user])
        made.append(Client(msgspec.msgpack.encode(profile)))
    return made


@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
@pytest.mark.parametrize("suite", ["sealed", "paper"])
def test_with_a_seed_for_everybody_it_is_still_lossless(
    federation_of: Make,
    split_of: Make,
    assert_same: Callable[..., None],
    model: str,
    suite: str,
) -> None:
    split = split_of(TRAIN, N_USERS, N_ITEMS, [(0, 9), (3, 10)])
    config = CONFIG.changed(model=model, suite=suite)
    federation = federation_of(split, config)
    federation.clients = deployed(split, config)
    federation.train(4)
    owner = np.empty(N_ITEMS, dtype=np.int64)
    for user, client in enumerate(federation.clients):
        owner[client.party.owned_items()] = user
    reference = KnowsAllSeeds(split, config, PROPOSED[key_client(config.seed, N_USERS)], owner)
    for done in range(4):
        epoch, step = divmod(done, reference.steps_per_epoch)
        reference.step(epoch, step, config.lr)
    listed, topology = reference.sampler.listed_places, federation.server.topology
    for user in range(N_USERS):
        assert np.array_equal(np.sort(topology.listed[user]), listed[user])
    assert_same(federation.state(), reference.state())
    assert federation.server.take_loss() == reference.take_loss()
    assert federation.server.measure("test") == reference.measure("test")


@pytest.mark.parametrize("whose", ["seed", "private_seed"])
def test_every_seed_matters(federation_of: Make, split_of: Make, whose: str) -> None:
    """The seed that u_c proposes and a client's own: with another one the model is another."""
    split, states = split_of(TRAIN, N_USERS, N_ITEMS), []
    for changed in (0, 1):
        federation = federation_of(split, CONFIG)
        federation.clients = deployed(split, CONFIG)
        party = key_client(CONFIG.seed, N_USERS)
        profile = msgspec.msgpack.decode(dict(profiles(split, CONFIG))[party], type=Profile)
        seeds = {"seed": PROPOSED[party], "private_seed": OWN[party]}
        seeds[whose] += changed
        other = msgspec.structs.replace(profile, **seeds)
        federation.clients[party] = Client(msgspec.msgpack.encode(other))
        federation.train(2)
        states.append(federation.state()["items.parameter"])
    assert not np.array_equal(*states)


def test_the_seed_of_a_client_that_is_not_asked_for_one_does_not_matter(
    federation_of: Make, split_of: Make, assert_same: Callable[..., None]
) -> None:
    split, states = split_of(TRAIN, N_USERS, N_ITEMS), []
    for others in (0, 1):
        federation = federation_of(split, CONFIG)
        federation.clients = deployed(split, CONFIG, others)
        federation.train(2)
        states.append(federation.state())
    assert_same(*states)


def test_the_seed_of_the_batches_stays_with_the_server(split_of: Make) -> None:
    """From it and from who is present in a batch an owner could tell whose handle is whose."""
    split = split_of(TRAIN, N_USERS, N_ITEMS)
    for _, data in profiles(split, CONFIG):
        assert msgspec.msgpack.decode(data, type=Profile).config.seed == 0
