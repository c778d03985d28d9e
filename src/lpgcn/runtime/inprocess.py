"""All parties in one process: each is an object with its own data, and bytes pass between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

import msgspec

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.protocol.client import Client, Profile


class InProcess:
    """A transport that hands every message to its client at once."""

    def __init__(self, clients: Sequence[Client]) -> None:
        self.clients = clients

    def call(self, requests: Mapping[int, bytes]) -> dict[int, bytes]:
        return {client: self.clients[client].handle(data) for client, data in requests.items()}


def profiles(split: Split, config: Config) -> list[bytes]:
    """What each client is started with: its own interactions, and nothing of anybody else's."""
    popularity = b""
    if config.virtual_draw == "popularity":
        popularity = split.train.item_degrees.astype(np.float64).tobytes()
    return [
        msgspec.msgpack.encode(
            Profile(
                index=user,
                n_users=split.n_users,
                n_items=split.n_items,
                config=config,
                seed=config.seed,
                train=_items(split.train.items_of(user)),
                valid=_items(split.valid.items_of(user)),
                test=_items(split.test.items_of(user)),
                popularity=popularity,
            )
        )
        for user in range(split.n_users)
    ]


def _items(items: npt.NDArray[np.int64]) -> bytes:
    return items.astype("<u4").tobytes()
