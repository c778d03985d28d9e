"""The server's part in a run, over `call(requests)`, which yields (client, bytes) in any order; it
knows no transport.

It begins with a term (see `term`), then for every step forward → loss → backward → update. What is
sent in each round is laid out in `script`. Whenever everybody has written a checkpoint, the server
has one of its own, from which both go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from lpgcn import fixed_point
from lpgcn.array_types import Int64
from lpgcn.checkpoints import unpacked
from lpgcn.config import Config
from lpgcn.evaluation import METRICS, Evaluation
from lpgcn.model.batches import batches_of
from lpgcn.plan import Plan
from lpgcn.protocol.errors import MalformedMessageError, UnexpectedMessageError
from lpgcn.protocol.ledger import Ledger, Traffic
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.server.caller import Caller, Line, Transport, Watch
from lpgcn.protocol.server.estates import FormerTerm, LostItemsError, draw_heirs
from lpgcn.protocol.server.script import Script, resuming
from lpgcn.protocol.server.term import CurrentTerm, Planner, begin_term, key_client
from lpgcn.protocol.server.topology import Topology
from lpgcn.protocol.wire.fields import Round
from lpgcn.protocol.wire.reading import RATE, pack_numbers
from lpgcn.ragged import Ragged

__all__ = ["RANK_PHASES", "Line", "Planner", "Server", "Transport", "Watch", "key_client"]

RANK_PHASES: Final = {"valid": Phase.RANK_VALID, "test": Phase.RANK_TEST}
FORMAT: Final = 1


class ServerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The server's checkpoint: all that it knows, and it knows no item, vector or secret key."""

    format: int
    number: int
    term: int
    run: bytes
    members: bytes
    listed_offsets: bytes
    listed: bytes
    owner: bytes
    planner: str
    seed: int
    """Of handles, mask peers and heirs."""
    publics: list[bytes]
    contacts: dict[str, bytes]
    interactions: int
    steps: int
    samples: int
    traffic: list[Traffic]
    estates: list[bytes]
    estate_keys: list[bytes]


