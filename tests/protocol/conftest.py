"""A federation small enough to look into: every message that passes can be seen and changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from types import MethodType

import numpy as np
import numpy.typing as npt
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES256

from lpgcn.checkpoints import InMemory
from lpgcn.config import Config
from lpgcn.data import Ids, Interactions, Split
from lpgcn.evaluation import PlainRanker
from lpgcn.model.backbones import backbone_of
from lpgcn.model.kernels.plain import Plain
from lpgcn.plan import Plan, TokenGraph, cover
from lpgcn.protocol.client.client import Client
from lpgcn.protocol.server.server import Line, Server
from lpgcn.protocol.transcript import Witness
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.hosts.one_process import profiles, public_features
from lpgcn.runtime.machine import Machine
from lpgcn.terms import Term

Pairs = list[tuple[int, int]]
Planner = Callable[[TokenGraph], Plan]
CIPHERS = (AESGCM, AES256, X25519PrivateKey)
PLAIN = (bool, int, float, str, bytes, Enum, np.dtype, np.generic)


@dataclass
class Federation:
    """Real clients and a real server; this object is the transport between them."""

    split: Split
    config: Config
    planner: Planner | None = None
    witness: Witness | None = None
    members: Sequence[int] | None = None
    """Of the first term; everybody, if nothing is said."""
    requests: list[tuple[int, bytes]] = field(default_factory=list)
    replies: list[tuple[int, bytes]] = field(default_factory=list)
    server: Server = field(init=False)
    """There is one after `initialise`."""

    def __post_init__(self) -> None:
        if self.members is None:
            self.members = range(self.split.n_users)
        self.profiles = dict(profiles(self.split, self.config, len(self.members)))
        self.disks = [InMemory() for _ in self.profiles]
        """What a client still has when its process has ended."""
        self.clients = [self.started(number) for number in self.profiles]

    def started(self, number: int) -> Client:
        """A client as a new process."""
        features = public_features(self.split)
        return Client(self.profiles[number], self.witness, self.disks[number], features)

    @property
    def line(self) -> Line:
        return Line(self, self.witness)

    def plan(self, graph: TokenGraph) -> Plan:
        return (self.planner or (lambda graph: cover(graph, self.config.seed)))(graph)

    def initialise(self, stretch: int = 0) -> None:
        assert self.members is not None
        self.server = Server.begin(
            self.config, np.array(self.members), self.split.n_items, self.plan, self.line, stretch
        )

    def call(self, requests: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        return ((client, self.deliver(client, request)) for client, request in requests)

    def deliver(self, client: int, request: bytes) -> bytes:
        self.requests.append((client, request))
        reply = self.clients[client].handle(request)
        self.replies.append((client, reply))
        return reply

    def train(self, steps: int) -> None:
        """Initialise, then take some steps, going on to the next epoch after the last of one."""
        self.initialise()
        for done in range(steps):
            epoch, step = divmod(done, self.server.batches.steps)
            self.server.step(epoch, step, self.config.lr)

    def state(self) -> Tables:
        """Every parameter and its Adam state, as `Centralized.state` has them; what no member
        holds is no number, or -1."""
        found: Tables = {}
        backbone = backbone_of(self.config)
        tables, shared = backbone.tables, backbone.shared()
        for user in self.server.term.members.tolist():
            party = self.clients[user].party
            rows = {"users": np.array([user]), "items": party.owned_items()}
            for name, adam in party.tables().items():
                if name in shared:
                    for key, value in adam.state().items():
                        first = found.setdefault(f"{name}.{key}", value)
                        assert value.tobytes() == first.tobytes(), f"two copies of {name} differ"
                    continue
                kind = tables[name].kind
                count = self.split.n_users if kind == "users" else self.split.n_items
                for key, value in adam.state().items():
                    nothing = np.nan if value.dtype.kind == "f" else -1
                    empty = np.full((count, *value.shape[1:]), nothing, dtype=value.dtype)
                    found.setdefault(f"{name}.{key}", empty)[rows[kind]] = value
        return found


def make_split(train: Pairs, n_users: int, n_items: int, heldout: Pairs | None = None) -> Split:
    """Held-out pairs are both the validation and the test part."""

    def part(pairs: Pairs) -> Interactions:
        users, items = zip(*pairs, strict=True) if pairs else ((), ())
        return Interactions.from_pairs(users, items, n_users, n_items)

    held = part(heldout or [])
    return Split("tiny", part(train), held, held, Ids(np.arange(n_users)), Ids(np.arange(n_items)))


def with_random_features(split: Split, users: int, items: int, seed: int = 0) -> Split:
    """So many of each, as people have them: some are 0 or 1, some anything."""
    draw = np.random.default_rng(seed)

    def features(count: int, width: int) -> npt.NDArray[np.float64] | None:
        made = draw.normal(size=(count, width))
        made[:, ::2] = made[:, ::2] > 0
        return made if width else None

    made = features(split.n_users, users), features(split.n_items, items)
    return replace(split, user_features=made[0], item_features=made[1])


def make_centralized(split: Split, config: Config, terms: Sequence[Term] = ()) -> Centralized:
    """The reference, on a machine that compiles nothing."""
    return Centralized(split, config, Machine(Plain(), PlainRanker()), terms=terms)


def same_bits(found: Tables, expected: Tables) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        assert found[name].tobytes() == value.tobytes(), f"{name}: {found[name]} is not {value}"


def picture(party: object) -> dict[str, object]:
    """Everything that can be reached from a party, by its path: numbers, arrays, keys, claims of
    nonces. Ciphers cannot be looked into and stand for themselves; what is only remembered of a
    computation is left out."""
    found: dict[str, object] = {}
    seen: dict[int, object] = {}

    def visit(path: str, thing: object) -> None:
        if isinstance(thing, np.ndarray):
            found[path] = (thing.shape, str(thing.dtype), thing.tobytes())
        elif thing is None or isinstance(thing, PLAIN):
            found[path] = thing
        elif isinstance(thing, MethodType):
            found[path] = (id(thing.__self__), thing.__name__)
        elif isinstance(thing, (*CIPHERS, type)) or callable(thing):
            found[path] = id(thing)
        elif id(thing) not in seen:
            # Kept, so that no other object takes its id while this one is being drawn.
            seen[id(thing)] = thing
            found[path] = type(thing).__name__
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
    elif isinstance(thing, (list, tuple, range)):
        yield "length", len(thing)
        yield from enumerate(thing)
    else:
        names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        names += getattr(thing, "__struct_fields__", ())
        yield from ((name, getattr(thing, name, None)) for name in names)
        for name, value in getattr(thing, "__dict__", {}).items():
            if not isinstance(getattr(type(thing), name, None), cached_property):
                yield name, value


@pytest.fixture(scope="session")
def picture_of() -> Callable[[object], dict[str, object]]:
    return picture


@pytest.fixture(scope="session")
def federation_of() -> type[Federation]:
    return Federation


@pytest.fixture(scope="session")
def split_of() -> Callable[..., Split]:
    return make_split


@pytest.fixture(scope="session")
def described() -> Callable[..., Split]:
    return with_random_features


@pytest.fixture(scope="session")
def centralized_of() -> Callable[..., Centralized]:
    return make_centralized


@pytest.fixture(scope="session")
def assert_same() -> Callable[[Tables, Tables], None]:
    return same_bits
