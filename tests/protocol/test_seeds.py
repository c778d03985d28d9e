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
import pytest
import torch

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.model.adam import Adam
from lpgcn.model.initial import embedding_rows
from lpgcn.model.loss import Pairs
from lpgcn.model.sampling import Lists, VirtualItems, places, positive_ranks, virtual_items
from lpgcn.protocol.client import Client, Profile
from lpgcn.protocol.server import key_client
from lpgcn.random import Purpose
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.hosts.one_process import profiles

Make = Callable[..., Any]
CONFIG = Config(dim=3, layers=2, lr=0.05, batch_size=7, virtual_items="2", seed=5)
N_USERS, N_ITEMS = 5, 11
TRAIN = [(user, item) for user in range(N_USERS) for item in range(8) if (3 * user + item) % 4 < 2]
PROPOSED = [2**61 + 17 * user for user in range(N_USERS)]
"""What each client would have as the seed of all clients, if it were u_c."""
OWN = [2**62 + 1001 * user for user in range(N_USERS)]


class KnowsAllSeeds(Centralized):
    """Items and their order from the clients' seed, a user's own draws from its own seed."""

    def __init__(self, split: Split, config: Config, clients_seed: int) -> None:
        super().__init__(split, config.changed(seed=clients_seed))
        samples, users = self.samples, np.arange(split.n_users)
        real = samples.real
        drawn = [
            virtual_items(OWN[user], users[user : user + 1], one, VirtualItems(count=2)).items
            for user in users
            if (one := Lists(np.array([0, len(real.of(user))]), real.of(user), real.n_items))
        ]
        rows = np.repeat(users, [len(items) for items in drawn])
        virtual = Lists.from_pairs(rows, np.concatenate(drawn), real.n_users, real.n_items)
        samples.listed_places = real.union(virtual).renumbered(places(samples.catalogue))
        samples.batches = replace(
            samples.batches, seed=config.seed, listed_keys=samples.listed_places.keys()
        )
        samples.pairs = self._pairs  # type: ignore[method-assign]
        if "users" in self._adam:
            about = {"table_rows": split.n_users, "dim": config.dim, "dtype": torch.float32}
            initial = [
                embedding_rows(
                    OWN[user],
                    Purpose.USER_EMBEDDING,
                    users[user : user + 1],
                    deviation=config.init_deviation,
                    **about,
                )
                for user in users
            ]
            self._adam["users"] = Adam(torch.cat(initial))

    def _pairs(self, batch: Any) -> Pairs:
        real = self.samples.real
        ranks = np.empty(batch.size, dtype=np.int64)
        for user in set(batch.users.tolist()):
            mine = np.flatnonzero(batch.users == user)
            sizes = np.full(len(mine), len(real.of(user)))
            ranks[mine] = positive_ranks(OWN[user], batch.epoch, batch.positions[mine], sizes)
        positives = real.items[real.offsets[batch.users] + ranks]
        negatives = real.n_items + batch.negatives
        return Pairs.from_samples(batch.users, positives, negatives, 2 * real.n_items)


def deployed(split: Split, config: Config) -> list[Client]:
    made = []
    for user, data in profiles(split, config):
        profile = msgspec.msgpack.decode(data, type=Profile)
        profile = msgspec.structs.replace(profile, seed=PROPOSED[user], private_seed=OWN[user])
        made.append(Client(msgspec.msgpack.encode(profile)))
    return made


@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
def test_with_a_seed_for_everybody_it_is_still_lossless(
    federation_of: Make, split_of: Make, model: str
) -> None:
    split, config = split_of(TRAIN, N_USERS, N_ITEMS), CONFIG.changed(model=model)
    federation = federation_of(split, config)
    federation.clients = deployed(split, config)
    federation.train(4)
    reference = KnowsAllSeeds(split, config, PROPOSED[key_client(config.seed, N_USERS)])
    for done in range(4):
        epoch, step = divmod(done, reference.steps_per_epoch)
        reference.step(epoch, step, config.lr)
    listed, graph = reference.samples.listed_places, federation.server.routes
    for user in range(N_USERS):
        assert np.array_equal(np.sort(graph.listed[user]), listed.of(user))
    expected, found = reference.state(), federation.state()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value), name
    assert federation.server.take_loss() == reference.take_loss()


def test_the_seed_of_the_batches_stays_with_the_server(split_of: Make) -> None:
    """From it and from who is present in a batch an owner could tell whose handle is whose."""
    split = split_of(TRAIN, N_USERS, N_ITEMS)
    for _, data in profiles(split, CONFIG):
        assert msgspec.msgpack.decode(data, type=Profile).config.seed == 0
