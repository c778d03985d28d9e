"""Among how many: what a carrier does when its clients are too few to hide."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from lpgcn.config import Config
from lpgcn.data import Split, load
from lpgcn.errors import LpgcnError
from lpgcn.model.cooccurrence import Cooccurrence
from lpgcn.protocol.server.server import Line, Server
from lpgcn.runtime.estimation import some_users
from lpgcn.runtime.hosts.nats.frames import VERSION, Welcome
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs.carrying import CarryingEvents, Participation, Vehicle
from lpgcn.runtime.runs.catalogue import Prospectus, PublicCatalogue
from lpgcn.runtime.runs.passengers import CarryingError, passengers

CONFIG = Config(
    model="lightgcn", mode="federated", planner="cover", layers=1, dim=4, batch_size=64,
    virtual_items="2",
)  # fmt: skip
POOLED = CONFIG.changed(loss="softmax", batch_size="full", negatives=8)
USERS = 8


@pytest.fixture(scope="module")
def split() -> Split:
    return some_users(load("demo"), USERS, 0)


class Terms(CarryingEvents):
    def __init__(self) -> None:
        self.members: list[int] = []

    def term_began(self, fingerprint: str, members: int) -> None:
        self.members.append(members)


class Bus:
    """A vehicle as the server's transport."""

    def __init__(
        self, split: Split, config: Config, folder: Path, least_members: int,
        cooccurrence: Path | None = None,
    ) -> None:  # fmt: skip
        self.events = Terms()
        self.vehicle = Vehicle(
            passengers(split, range(split.n_users), folder, seed=3), "bus",
            Participation(least_members=least_members, cooccurrence=cooccurrence),
            events=self.events,
        )  # fmt: skip
        about = Prospectus(
            federation="films", config=config.changed(seed=0), clients=split.n_users,
            catalogue=PublicCatalogue.of(split.train, split.item_ids),
        )  # fmt: skip
        places = {number: number for number in range(split.n_users)}
        self._handlers = self.vehicle.admit(Welcome(VERSION, msgspec.msgpack.encode(about), places))
        self.answers = 0

    def call(self, requests: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
        for client, request in requests:
            answer = self._handlers[client](request)
            self.answers += 1
            yield client, answer


def begin(split: Split, config: Config, bus: Bus) -> None:
    members = np.arange(split.n_users)
    Server.begin(config, members, split.n_items, planner_for(split, config), Line(bus), 1)


def test_a_carrier_whose_clients_want_more_leaves_and_stops_nobody(
    split: Split, tmp_path: Path
) -> None:
    """A typed error would be sent to the server, and end the run of all: see `Carrier`."""
    bus = Bus(split, CONFIG, tmp_path, USERS + 1)
    with pytest.raises(Exception, match=f"a term of {USERS}, expected {USERS + 1}") as left:
        begin(split, CONFIG, bus)
    assert not isinstance(left.value, LpgcnError)
    assert bus.answers == USERS, "everybody resumes, and nobody sends a key"


@pytest.mark.parametrize(("config", "warns"), [(POOLED, True), (CONFIG, False)])
def test_clients_are_warned_where_they_are_too_few_to_hide(
    split: Split, tmp_path: Path, config: Config, warns: bool
) -> None:
    """The server's warning is for its operator only."""
    bus = Bus(split, config, tmp_path, USERS)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        begin(split, config, bus)
    assert bus.events.members == [USERS]
    assert [str(one.message)[:9] for one in seen] == [f"{USERS} clients"] * warns
    assert all("--least-members 32" in str(one.message) for one in seen)


def test_no_file_that_the_server_names_is_opened(split: Split, tmp_path: Path) -> None:
    """What goes together is read from the machine's own file, or the clients do not take part."""
    theirs, own = tmp_path / "theirs", tmp_path / "own.npz"
    Cooccurrence.counted(split.train.by_user, split.n_items).write(own)
    config = CONFIG.changed(virtual_items="2", virtual_draw="coherent", cooccurrence=str(theirs))
    with pytest.raises(CarryingError, match="give --cooccurrence FILE"):
        Bus(split, config, tmp_path / "without", USERS)
    bus = Bus(split, config, tmp_path / "with", USERS, cooccurrence=own)
    begin(split, config, bus)
    assert bus.events.members == [USERS] and not theirs.exists()
