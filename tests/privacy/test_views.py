"""A view holds what its parties' own keys open, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from lpgcn.config import Config
from lpgcn.crypto import AuthenticationError, Channels, Context, Label, SecretKey
from lpgcn.data import Ids, Interactions, Split
from lpgcn.plan import cover
from lpgcn.privacy.deployment import Deployment
from lpgcn.privacy.record import Record
from lpgcn.privacy.views import Adversary, View, view_of
from lpgcn.protocol.client.client import Client
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.server.server import Line, Server
from lpgcn.protocol.suite import SUITES, Kind
from lpgcn.protocol.transcript import Observation
from lpgcn.protocol.wire.sizes import Sizes
from lpgcn.runtime.hosts.one_process import Calls, OneProcess, profiles

Make = Callable[..., Any]
ROWS = {
    Kind.USER_FORWARD: ("Push", "user"),
    Kind.USER_BACKWARD: ("Push", "user"),
    Kind.USER_FINAL: ("Gradients", "user"),
    Kind.PUSH: ("Push", "pushes"),
    Kind.ITEM_FINAL: ("Finals", "items"),
}
"""Where the server receives rows of one size each."""


class Watched:
    """A federation with all that the server received, and the clients themselves."""

    def __init__(self, split: Split, config: Config) -> None:
        self.received: list[Observation] = []
        self.record = Record(config)
        host = OneProcess(dict(profiles(split, config)), self.witness)
        self.clients: dict[int, Client] = host.clients
        server = Server.begin(
            config, np.arange(split.n_users), split.n_items,
            lambda graph: cover(graph, 0), Line(Calls(host), self.witness),
        )  # fmt: skip
        self.record.topology = server.topology
        server.step(0, 0, 0.01)
        server.measure("valid")
        self.deployment = Deployment(
            split, config, self.record, np.arange(split.n_items), {}, 0, 0.0, 0.0
        )

    def witness(self, seen: Observation) -> None:
        self.record.witness(seen)
        if seen.party == "server":
            self.received.append(seen)

    def channels(self, member: int) -> Iterator[Channels]:
        """All keys that a client has for rows, and in suite `paper` those that it can derive from S
        and the public keys, which the server tells it."""
        party = self.clients[member].party
        keys, shared = party._keys, SecretKey(party._standing.shared)
        yield from (keys.own, keys.items, keys.owners, keys.neighbours, keys.pairs)
        publics = [one.party._keys.private.public_bytes for one in self.clients.values()]
        yield Channels(shared.derive(Label.USER_VECTORS, public) for public in publics)

    def opened(self, adversary: Adversary, kind: Kind) -> set[bytes]:
        """By brute force: every row of a kind that the server received, in the clear or with any
        key of the adversary's clients; and what these opened themselves."""
        found = {
            row
            for block in self.record.blocks
            if block.kind is kind and block.receiver in adversary.clients
            for row in block.rows
        }
        if not adversary.server:
            return found
        message, field = ROWS[kind]
        keys = [(one, number) for member in adversary.clients for one in self.channels(member)
                for number in range(len(one))]  # fmt: skip
        for seen in self.received:
            if seen.kind == message and _is(kind, Phase[seen.phase]):
                for row in self._rows(kind, seen.fields[field]):
                    found |= self._opened(row, kind, seen, keys)
        return found

    def for_nobody(self, kind: Kind) -> set[bytes]:
        """In suite `paper` vectors of items that nobody but their owner lists: they say nothing
        about anybody, and a record has only what somebody received."""
        if kind is not Kind.PUSH or self.deployment.config.suite != "paper":
            return set()
        received = {row for one in self.record.blocks if one.kind is kind for row in one.rows}
        sent = {
            row
            for seen in self.received
            if seen.kind == "Push"
            for row in self._rows(kind, seen.fields["pushes"])
        }
        return sent - received

    def _rows(self, kind: Kind, content: Any) -> Iterator[bytes]:
        width = Sizes.of(self.deployment.config).row(kind)
        return (content[at : at + width] for at in range(0, len(content), width))

    def _opened(self, row: bytes, kind: Kind, seen: Observation, keys: Any) -> set[bytes]:
        if not SUITES[self.deployment.config.suite].protects(kind):
            return {row}
        run = next(iter(self.clients.values())).party.run
        context = Context(run, seen.pass_number, Phase[seen.phase], seen.layer, kind)
        indices = range(self.deployment.split.n_items) if kind is Kind.ITEM_FINAL else [None]
        for channels, number in keys:
            for index in indices:
                try:
                    where = None if index is None else [index]
                    return set(channels.open(context, [number], [row], where))
                except AuthenticationError:
                    continue
        return set()


