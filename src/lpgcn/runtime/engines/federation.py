"""A server and its clients, wherever these are, as an `Engine`."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from lpgcn.array_types import Int64
from lpgcn.checkpoints import Checkpoints, unpacked
from lpgcn.config import Config
from lpgcn.evaluation import Evaluation
from lpgcn.protocol.ledger import Ledger
from lpgcn.protocol.server.server import Line, Planner, Server
from lpgcn.runtime.crowd import warn_of_few
from lpgcn.runtime.engines.engine import Part, RunInterruptedError
from lpgcn.runtime.traffic import TrafficSummary, summarise
from lpgcn.terms import Term

FIRST: Final = (0, 0)


class Saved(msgspec.Struct, frozen=True, kw_only=True):
    """The engine's checkpoint: the server's, where the next step is, and the log of terms."""

    server: bytes
    epoch: int
    step: int
    terms: tuple[Term, ...]


class Federation:
    """Drives the server. The clients' own state stays with them, at every phase."""

    def __init__(
        self, config: Config, members: Int64, n_items: int, planner: Planner, line: Line,
        checkpoints: Checkpoints,
    ) -> None:  # fmt: skip
        self._config, self._members, self._n_items = config, members, n_items
        self._planner, self._line, self._checkpoints = planner, line, checkpoints
        self._server: Server | None = None
        self._at = FIRST
        self._warned_of = 0
        """How many members a warning was last due for."""
        self.terms: tuple[Term, ...] = ()
        """The log, as far as the run has come."""

    @property
    def config(self) -> Config:
        return self._config

    @property
    def server(self) -> Server:
        assert self._server is not None, "a federation begins, or resumes, before anything else"
        return self._server

    def _next_stretch(self) -> int:
        """Durable before it is used, so that no pass is ever numbered like another one."""
        number = self._checkpoints.stretch + 1
        self._checkpoints.begin_stretch(number)
        return number

    def begin(self) -> None:
        self._warn_of_few(len(self._members))
        self._server = Server.begin(
            self._config, self._members, self._n_items, self._planner, self._line,
            self._next_stretch(),
        )  # fmt: skip
        self._at, self.terms = FIRST, (_term(FIRST, self._members),)

    def checkpoint(self, number: int, epoch: int, step: int) -> None:
        self._at = epoch, step
        saved = Saved(
            server=self.server.checkpoint(number), epoch=epoch, step=step, terms=self.terms
        )
        self._checkpoints.write(number, msgspec.msgpack.encode(saved))

    def resume(self, number: int) -> bool:
        """With the members of that checkpoint."""
        if number:
            self._restore(number)
            self.server.resume(self._next_stretch())
        else:
            self.begin()
        return False

    def recover(self, error: RunInterruptedError) -> list[int]:
        raise error

    def _restore(self, number: int) -> None:
        saved = unpacked(self._checkpoints.read(number), Saved, f"checkpoint {number}")
        self._server = Server.restored(saved.server, self._config, self._line)
        self._members = self._server.term.members
        self._at, self.terms = (saved.epoch, saved.step), saved.terms
        self._warn_of_few(len(self._members))

    def change_members(self, members: Int64) -> None:
        """A new term, from the last checkpoint on; the next one is due at once."""
        self._warn_of_few(len(members))
        self._server = self.server.changed(members, self._planner, self._line, self._next_stretch())
        self._members = members
        self.terms = (*self.terms, _term(self._at, members))

    def _warn_of_few(self, members: int) -> None:
        """Not again at every interruption, as long as they are as many."""
        if members != self._warned_of:
            self._warned_of = members
            advice = "choose loss bpr, a smaller --dim, or wait for more clients"
            warn_of_few(self._config, members, advice)

    def renew(self) -> bool:
        """Nobody joins or leaves unless somebody asks for it."""
        return False

    @property
    def ledger(self) -> Ledger:
        return self.server.ledger

    def approach(self, epoch: int, step: int) -> None:
        """A term begins after a checkpoint, not on the way."""

    @property
    def steps_per_epoch(self) -> int:
        return self.server.batches.steps

    def step(self, epoch: int, step: int, learning_rate: float) -> None:
        self.server.step(epoch, step, learning_rate)

    def take_loss(self) -> float:
        return self.server.take_loss()

    def measure(self, part: Part) -> Evaluation:
        return self.server.measure(part)

    def keep(self) -> None:
        self.server.keep()

    def go_back(self) -> None:
        self.server.go_back()

    def traffic(self) -> TrafficSummary:
        server = self.server
        example = server.batches.draw(0, 0)
        return summarise(
            self._config, server.plan, server.topology, self.ledger, server.steps, example
        )


def _term(at: tuple[int, int], members: Int64) -> Term:
    return Term(epoch=at[0], step=at[1], members=tuple(np.asarray(members).tolist()))
