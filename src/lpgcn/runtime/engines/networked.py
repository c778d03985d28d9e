"""A federation whose clients are elsewhere: they crash, come back, leave and join.

Whoever restarts has its last checkpoints; everybody goes back to one that all have, in a new
stretch. Who stays away past the patience is waited for, or left behind in a new term.

What the server learns are sums over a term's members, and from two terms their difference. So no
term has fewer members than `least_members`, and newcomers wait until `least_change` of them can
join together. Who is lost does not wait for others to be lost: everybody else would wait, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal, Protocol

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.checkpoints import CheckpointError, Checkpoints
from lpgcn.config import Config
from lpgcn.protocol.errors import TooFewMembersError
from lpgcn.protocol.server.server import Line, Planner, Transport, Watch
from lpgcn.runtime.crowd import warn_of_small_change
from lpgcn.runtime.engines.engine import RunInterruptedError
from lpgcn.runtime.engines.federation import Federation
from lpgcn.runtime.hosts.nats.switchboard import Interrupted, MemberError, Presence
from lpgcn.terms import LEAST_MEMBERS

OnMissing = Literal["wait", "leave"]


class Network(Transport, Protocol):
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

    def held_back(self, newcomers: int, least: int) -> None:
        """So many could join, if they were `least`."""

    def term_began(self, number: int, joined: list[int], left: list[int]) -> None: ...


class Networked(Federation):
    """`clients` are waited for at the beginning; who comes later joins at a checkpoint.

    The first term has exactly these: how large initial vectors are depends on their number.
    """

    def __init__(
        self,
        config: Config,
        clients: int,
        n_items: int,
        planner: Planner,
        exchange: Network,
        checkpoints: Checkpoints,
        *,
        on_missing: OnMissing = "wait",
        least_members: int = LEAST_MEMBERS,
        least_change: int = 1,
        waiting: Waiting | None = None,
        watch: Watch | None = None,
    ) -> None:
        nobody = np.empty(0, dtype=np.int64)
        line = Line(exchange, None, watch)
        super().__init__(config, nobody, n_items, planner, line, checkpoints)
        self._clients, self._exchange, self._on_missing = clients, exchange, on_missing
        self._least_members, self._least_change = least_members, least_change
        self._check_members(clients)
        self._waiting = waiting or Waiting()
        self._held_back = 0
        self._sessions: dict[int, str] = {}
        """Of those who have written all checkpoints since, as far as this process knows."""
        self._given_up: frozenset[int] = frozenset()

    def begin(self) -> None:
        """With the first who are present; the others join later. There is no term yet that anybody
        could be left behind by, so that it does not begin with fewer."""
        told = self._telling(range(self._clients))
        present = self._exchange.wait_until(lambda found: len(found) >= self._clients, told)
        self._given_up = frozenset()
        self._members = np.array(sorted(present)[: self._clients], dtype=np.int64)
        self._take_sessions(self._members)
        super().begin()

    def resume(self, number: int) -> bool:
        """With all members of that checkpoint, or, after the patience, with those who are left and
        whoever could join."""
        if not number:
            return super().resume(0)
        self._restore(number)
        self._check_members(len(self._members))
        members = self._present_at(number)
        unchanged = np.array_equal(members, self._members)
        self._take_sessions(members)
        try:
            if unchanged:
                self.server.resume(self._next_stretch())
                return False
            self._change(members)
        except MemberError as error:
            if error.kind == CheckpointError.__name__:
                raise CheckpointError(str(error)) from error
            raise
        return True

    def _check_members(self, members: int) -> None:
        if members < self._least_members:
            raise TooFewMembersError(
                f"a term of {members}, expected {self._least_members} members or more "
                f"(--least-members, {LEAST_MEMBERS} at least): a sum over fewer says too much "
                "about each of them; ask for fewer, or begin a run with more"
            )

    def _following(self, number: int, present: Mapping[int, Presence]) -> list[int]:
        """Who goes on from a checkpoint with those who are present: all members, or those of them
        that are left and, as there is a new term anyway, all newcomers. Nobody, if those who are
        left have not the state of all items, for it would be lost."""
        members = set(self._members.tolist())
        able = self._able(number, sorted(members & present.keys()), present)
        if len(able) == len(members):
            return able
        if not self.server.is_all_with(np.array(able, dtype=np.int64)):
            return []
        return sorted({*able} | present.keys() - members)

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
        """Who is present and no member joins, if they are enough to hide among one another."""
        members = set(self._members.tolist())
        joined = self._exchange.present().keys() - members
        if len(joined) < self._least_change:
            self._hold_back(len(joined))
            return False
        everybody = np.array(sorted(members | joined), dtype=np.int64)
        self._take_sessions(everybody)
        self._change(everybody)
        return True

    def _hold_back(self, newcomers: int) -> None:
        """Said when their number has changed, not at every checkpoint."""
        if newcomers and newcomers != self._held_back:
            self._waiting.held_back(newcomers, self._least_change)
        self._held_back = newcomers

    def _change(self, members: Int64) -> None:
        before, self._held_back = self._members, 0
        joined, left = np.setdiff1d(members, before), np.setdiff1d(before, members)
        warn_of_small_change(len(joined) + len(left), self._least_change)
        self.change_members(members)
        self._waiting.term_began(self.server.term.number, joined.tolist(), left.tolist())

    def _present_at(self, number: int) -> Int64:
        """Wait for all members; if they may be left behind, not for ever, but always for enough."""
        wanted = set(self._members.tolist())
        told, timeout = self._telling(wanted), None
        if self._on_missing == "leave":
            # Who has been silent for so long that a round was given up is not waited for again.
            missing = wanted - self._exchange.present().keys()
            timeout = 0.0 if missing <= self._given_up else self._exchange.patience
        try:
            found = self._exchange.wait_until(
                lambda present: wanted <= present.keys(), told, timeout=timeout
            )
        except TimeoutError:
            found = self._exchange.present()
        finally:
            self._given_up = frozenset()
        if len(self._following(number, found)) < self._least_members:
            found = self._exchange.wait_until(
                lambda present: len(self._following(number, present)) >= self._least_members, told
            )
        return np.array(self._following(number, found), dtype=np.int64)

    def _telling(self, wanted: Collection[int]) -> Callable[[Mapping[int, Presence]], None]:
        def tell(present: Mapping[int, Presence]) -> None:
            missing = sorted(set(wanted) - present.keys())
            self._waiting.gathering(len(wanted) - len(missing), len(wanted), missing)

        return tell

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
