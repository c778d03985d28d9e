"""Parties on one machine: each is an object with its own data, and only bytes pass between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np

from lpgcn.checkpoints import InFolder, InMemory
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.data.features import check_sized
from lpgcn.model.features import packed
from lpgcn.model.sampling import NO_ITEMS, SamplingError
from lpgcn.protocol.client.client import Client
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.transcript import Witness
from lpgcn.protocol.wire.reading import pack_numbers
from lpgcn.runtime.hosts.inspection import ACTIONS

Arguments = Iterable[tuple[int, bytes]]


class Host(Protocol):
    """Somebody who runs clients. The server only ever asks for `handle`."""

    def perform(self, action: str, arguments: Arguments) -> Arguments:
        """An action of `inspection.ACTIONS` on each of these clients; results as they come."""
        ...

    def close(self) -> None: ...


class OneProcess:
    """All clients in this process."""

    def __init__(
        self,
        profiles: Mapping[int, bytes],
        witness: Witness | None = None,
        folder: Path | None = None,
        item_features: bytes = b"",
    ) -> None:
        """Each client's checkpoints are in a folder of its own in `folder`, or in memory."""
        self.clients = {
            index: Client(
                profile,
                witness,
                InMemory() if folder is None else InFolder(folder / str(index)),
                item_features,
            )
            for index, profile in profiles.items()
        }

    def perform(self, action: str, arguments: Arguments) -> Arguments:
        act, clients = ACTIONS[action], self.clients
        return ((index, act(clients[index], argument)) for index, argument in arguments)

    def close(self) -> None:
        """Nothing outlives this process."""


class Calls:
    """A host as the server's transport."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def call(self, requests: Arguments) -> Arguments:
        return self._host.perform("handle", requests)


def profiles(
    split: Split, config: Config, n_members: int | None = None
) -> Iterable[tuple[int, bytes]]:
    """What each client is started with: its own interactions, and nothing of anybody else's.

    `n_members` are in the first term, if not all of them.
    """
    if without := int(np.count_nonzero(split.train.user_degrees == 0)):
        raise SamplingError(NO_ITEMS.format(f"{without:,} of {split.n_users:,} users"))
    popularity, seed = b"", config.seed
    # The server draws the batches from its seed: who has it knows which handle is whose.
    config = config.changed(seed=0)
    if config.virtual_draw == "popularity":
        popularity = split.train.item_degrees.astype(np.float64).tobytes()
    check_sized(config, split)
    features = split.user_features
    for user in range(split.n_users):
        profile = Profile(
            index=user,
            n_users=n_members or split.n_users,
            n_items=split.n_items,
            config=config,
            seed=seed,
            private_seed=seed,
            train=pack_numbers(split.train.items_of(user)),
            valid=pack_numbers(split.valid.items_of(user)),
            test=pack_numbers(split.test.items_of(user)),
            popularity=popularity,
            features=b"" if features is None else packed(features[user]),
        )
        yield user, msgspec.msgpack.encode(profile)


def public_features(split: Split) -> bytes:
    """Those of all items, which every client has."""
    return b"" if split.item_features is None else packed(split.item_features)
