"""Among how many: what a carrier does when its clients are too few to hide."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
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
from lpgcn.runtime.runs.kept_virtual_items import KeptVirtualItems
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
        cooccurrence: Path | None = None, kept: KeptVirtualItems | None = None,
        more: dict[int, int | str] | None = None,
    ) -> None:  # fmt: skip
        """Some users have an item `more` to train on."""
        self.events = Terms()
        people = passengers(split, range(split.n_users), folder, seed=3)
        for user, item in (more or {}).items():
            parts = people[user].parts
            parts = {**parts, "train": [*parts["train"], item]}
            people[user] = replace(people[user], parts=parts)
        self.vehicle = Vehicle(
            people, "bus",
            Participation(least_members=least_members, cooccurrence=cooccurrence, kept=kept),
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


def begin(split: Split, config: Config, bus: Bus, stretch: int = 1) -> Server:
    members, planner = np.arange(split.n_users), planner_for(split, config)
    return Server.begin(config, members, split.n_items, planner, Line(bus), stretch)


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


def test_who_was_left_behind_and_comes_back_with_more_remembers_the_list_it_sends(
    split: Split, tmp_path: Path
) -> None:
    """It has checkpoints, but is asked to begin anew, and lists what it has now. What is new there
    must be on its lists of later runs, too, or the server knows that it was virtual."""
    config, path = CONFIG.changed(virtual_items="1.0x"), tmp_path / "bus.virtual-items"
    bus = Bus(split, config, tmp_path, USERS, kept=KeptVirtualItems(path))
    begin(split, config, bus).checkpoint(1)
    first = path.read_bytes()
    own = {item for part in split.parts.values() for item in part.items_of(0).tolist()}
    new = next(item for item in range(split.n_items) if item not in own)
    bus = Bus(
        split, config, tmp_path, USERS,
        kept=KeptVirtualItems(path), more={0: split.item_ids[new]},
    )  # fmt: skip
    assert path.read_bytes() == first, "it may be asked to go on, which it cannot with other data"
    begin(split, config, bus, 2)
    users = msgspec.json.decode(path.read_bytes())["users"]
    for number, client in bus.vehicle.clients.items():
        kept, about = users[str(split.user_ids[number])], client.party._about
        virtual, real = (
            {str(split.item_ids[item]) for item in about.items(part).tolist()}
            for part in ("virtual", "train")
        )
        assert virtual <= set(kept["virtual"])
        assert real == {item for item, part in kept["own"].items() if part == "train"}
    assert path.read_bytes() != first
