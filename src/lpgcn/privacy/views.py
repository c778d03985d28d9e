"""The view of an adversary: what it could read in a deployment, and nothing else.

Who can open a row is what the protocol's own table says (`protocol.suite`):

    CLEAR      whoever sees it: the server sees all that passes, a client what it is sent
    GROUP      whoever has S: any client; so the server together with any client
    SENDER     K_u: the sender, and the owners of what it listed
    PAIRWISE   the two ends

An adversary with the server in it sees every row on its way and opens those that one of its clients
has the key of. Without, it has what its clients received. A client alone knows others by handles;
together with the server, by their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from lpgcn.array_types import Bits, Float64, Int64
from lpgcn.config import Config
from lpgcn.model.grid import Grid
from lpgcn.privacy.deployment import Deployment
from lpgcn.privacy.record import Block, Record, Subjects
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.server.topology import Topology
from lpgcn.protocol.suite import SUITES, Key, Kind, Suite
from lpgcn.protocol.wire.encoding import Header
from lpgcn.protocol.wire.sizes import Sizes
from lpgcn.ragged import flags


@dataclass(frozen=True)
class Adversary:
    """Parties that put together what they know."""

    name: str
    server: bool
    clients: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Seen:
    """Rows of one kind from one phase, each once, by what they are about."""

    sent: Header
    about: Int64
    rows: list[bytes]


@dataclass(frozen=True, eq=False)
class View:
    """Built by `view_of`."""

    adversary: Adversary
    config: Config
    """As every party has it, with seed 0."""
    n_items: int
    topology: Topology | None
    """Lists of places, plan and handles: the server's."""
    blocks: tuple[tuple[Block, Int64], ...] = field(repr=False)
    """Rows that could be read, and what each is about in the adversary's own terms."""
    known: tuple[tuple[int, Int64, Bits], ...] = field(repr=False)
    """Bits of verification: whose (a client, or a handle), about which places, and what."""
    own: dict[int, Int64]
    """The real items, by place, of each client of the adversary's."""

    def before(self, pass_number: int) -> View:
        """The same before some pass."""
        blocks = tuple(one for one in self.blocks if one[0].sent.pass_number < pass_number)
        return replace(self, blocks=blocks)

    def seen(self, kind: Kind) -> Iterator[Seen]:
        """In the order in which they were sent."""
        found: dict[Header, dict[int, bytes]] = {}
        for block, about in self.blocks:
            if block.kind is kind:
                rows = found.setdefault(block.sent, {})
                rows.update(zip(about.tolist(), block.rows, strict=True))
        for sent in sorted(found):
            rows = dict(sorted(found[sent].items()))
            yield Seen(sent, np.array(list(rows), dtype=np.int64), list(rows.values()))

    def vectors(self, kind: Kind) -> Iterator[tuple[Header, Int64, Float64]]:
        """What rows say in numbers: of users by user, of items by place."""
        sizes, dtype = Sizes.of(self.config), self.config.dtype
        grids = {
            Kind.USER_FORWARD: Grid.forward(dtype),
            Kind.USER_BACKWARD: Grid.backward(dtype, self.config.batch_size),
        }
        for one in self.seen(kind):
            grid = grids.get(kind)
            if kind is Kind.PUSH:
                forward = one.sent.phase < Phase.LOSS
                grid = grids[Kind.USER_FORWARD if forward else Kind.USER_BACKWARD]
            number = sizes.shown if grid is None else np.dtype(grid.integer)
            if kind is Kind.ITEM_FINAL:
                number = np.dtype(dtype)
            table = np.frombuffer(b"".join(one.rows), dtype=number).astype(np.float64)
            yield one.sent, one.about, table.reshape(len(one.rows), -1) * (grid.unit if grid else 1)


def view_of(deployment: Deployment, adversary: Adversary) -> View:
    """What these parties could read of a deployment."""
    record, topology = deployment.record, deployment.record.topology
    members = flags(topology.n_clients, list(adversary.clients))
    reader = Reader(SUITES[deployment.config.suite], topology, members, server=adversary.server)
    blocks = []
    for block in record.blocks:
        subjects = record.subjects(block)
        chosen = reader.reads(block, subjects)
        if chosen.any():
            about = subjects.about if adversary.server else block.handles
            blocks.append((block.only(chosen), about[chosen]))
    return View(
        adversary,
        deployment.config.changed(seed=0),
        topology.n_items,
        topology if adversary.server else None,
        tuple(blocks),
        tuple(_known(record, topology, members, server=adversary.server)),
        {client: deployment.real[client] for client in adversary.clients},
    )


@dataclass(frozen=True, eq=False)
class Reader:
    """Who reads what, for one adversary."""

    suite: Suite
    topology: Topology
    members: Bits
    server: bool

    def reads(self, block: Block, subjects: Subjects) -> Bits:
        """For each row, whether it could be read."""
        received = bool(self.members[block.receiver])
        own = (subjects.senders >= 0) & self.members[subjects.senders]
        if not self.server:
            return np.full(len(block.rows), received)
        match self.suite.keys[block.kind]:
            case Key.CLEAR:
                opened = np.ones(len(block.rows), dtype=np.bool_)
            case Key.GROUP:
                opened = np.full(len(block.rows), bool(self.members.any()))
            case Key.SENDER:
                opened = own | self._holds_key_of(subjects.senders)
            case Key.PAIRWISE:
                opened = own
        return opened | received

    def _holds_key_of(self, users: Int64) -> Bits:
        """Whether a client of the adversary's owns something that these users list."""
        topology = self.topology
        listing = topology.pair_client[self.members[topology.pair_owner]]
        return flags(topology.n_clients, listing)[users]


def _known(
    record: Record, topology: Topology, members: Bits, *, server: bool
) -> Iterator[tuple[int, Int64, Bits]]:
    for owner, handle, asked, real in record.verified():
        if members[owner]:
            whose = int(topology.neighbours[owner][handle]) if server else handle
            yield whose, asked, real
