"""A federation whose clients are elsewhere: they crash, come back, leave and join.

Whoever restarts has its last checkpoints; everybody goes back to one that all have, in a new
stretch. Who stays away past the patience is waited for, or left behind in a new term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, Protocol

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.checkpoints import CheckpointError, Checkpoints
from lpgcn.config import Config
from lpgcn.protocol.server.server import Line, Planner, Transport, Watch
from lpgcn.runtime.engines.engine import RunInterruptedError
from lpgcn.runtime.engines.federation import Federation
from lpgcn.runtime.hosts.nats.switchboard import Interrupted, MemberError, Presence

OnMissing = Literal["wait", "leave"]


class Exchange(Transport, Protocol):
    """The network, as far as the engine knows it: see `hosts.nats.switchboard`."""

    patience: float

    def present(self) -> dict[int, Presence]: ...

    def wait_until(
        self,
        predicate: Callable[[Mapping[int, Presence]], bool],
        progress: Callable[[Mapping[int, Presence]], None] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[int, Presence]: ...

    def watch_members(self, members: Iterable[int]) -> None: ...

    def close(self) -> None: ...


class Waiting:
    """Told who is waited for; this one tells nobody."""

    def gathering(self, present: int, wanted: int, missing: list[int]) -> None:
        """So many of the wanted are present; some of the others."""

    def interrupted(self, error: RunInterruptedError) -> None: ...

    def term_began(self, number: int, joined: list[int], left: list[int]) -> None: ...


class Networked(Federation):
    """`clients` are waited for at the beginning; who comes later joins at a checkpoint."""

    def __init__(
        self,
        config: Config,
        clients: int,
        n_items: int,
        planner: Planner,
        exchange: Exchange,
        checkpoints: Checkpoints,
        *,
        on_missing: OnMissing = "wait",
        waiting: Waiting | None = None,
        watch: Watch | None = None,
    ) -> None:
        nobody = np.empty(0, dtype=np.int64)
        line = Line(exchange, None, watch)
        super().__init__(config, nobody, n_items, planner, line, checkpoints)
        self._clients, self._exchange, self._on_missing = clients, exchange, on_missing
        self._waiting = waiting or Waiting()
        self._sessions: dict[int, str] = {}
        """Of those who have written all checkpoints since, as far as this process knows."""
        self._given_up: frozenset[int] = frozenset()

    def begin(self) -> None:
        """With the first who are present; the others join later."""
        present = self._gather(lambda found: len(found) >= self._clients, range(self._clients))
        self._members = np.array(sorted(present)[: self._clients], dtype=np.int64)
        self._take_sessions(self._members)
        super().begin()

    def resume(self, number: int) -> bool:
        """With all members of that checkpoint, or, after the patience, with those who are left."""
        if not number:
            return super().resume(0)
        self._restore(number)
        wanted = set(self._members.tolist())
        present = self._gather(lambda found: wanted <= found.keys(), wanted)
        left = np.array(self._able(number, sorted(wanted & present.keys()), present))
        self._take_sessions(left)
        try:
            if len(left) == len(wanted):
                self.server.resume(self._next_stretch())
                return False
            self._change(left)
        except MemberError as error:
            if error.kind == CheckpointError.__name__:
                raise CheckpointError(str(error)) from error
            raise
        return True

    def _able(self, number: int, members: list[int], present: Mapping[int, Presence]) -> list[int]:
        """Who has been there all the time has the checkpoint; who came back says what it has."""
        able = [
            member
            for member in members
            if self._sessions.get(member) == present[member].session
            or number in present[member].checkpoints
        ]
        if len(able) < len(members) and self._on_missing == "wait":
            one = present[min(set(members) - set(able))]
            raise CheckpointError(
                f"{len(members) - len(able)} clients, one of them of {one.name}, came back without "
                f"checkpoint {number}; it has {', '.join(map(str, one.checkpoints)) or 'none'}: "
                "bring its folder back, or serve with --on-missing leave"
            )
        return able

    def recover(self, error: RunInterruptedError) -> list[int]:
        self._waiting.interrupted(error)
        if isinstance(error, Interrupted):
            self._given_up = error.silent
        return self._checkpoints.numbers()

    def renew(self) -> bool:
        """Who is present and no member joins."""
        members = set(self._members.tolist())
        joined = self._exchange.present().keys() - members
        if not joined:
            return False
        everybody = np.array(sorted(members | joined), dtype=np.int64)
        self._take_sessions(everybody)
        self._change(everybody)
        return True

    def _change(self, members: Int64) -> None:
        before = self._members
        self.change_members(members)
        joined, left = np.setdiff1d(members, before), np.setdiff1d(before, members)
        self._waiting.term_began(self.server.term.number, joined.tolist(), left.tolist())

    def _gather(
        self, complete: Callable[[Mapping[int, Presence]], bool], wanted: Iterable[int]
    ) -> dict[int, Presence]:
        """Wait for those who are wanted; if members may be left behind, not for ever."""
        everybody = set(wanted)

        def tell(present: Mapping[int, Presence]) -> None:
            missing = sorted(everybody - present.keys())
            self._waiting.gathering(len(everybody) - len(missing), len(everybody), missing)

        timeout = None
        if self._on_missing == "leave" and self._server is not None:
            # Who has been silent for so long that a round was given up is not waited for again.
            missing = everybody - self._exchange.present().keys()
            timeout = 0.0 if missing <= self._given_up else self._exchange.patience
        try:
            return self._exchange.wait_until(complete, tell, timeout=timeout)
        except TimeoutError:
            return self._exchange.present()
        finally:
            self._given_up = frozenset()

    def _take_sessions(self, members: Int64) -> None:
        wanted = members.tolist()
        # Before looking: who restarts in between is told of.
        self._exchange.watch_members(wanted)
        present = self._exchange.present()
        self._sessions = {one: present[one].session for one in wanted if one in present}

    def inspector(self) -> None:
        """There is no door into somebody else's device."""

    def close(self) -> None:
        self._exchange.close()
