"""A federation small enough to look into: every message that passes can be seen and changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import MethodType

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from torch import Tensor

from lpgcn.config import Config
from lpgcn.data import Ids, Interactions, Split
from lpgcn.plan import Plan, TokenGraph, cover
from lpgcn.protocol.client import Client
from lpgcn.protocol.server import Server
from lpgcn.protocol.transcript import Witness
from lpgcn.runtime.hosts.one_process import profiles

Pairs = list[tuple[int, int]]
Planner = Callable[[TokenGraph], Plan]
CIPHERS = (AESGCM, AES256, X25519PrivateKey)


@dataclass
class Federation:
    """Real clients and a real server; this object is the transport between them."""

    split: Split
    config: Config
    planner: Planner | None = None
    witness: Witness | None = None
    requests: list[tuple[int, bytes]] = field(default_factory=list)
    replies: list[tuple[int, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clients = [
            Client(profile, self.witness) for _, profile in profiles(self.split, self.config)
        ]
        planner = self.planner or (lambda graph: cover(graph, self.config.seed))
        self.server = Server(
            self.config, self.split.n_users, self.split.n_items, planner, self, self.witness
        )

    def call(self, requests: Iterable[tuple[int, bytes]]) -> dict[int, bytes]:
        return {client: self.deliver(client, request) for client, request in requests}

    def deliver(self, client: int, request: bytes) -> bytes:
        self.requests.append((client, request))
        reply = self.clients[client].handle(request)
        self.replies.append((client, reply))
        return reply

    def train(self, steps: int) -> None:
        """Initialise, then take some steps, going on to the next epoch after the last of one."""
        self.server.initialise()
        for done in range(steps):
            epoch, step = divmod(done, self.server.batches.steps)
            self.server.step(epoch, step, self.config.lr)

    def state(self) -> dict[str, Tensor]:
        """Every parameter and its Adam state, as `Centralized.state` has them."""
        found: dict[str, Tensor] = {}
        sizes = {"users": self.split.n_users}
        for user, client in enumerate(self.clients):
            passes = client.passes
            held = {} if passes.user.adam is None else {"users": ([user], passes.user.adam)}
            if passes.owner is not None:
                held |= {
                    name: (passes.owner.items, adam) for name, adam in passes.owner.adam.items()
                }
            for name, (rows, adam) in held.items():
                for key, value in adam.state().items():
                    if not value.dim():
                        found[f"{name}.{key}"] = value
                        continue
                    shape = (sizes.get(name, self.split.n_items), self.config.dim)
                    table = found.setdefault(
                        f"{name}.{key}", torch.full(shape, np.nan, dtype=value.dtype)
                    )
                    table[torch.as_tensor(rows)] = value
        return found


def make_split(train: Pairs, n_users: int, n_items: int, heldout: Pairs | None = None) -> Split:
    """Held-out pairs are both the validation and the test part."""

    def part(pairs: Pairs) -> Interactions:
        users, items = zip(*pairs, strict=True) if pairs else ((), ())
        return Interactions.from_pairs(users, items, n_users, n_items)

    held = part(heldout or [])
    return Split("tiny", part(train), held, held, Ids(np.arange(n_users)), Ids(np.arange(n_items)))


def picture(party: object) -> dict[str, object]:
    """Everything that can be reached from a party, by its path: numbers, arrays, keys, claims of
    nonces. Ciphers cannot be looked into and stand for themselves."""
    found: dict[str, object] = {}
    seen: set[int] = set()

    def visit(path: str, thing: object) -> None:
        if isinstance(thing, (torch.Tensor, np.ndarray)):
            array = np.ascontiguousarray(thing)
            found[path] = (array.shape, str(array.dtype), array.tobytes())
        elif thing is None or isinstance(thing, (bool, int, float, str, bytes, np.dtype)):
            found[path] = thing
        elif isinstance(thing, (*CIPHERS, type, MethodType)) or callable(thing):
            found[path] = id(thing.__self__) if isinstance(thing, MethodType) else id(thing)
        elif id(thing) not in seen:
            seen.add(id(thing))
            for name, value in inside(thing):
                visit(f"{path}.{name}", value)

    visit("", party)
    return found


def inside(thing: object) -> Iterator[tuple[object, object]]:
    if isinstance(thing, dict):
        yield "keys", " ".join(map(str, thing))
        yield from thing.items()
    elif isinstance(thing, (set, frozenset)):
        yield from enumerate(sorted(thing))
    elif isinstance(thing, (list, tuple)):
        yield "length", len(thing)
        yield from enumerate(thing)
    else:
        names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        names += getattr(thing, "__struct_fields__", ())
        yield from ((name, getattr(thing, name, None)) for name in names)
        yield from getattr(thing, "__dict__", {}).items()


@pytest.fixture(scope="session")
def picture_of() -> Callable[[object], dict[str, object]]:
    return picture


@pytest.fixture(scope="session")
def federation_of() -> type[Federation]:
    return Federation


@pytest.fixture(scope="session")
def split_of() -> Callable[..., Split]:
    return make_split
