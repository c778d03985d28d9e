"""Among how many: whom a federation over a network begins with, waits for, lets in and leaves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from lpgcn.checkpoints import InMemory
from lpgcn.config import Config, ConfigError
from lpgcn.data import Split, load
from lpgcn.protocol.errors import TooFewMembersError
from lpgcn.runtime.crowd import PrivacyWarning
from lpgcn.runtime.engines.networked import Networked, Waiting
from lpgcn.runtime.estimation import some_users
from lpgcn.runtime.hosts.nats.switchboard import Presence
from lpgcn.runtime.hosts.one_process import OneProcess, profiles
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs.serving import Serving

CONFIG = Config(
    model="lightgcn", mode="federated", planner="cover", layers=1, dim=4, batch_size=64,
    virtual_items="2", list_sizes="bucketed",
)  # fmt: skip
USERS = 8


class StillWaitingError(Exception):
    """Nobody comes any more, and it would wait for ever."""


class Network:
    """An exchange without a network: who is present is as the test says."""

    patience = 60.0

    def __init__(self, split: Split, config: Config) -> None:
        self._clients = OneProcess(dict(profiles(split, config))).clients
        self.here = set[int]()
        self.coming: list[int] = []
        """Who comes, one after the other, when somebody is waited for without an end."""
        self.asked = set[int]()

    def present(self) -> dict[int, Presence]:
        return {one: Presence(f"c{one}", "session", 0, ()) for one in sorted(self.here)}

    def wait_until(
        self,
        predicate: Callable[[Mapping[int, Presence]], bool],
        progress: Callable[[Mapping[int, Presence]], None] | None = None,
        *,
        timeout: float | None = None,
    ) -> dict[int, Presence]:
        while not predicate(self.present()):
            if timeout is not None:
                raise TimeoutError
            if not self.coming:
                raise StillWaitingError
            self.here.add(self.coming.pop(0))
        return self.present()

    def watch_members(self, members: Iterable[int]) -> None:
        """Nobody restarts here."""

    def call(self, requests: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        for client, request in requests:
            assert client in self.here
            self.asked.add(client)
            yield client, self._clients[client].handle(request)

    def close(self) -> None:
        """There is nothing to close."""


class Told(Waiting):
    def __init__(self) -> None:
        self.terms: list[tuple[list[int], list[int]]] = []
        self.held: list[tuple[int, int]] = []

    def held_back(self, newcomers: int, least: int) -> None:
        self.held.append((newcomers, least))

    def term_began(self, number: int, joined: list[int], left: list[int]) -> None:
        self.terms.append((joined, left))


@pytest.fixture(scope="module")
def split() -> Split:
    return some_users(load("demo"), USERS, 0)


class Trial:
    """A federation that has begun, with a checkpoint behind it."""

    def __init__(self, split: Split, first: int, **options: object) -> None:
        self.network, self.told = Network(split, CONFIG), Told()
        self._first, self._disk = first, InMemory()
        self._made = split.n_items, planner_for(split, CONFIG), self.network
        self.engine = self.started(first, **options)

    def started(self, clients: int, **options: Any) -> Networked:
        """The server as a new process."""
        return Networked(CONFIG, clients, *self._made, self._disk, waiting=self.told, **options)

    def begun(self) -> Trial:
        self.network.here = set(range(self._first))
        self.engine.begin()
        self.engine.checkpoint(1, 0, 0)
        return self

    @property
    def members(self) -> list[int]:
        found: list[int] = self.engine.server.term.members.tolist()
        return found

    def warned(self, act: Callable[[], object]) -> list[str]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            act()
        assert all(issubclass(one.category, PrivacyWarning) for one in seen)
        return [str(one.message) for one in seen]


# The first term.


def test_who_is_lost_before_the_first_checkpoint_is_waited_for(split: Split) -> None:
    """With --on-missing leave, too: a federation of whoever is left would be one of another size,
    with other initial vectors, and at worst of one."""
    trial = Trial(split, 4, on_missing="leave")
    trial.network.here = set(range(4))
    trial.engine.begin()
    trial.network.here, trial.network.asked = {2}, set()
    with pytest.raises(StillWaitingError):
        trial.engine.begin()
    assert not trial.network.asked
    trial.network.coming = [7, 5, 6]
    trial.engine.begin()
    assert trial.members == [2, 5, 6, 7]


@pytest.mark.parametrize(("clients", "least"), [(1, 2), (4, 5)])
def test_no_federation_waits_for_fewer_than_a_term_has(
    split: Split, clients: int, least: int
) -> None:
    with pytest.raises(TooFewMembersError, match=f"a term of {clients}, expected {least}"):
        Trial(split, clients, least_members=least)
    with pytest.raises(ConfigError, match=f"--clients {clients}, expected .* which is {least}"):
        Serving(clients, least_members=least)


@pytest.mark.parametrize("options", [{"least_members": 1}, {"least_change": 0}])
def test_a_floor_has_a_floor(options: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="expected 2 and 1 at least"):
        Serving(9, **options)  # type: ignore[arg-type]


# Newcomers.


def test_newcomers_wait_until_enough_can_join_together(split: Split) -> None:
    """Who joins alone would be known by the difference of two sums, though lists have few sizes."""
    trial = Trial(split, 4, least_change=2).begun()
    before = trial.engine.server.batches.total
    trial.network.here.add(5)
    for _ in range(2):
        assert not trial.engine.renew()
    assert trial.members == [0, 1, 2, 3] and trial.network.asked == {0, 1, 2, 3}
    assert trial.told.held == [(1, 2)], "once, not at every checkpoint"
    trial.network.here.add(7)
    assert trial.warned(trial.engine.renew) == []
    assert trial.told.terms == [([5, 7], [])] and trial.members == [0, 1, 2, 3, 5, 7]
    degrees = split.train.user_degrees
    assert trial.engine.server.batches.total - before == degrees[5] + degrees[7]
    trial.engine.checkpoint(2, 0, 0)
    assert not trial.engine.renew()
    assert len(trial.told.held) == 1, "nobody waits"


def test_one_alone_joins_if_nothing_else_was_asked_for(split: Split) -> None:
    trial = Trial(split, 4).begun()
    trial.network.here.add(5)
    assert trial.warned(trial.engine.renew) == []
    assert trial.members == [0, 1, 2, 3, 5] and not trial.told.held


# Who is lost.


def test_a_run_with_too_few_left_pauses_until_there_are_enough(split: Split) -> None:
    trial = Trial(split, 4, on_missing="leave", least_members=3).begun()
    trial.network.here, trial.network.asked = {0, 3}, set()
    with pytest.raises(StillWaitingError):
        trial.engine.resume(1)
    assert not trial.network.asked
    trial.network.coming = [1]
    assert trial.engine.resume(1)
    assert trial.members == [0, 1, 3]


def test_a_newcomer_takes_the_place_of_who_is_lost(split: Split) -> None:
    """Else a run at its floor could never go on: others join at a checkpoint, which never comes."""
    trial = Trial(split, 3, on_missing="leave", least_members=3, least_change=2).begun()
    trial.network.here = {0, 2}
    trial.network.coming = [6]
    assert trial.warned(lambda: trial.engine.resume(1)) == []
    assert trial.members == [0, 2, 6] and trial.told.terms == [([6], [1])]
    trial.engine.checkpoint(2, 0, 0)
    assert not trial.engine.renew()


def test_newcomers_alone_do_not_go_on_with_a_run(split: Split) -> None:
    trial = Trial(split, 3, on_missing="leave").begun()
    trial.network.here = {5, 6, 7}
    with pytest.raises(StillWaitingError):
        trial.engine.resume(1)
    trial.network.coming = [1]
    assert trial.engine.resume(1)
    assert trial.members == [1, 5, 6, 7]


def test_a_run_whose_items_would_be_lost_waits_for_an_heir() -> None:
    """Half of the members, on one machine, are gone, and with them all copies of some items."""
    half, whole = set(range(20)), some_users(load("demo"), 40, 0)
    trial = Trial(whole, 40, on_missing="leave").begun()
    trial.network.here, trial.network.asked = set(half), set()
    assert not trial.engine.server.is_all_with(np.array(sorted(half)))
    with pytest.raises(StillWaitingError):
        trial.engine.resume(1)
    assert not trial.network.asked
    trial.network.coming = list(range(20, 40))
    trial.engine.resume(1)
    assert half < set(trial.members)


@pytest.mark.parametrize(("least", "warns"), [(1, False), (2, True)])
def test_who_is_lost_alone_is_left_behind_with_a_warning(
    split: Split, least: int, warns: bool
) -> None:
    trial = Trial(split, 4, on_missing="leave", least_change=least).begun()
    trial.network.here = {0, 1, 2}
    told = trial.warned(lambda: trial.engine.resume(1))
    assert trial.members == [0, 1, 2]
    assert ["1 joined or left, expected 2" in one for one in told] == [True] * warns


def test_who_waits_for_all_does_not_let_newcomers_in_on_the_way(split: Split) -> None:
    """The members are all there again: nothing has changed, and nothing changes."""
    trial = Trial(split, 3).begun()
    trial.network.here = {0, 1, 5}
    trial.network.coming = [2]
    assert not trial.engine.resume(1)
    assert trial.members == [0, 1, 2] and not trial.told.terms


def test_a_run_is_not_continued_in_a_term_of_too_few(split: Split) -> None:
    trial = Trial(split, 4, least_members=4).begun()
    trial.network.here.add(5)
    assert trial.engine.renew()
    trial.engine.checkpoint(2, 0, 0)
    trial.network.asked = set()
    with pytest.raises(TooFewMembersError, match="a term of 5, expected 6 members or more"):
        trial.started(6, least_members=6).resume(2)
    assert not trial.network.asked
