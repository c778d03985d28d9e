"""What all parties of a deployment could read, row by row: a witness that keeps it in memory.

Each row that a client opened is written down with the parties that have to do with it, so that
`views` can say who else could have read it. Nothing here is an adversary's. What reaches nobody is
not in it: in suite `paper` the vectors of items that no client but their owner lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lpgcn.array_types import Bits, Int64
from lpgcn.config import Config
from lpgcn.protocol.phases import Phase, PhaseOrder
from lpgcn.protocol.server.topology import Topology
from lpgcn.protocol.suite import SUITES, Kind, OwnerPush
from lpgcn.protocol.transcript import Observation, Opened
from lpgcn.protocol.wire.encoding import Header


@dataclass(frozen=True, eq=False)
class Block:
    """Rows of one kind that one client opened in one message."""

    kind: Kind
    sent: Header
    """The phase in which they were sent."""
    receiver: int
    handles: Int64
    """By which the receiver knows the sender or the item of each row."""
    rows: list[bytes]

    def only(self, chosen: Bits) -> Block:
        which = np.flatnonzero(chosen)
        rows = [self.rows[number] for number in which.tolist()]
        return Block(self.kind, self.sent, self.receiver, self.handles[which], rows)


@dataclass(frozen=True, eq=False)
class Subjects:
    """Whom the rows of a block are from, and what they are about."""

    senders: Int64
    """Clients; -1 where only the receiver's handle is known."""
    about: Int64
    """A client for vectors of users, a place for those of items, a pair for what two share."""


_SENT_IN = {
    Kind.USER_FINAL: Phase.LOSS,
    Kind.SCALARS: Phase.LOSS,
    Kind.NEGATIVE: Phase.LOSS,
    Kind.ITEM_FINAL: Phase.FINAL,
    Kind.POOL: Phase.FINAL,
    Kind.GRANT: Phase.FINAL,
}
"""Rows that are sent in the same phase always; all others in the pushing phase before."""


@dataclass
class Record:
    """Filled by `witness` while a deployment runs."""

    config: Config
    blocks: list[Block] = field(default_factory=list)
    bits: list[tuple[int, Opened]] = field(default_factory=list)
    """What owners were told in verification."""
    topology: Topology = field(init=False, repr=False)
    """The server's, from initialisation on."""
    last_pass: int = 0

    def __post_init__(self) -> None:
        self._order = PhaseOrder.of(self.config)

    def witness(self, seen: Observation) -> None:
        if seen.party == "server":
            return
        receiver = int(seen.party.removeprefix("client "))
        self.last_pass = seen.pass_number
        received = Header(seen.pass_number, Phase[seen.phase], seen.layer)
        for opened in seen.opened:
            if opened.what == "BITS":
                self.bits.append((receiver, opened))
                continue
            kind = Kind[opened.what]
            sent = self._sent(kind, received)
            handles = np.array(opened.senders, dtype=np.int64)
            self.blocks.append(Block(kind, sent, receiver, handles, opened.rows))

    def _sent(self, kind: Kind, received: Header) -> Header:
        if kind in _SENT_IN:
            return Header(received.pass_number, _SENT_IN[kind])
        sent = self._order.pushed_before(received)
        assert sent is not None, "rows that arrive were pushed"
        return sent

    def subjects(self, block: Block) -> Subjects:
        """In the server's own terms."""
        topology, handles, at = self.topology, block.handles, block.receiver
        match block.kind:
            case Kind.USER_FORWARD | Kind.USER_BACKWARD | Kind.USER_FINAL:
                users = topology.neighbours[at][handles]
                return Subjects(users, users)
            case Kind.ITEM_FINAL | Kind.POOL:
                return Subjects(topology.owner[handles], handles)
            case Kind.PUSH if self._pushes_items:
                items = topology.listed_elsewhere[at][handles]
                return Subjects(topology.owner[items], items)
            case Kind.PUSH | Kind.GRANT:
                pairs = topology.by_client[at][handles]
                return Subjects(topology.pair_owner[pairs], pairs)
            case Kind.WISH | Kind.SCALARS:
                pairs = topology.by_owner[at][handles]
                return Subjects(topology.pair_client[pairs], pairs)
        # A negative's sender may be a stranger, whom its owner knows by a handle of its own.
        return Subjects(np.full(len(handles), -1), handles)

    @property
    def _pushes_items(self) -> bool:
        return SUITES[self.config.suite].owner_push is OwnerPush.ROW_PER_ITEM

    def verified(self) -> Iterator[tuple[int, int, Int64, Bits]]:
        """Owner, handle, places that were asked about, and which of them are real."""
        topology = self.topology
        for owner, opened in self.bits:
            for handle, row in zip(opened.senders, opened.rows, strict=True):
                asked = topology.entries[int(topology.by_owner[owner][handle])]
                real = np.unpackbits(np.frombuffer(row, np.uint8), count=len(asked))
                yield owner, handle, asked, real.astype(np.bool_)