class Server:
    """Coordinates one run. It is made by `begin`, or by `restored` from a checkpoint."""

    def __init__(
        self,
        config: Config,
        caller: Caller,
        term: CurrentTerm,
        script: Script,
        interactions: int = 0,
    ) -> None:
        """The number of interactions is asked for if it is not known."""
        self._config, self._caller, self._script, self.term = config, caller, script, term
        self._heirs = draw_heirs(term.topology)
        self._checkpoint = self._steps_before = 0
        self.steps = 0
        """Of the whole run."""
        self._samples = 0
        """Since the loss was last reported, or the term began."""
        listed, n_items = term.topology.listed, term.topology.n_items
        total = interactions or self._count_interactions(len(listed.values))
        self.batches = batches_of(config, total, listed, n_items, term.number)

    @classmethod
    def begin(
        cls, config: Config, members: Int64, n_items: int, planner: Planner, line: Line,
        stretch: int = 0,
    ) -> Server:  # fmt: skip
        """The first term."""
        caller, term, script = begin_term(config, members, n_items, planner, line, stretch)
        return cls(config, caller, term, script)

    def changed(self, members: Int64, planner: Planner, line: Line, stretch: int) -> Server:
        """The next term, from the last checkpoint on: others have left or joined."""
        n_items = self.topology.n_items
        made = begin_term(self._config, members, n_items, planner, line, stretch, self._former())
        server = Server(self._config, *made)
        server.steps = self._steps_before
        return server

    def is_all_with(self, members: Int64) -> bool:
        """Whether these, as owners or heirs, have the state of all items at the last checkpoint."""
        try:
            self._former().openers(members)
        except LostItemsError:
            return False
        return True

    def _former(self) -> FormerTerm:
        stores = self._caller.stores
        if not self._checkpoint:
            raise UnexpectedMessageError("members can change from a checkpoint on; there is none")
        return FormerTerm(
            self.term.number, self._caller.run, self.term.members, self.topology, self._heirs,
            self._checkpoint, stores["estates"], stores["estate keys"], self.ledger,
        )  # fmt: skip

    @property
    def ledger(self) -> Ledger:
        return self._caller.ledger

    @property
    def plan(self) -> Plan:
        return self.term.plan

    @property
    def topology(self) -> Topology:
        return self.term.topology

    def _count_interactions(self, listed: int) -> int:
        """Σ|I_u|, the length of an epoch; it says no more about a client than its list does."""
        total = round(self._sum(Phase.COUNT))
        if not 0 < total <= listed:
            raise MalformedMessageError(
                f"the clients' numbers of items add up to {total}, expected 1 to {listed}, "
                "which is how many they listed"
            )
        return total

    def step(self, epoch: int, step: int, learning_rate: float) -> None:
        """forward → loss → backward → update, as Algorithm 7."""
        batch, stores = self.batches.draw(epoch, step), self._caller.stores
        # An epoch may be over already with the fewer samples of those who are left.
        if not batch.size:
            return
        stores["learning rate"], stores["batch size"] = (
            RATE.pack(learning_rate),
            pack_numbers([batch.size]),
        )
        self._carry_out(self._script.step(batch))
        self.steps += 1
        self._samples += batch.size

    def predict(self, clients: Iterable[int]) -> None:
        """Send the final item vectors to these clients, which keep them to rank on their own."""
        asked = np.array(list(clients), dtype=np.int64)
        if strange := np.setdiff1d(asked, self.term.members).tolist():
            raise UnexpectedMessageError(
                f"a prediction for client {strange[0]}, which is no member of this term"
            )
        ranks = np.searchsorted(self.term.members, asked)
        self._catalogue(Phase.PREDICT, ranks, 0)

    def measure(self, part: str) -> Evaluation:
        """The means of the metrics over the clients that have held-out items."""
        names = [f"{metric}@{k}" for k in self._config.cutoffs for metric in METRICS]
        everybody = np.arange(self.topology.n_clients)
        self._catalogue(RANK_PHASES[part], everybody, len(names) + 1)
        *totals, count = self._masked_totals()
        return Evaluation.from_totals(names, totals, round(fixed_point.decode(count)))

    def take_loss(self) -> float:
        """The mean loss of a sample since the last call, an epoch ago, or since the term began."""
        samples, self._samples = self._samples, 0
        return self._sum(Phase.SUM_LOSS) / max(1, samples)

    def keep(self) -> None:
        """The present parameters are the best so far."""
        self._carry_out([self._script.everybody(Phase.KEEP)])

    def go_back(self) -> None:
        self._carry_out([self._script.everybody(Phase.GO_BACK)])

    def checkpoint(self, number: int) -> bytes:
        """Everybody has written one when this returns; the server's own is what it returns."""
        self._caller.stores["number"] = pack_numbers([number])
        self._carry_out([self._script.checkpoint(self._heirs)])
        self._checkpoint, self._steps_before = number, self.steps
        return self._snapshot()

    def _snapshot(self) -> bytes:
        term, topology, stores = self.term, self.topology, self._caller.stores
        contacts = {name: _pack(values) for name, values in self._script.contacts.arrays().items()}
        snapshot = ServerSnapshot(
            format=FORMAT,
            number=self._checkpoint,
            term=term.number,
            run=self._caller.run,
            members=_pack(term.members),
            listed_offsets=_pack(topology.listed.offsets),
            listed=_pack(topology.listed.values),
            owner=_pack(topology.owner),
            planner=term.plan.planner,
            seed=topology.seed,
            publics=term.publics,
            contacts=contacts,
            interactions=self.batches.total,
            steps=self.steps,
            samples=self._samples,
            traffic=self.ledger.lines(),
            estates=stores["estates"],
            estate_keys=stores["estate keys"],
        )
        return msgspec.msgpack.encode(snapshot)

    @classmethod
    def restored(cls, content: bytes, config: Config, line: Line) -> Server:
        """From the server's own checkpoint; `resume` then takes everybody back to theirs."""
        saved = unpacked(content, ServerSnapshot, "the server's checkpoint", version=FORMAT)
        listed = Ragged(_unpack(saved.listed_offsets), _unpack(saved.listed))
        plan = Plan(_unpack(saved.owner), saved.planner)
        topology = Topology(listed, plan.owner, saved.seed)
        term = CurrentTerm(saved.term, _unpack(saved.members), plan, topology, saved.publics)
        caller = Caller(config, term.members, topology.n_items, line, saved.run)
        caller.ledger = Ledger(topology.is_owner, saved.traffic)
        script = Script(topology, config)
        script.contacts.restore({name: _unpack(one) for name, one in saved.contacts.items()})
        estates = {"estates": saved.estates, "estate keys": saved.estate_keys}
        caller.stores |= term.directory | estates
        server = cls(config, caller, term, script, saved.interactions)
        server._checkpoint = saved.number
        server.steps = server._steps_before = saved.steps
        server._samples = saved.samples
        return server

    def resume(self, stretch: int) -> None:
        """Everybody goes on from the checkpoint that this server was restored from."""
        self._caller.begin_stretch(stretch)
        numbers = np.full(self.topology.n_clients, self._checkpoint)
        self._caller.carry_out(resuming(numbers))

    def _carry_out(self, rounds: Iterable[Round]) -> None:
        self._caller.begin_pass()
        for one in rounds:
            self._caller.carry_out(one)

    def _catalogue(self, phase: Phase, clients: Int64, numbers: int) -> None:
        with self.ledger.measuring():
            self._carry_out(self._script.prediction())
            self._caller.carry_out(self._script.catalogue(phase, clients, numbers))

    def _sum(self, phase: Phase) -> float:
        self._carry_out([self._script.sums(phase)])
        return fixed_point.decode(self._masked_totals()[0])

    def _masked_totals(self) -> list[int]:
        """The sums of the clients' masked numbers modulo 2^64, in which the masks cancel."""
        rows = self._caller.stores["masked"]
        masked = np.frombuffer(b"".join(rows), dtype="<u8").reshape(len(rows), -1)
        return [int(total) for total in masked.sum(axis=0, dtype=np.uint64)]


def _pack(values: Int64) -> bytes:
    return values.astype("<i8").tobytes()


def _unpack(content: bytes) -> Int64:
    return np.frombuffer(content, dtype="<i8").astype(np.int64)
