"""A federation as it would be deployed, watched by an audit: every party with a seed of its own.

An experiment gives all parties one seed, so that its runs can be compared; an adversary could then
repeat everybody's draws. Here the server, the clients together and each client alone have other
seeds, drawn for the audit, of which no view has any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from time import process_time

import msgspec
import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Int64
from lpgcn.checkpoints import InMemory
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.model.backbones import Linear, backbone_of
from lpgcn.model.sampling import catalogue, places
from lpgcn.privacy.costs import Made
from lpgcn.privacy.record import Record
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.server.server import Line
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, words
from lpgcn.runtime.engines.federation import Federation
from lpgcn.runtime.hosts.one_process import Calls, OneProcess, profiles, public_features

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Seeds:
    """Of one deployment."""

    server: int
    clients: int
    private: Int64
    """One for each client."""

    @classmethod
    def drawn(cls, seed: int, n_clients: int) -> Seeds:
        drawn = (words(seed, Purpose.AUDIT, np.arange(n_clients + 2)) >> np.uint64(1)).reshape(-1)
        return cls(int(drawn[0]), int(drawn[1]), drawn[2:].astype(np.int64))


@dataclass(frozen=True, eq=False)
class Deployment:
    """A run that is over: what its parties saw, and the truth that only the auditor has."""

    split: Split
    config: Config
    record: Record
    catalogue: Int64
    """The item at each place."""
    initial: dict[str, npt.NDArray[np.float64]]
    """Tables of items before the first step, by place."""
    validated: int
    """The pass in which everybody was given the final vectors of all items."""
    bytes_per_step: float
    """Of a mean client, up and down."""
    seconds_per_step: float
    """Of a processor, for all parties together, while somebody watches."""

    @property
    def linear(self) -> bool:
        """Whether vectors are passed on as they are: attacks by linear systems need that."""
        return isinstance(backbone_of(self.config), Linear)

    @cached_property
    def real(self) -> Ragged:
        """For each client the places of its real items, rising."""
        train = self.split.train
        return Ragged.from_pairs(train.users, places(self.catalogue)[train.items], train.n_users)

    @cached_property
    def popularity(self) -> Int64:
        """How many really have each place's item."""
        return self.split.train.item_degrees[self.catalogue]


def deploy(
    split: Split,
    config: Config,
    steps: int,
    *,
    seed: int = 0,
    made: Made | None = None,
    tell: Tell = lambda _: None,
) -> Deployment:
    """Initialisation, some steps, a validation, and one step more."""
    seeds = Seeds.drawn(seed, split.n_users)
    config = config.changed(mode="federated", seed=seeds.server)
    record = Record(config)
    clients = {
        user: _with_seeds(profile, seeds.clients, int(seeds.private[user]))
        for user, profile in profiles(split, config)
    }
    host = OneProcess(clients, record.witness, item_features=public_features(split))
    federation = Federation(
        config, np.arange(split.n_users), split.n_items,
        (made or Made(split)).planner(config), Line(Calls(host), record.witness), InMemory(),
    )  # fmt: skip
    tell("initialisation")
    federation.begin()
    record.topology = federation.server.topology
    order = catalogue(seeds.clients, split.n_items)
    initial, seconds = _item_tables(host, order, config), 0.0
    for done in range(steps + 1):
        if done == steps:
            tell("validation")
            federation.measure("valid")
            validated = record.last_pass
        tell(f"step {done + 1} of {steps + 1}")
        began = process_time()
        federation.step(*divmod(done, federation.steps_per_epoch), config.lr)
        seconds += process_time() - began
    traffic = federation.traffic()
    both = traffic.up_per_step + traffic.down_per_step
    return Deployment(split, config, record, order, initial, validated, both, seconds / (steps + 1))


def _with_seeds(profile: bytes, shared: int, private: int) -> bytes:
    about = msgspec.msgpack.decode(profile, type=Profile)
    return msgspec.msgpack.encode(msgspec.structs.replace(about, seed=shared, private_seed=private))


def _item_tables(
    host: OneProcess, order: Int64, config: Config
) -> dict[str, npt.NDArray[np.float64]]:
    """What the owners drew, by place: for attacks that are told it, to show that they work."""
    tables: dict[str, npt.NDArray[np.float64]] = {}
    place, held = places(order), backbone_of(config).held("items")
    for client in host.clients.values():
        owned = place[client.party.owned_items()]
        for name, adam in client.party.tables().items():
            if name in held and len(owned):
                empty = np.zeros((len(order), adam.parameter.shape[1]))
                tables.setdefault(name, empty)[owned] = adam.parameter
    return tables