def _is(kind: Kind, phase: Phase) -> bool:
    forward = phase < Phase.LOSS
    return kind not in (Kind.USER_FORWARD, Kind.USER_BACKWARD) or forward == (
        kind is Kind.USER_FORWARD
    )


@pytest.fixture(scope="module", params=["sealed", "paper"])
def watched(request: pytest.FixtureRequest, split_with_tastes: Split) -> Watched:
    train = split_with_tastes.train
    few = train.users < 8
    part = Interactions(train.users[few], train.items[few], 8, train.n_items)
    held = Interactions.from_pairs([0, 3], [59, 58], 8, train.n_items)
    split = Split("few", part, held, held, Ids(np.arange(8)), split_with_tastes.item_ids)
    config = Config(
        model="lightgcn", suite=request.param, dim=4, layers=2, batch_size=6, virtual_items="2"
    )
    return Watched(split, config)


def members_of(watched: Watched) -> dict[str, Adversary]:
    topology = watched.record.topology
    owner = int(topology.by_owner.lengths.argmax())
    other = int(np.flatnonzero(~topology.is_owner)[0]) if not topology.is_owner.all() else 0
    return {
        "server": Adversary("server", server=True),
        "owner": Adversary("owner", server=False, clients=(owner,)),
        "client": Adversary("client", server=False, clients=(other,)),
        "server and client": Adversary("server and client", server=True, clients=(other,)),
        "server and owner": Adversary("server and owner", server=True, clients=(owner,)),
    }


@pytest.mark.parametrize(
    "name", ["server", "owner", "client", "server and client", "server and owner"]
)
def test_a_view_has_what_its_keys_open_and_nothing_else(watched: Watched, name: str) -> None:
    adversary = members_of(watched)[name]
    view = view_of(watched.deployment, adversary)
    for kind in ROWS:
        rows = {row for seen in view.seen(kind) for row in seen.rows}
        readable = watched.opened(adversary, kind)
        assert rows <= readable, kind
        assert readable - rows <= watched.for_nobody(kind), kind


def test_a_client_alone_knows_handles_and_no_lists(watched: Watched) -> None:
    view = view_of(watched.deployment, members_of(watched)["owner"])
    assert view.topology is None
    assert view.config.seed == 0
    (owner,) = view.adversary.clients
    assert list(view.own) == [owner]
    topology = watched.record.topology
    assert [whose for whose, _, _ in view.known] == list(range(len(topology.neighbours[owner])))


def test_nobody_is_told_bits_but_owners_of_their_own_items(watched: Watched) -> None:
    adversaries = members_of(watched)
    for name in ("server", "client", "server and client"):
        assert not view_of(watched.deployment, adversaries[name]).known
    topology = watched.record.topology
    view = view_of(watched.deployment, adversaries["server and owner"])
    (owner,) = view.adversary.clients
    assert {place for _, asked, _ in view.known for place in asked.tolist()} <= set(
        topology.owned[owner].tolist()
    )


def test_what_came_before_a_pass_is_less(watched: Watched) -> None:
    view: View = view_of(watched.deployment, members_of(watched)["server and owner"])
    first = min(block.sent.pass_number for block, _ in view.blocks)
    assert not view.before(first).blocks
    assert 0 < len(view.before(first + 1).blocks) < len(view.blocks)
