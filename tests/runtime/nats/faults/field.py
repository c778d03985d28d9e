"""A federation of real processes in which things go wrong where a test wants them to.

Nothing in the product helps: a spy with credentials of its own hears everything that passes through
the broker, and whoever is to be killed is killed from outside, when a message of a chosen phase
passes by.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, Union

import msgspec

from lpgcn.protocol.phases import PHASES, REQUESTS, Phase
from lpgcn.runtime.hosts.nats import frames as f
from lpgcn.runtime.hosts.nats import jwt
from lpgcn.runtime.hosts.nats.authority import FederationFolder
from lpgcn.runtime.hosts.nats.broker import Broker
from lpgcn.runtime.hosts.nats.connection import Connection, Watch
from lpgcn.runtime.hosts.nats.credentials import Credentials
from lpgcn.runtime.runs.catalogue import PublicCatalogue
from lpgcn.runtime.runs.passengers import ClientSeeds
from lpgcn.runtime.runs.source import Source
from lpgcn.terms import Term, read_terms

SECONDS = 240.0
"""Nothing takes longer, even on a machine that has other things to do."""
SEED = 4711
WHOEVER = "whoever"
"""The party whose message it is."""
_TAIL = 40
_HEADER = struct.Struct(">B16sQBBI")
_MESSAGES: dict[str, msgspec.msgpack.Decoder[Any]] = {
    "down": msgspec.msgpack.Decoder(REQUESTS),
    "up": msgspec.msgpack.Decoder(Union[tuple({row.reply for row in PHASES.values()})]),  # noqa: UP007
}
_EXEC = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the test has ended")
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Becomes another program that does not outlive the test, even one that is killed."""


class Party:
    """A process of the federation: it can be killed, frozen, and started again as it was."""

    def __init__(self, name: str, arguments: Sequence[object], log: Path) -> None:
        self.name, self.log = name, log
        self.arguments = [sys.executable, "-P", "-m", "lpgcn", *map(str, arguments)]
        self.process: subprocess.Popen[bytes] | None = None
        self.starts = 0
        self._excused = False
        """Whether the test itself has ended it."""

    def start(self) -> None:
        """In the test's main thread: the process ends with the thread that started it."""
        assert self.process is None or self.process.poll() is not None, f"{self.name} is running"
        wrapped = [sys.executable, "-I", "-S", "-c", _EXEC, str(os.getpid()), *self.arguments]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                wrapped, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.starts += 1
        self._excused = False

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self._excused |= number in (signal.SIGKILL, signal.SIGTERM)
        self.process.send_signal(number)

    def kill(self) -> None:
        """As often as one likes."""
        if self.process is not None:
            self.send(signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        """With time to say goodbye."""
        assert self.process is not None
        self.send(signal.SIGTERM)
        self.process.wait(SECONDS)

    def restart(self) -> None:
        self.kill()
        self.start()

    @property
    def status(self) -> int | None:
        return None if self.process is None else self.process.poll()

    @property
    def is_well(self) -> bool:
        return self._excused or self.status in (None, 0)

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


@dataclass
class Heard:
    """A frame that passed through the broker, and where in the protocol it belongs."""

    subject: str
    payload: bytes
    phase: Phase | None = None
    client: int = -1
    pass_number: int = -1
    layer: int = 0

    @property
    def direction(self) -> str:
        return self.subject.partition(".")[0]

    @property
    def carrier(self) -> str:
        return self.subject.split(".")[1]


def read(subject: str, payload: bytes) -> Heard:
    heard = Heard(subject, payload)
    if not subject.rpartition(".")[2].isdecimal():
        return heard
    frame = (f.read_down if heard.direction == "down" else f.read_up)(payload)
    if isinstance(frame, f.Part) and frame.parts == 1:
        header = _MESSAGES[heard.direction].decode(frame.body).header
        _, _, heard.pass_number, phase, heard.layer, heard.client = _HEADER.unpack(header)
        heard.phase = Phase(phase)
    return heard


@dataclass(frozen=True)
class Point:
    """Somebody is killed when a message of a phase passes: down, before its answer; up, after."""

    party: str
    phase: Phase
    direction: str = "down"
    nth: int = 1

    def matches(self, heard: Heard) -> bool:
        concerned = self.party in ("server", "broker", WHOEVER) or heard.carrier == self.party
        return heard.phase == self.phase and heard.direction == self.direction and concerned

    def __str__(self) -> str:
        return f"{self.party} at {self.phase.name} {self.direction} {self.nth}"


@dataclass(frozen=True)
class LastWord:
    """Somebody is killed when it, or anybody, is told that the run is over."""

    party: str
    nth: int = 1

    def matches(self, heard: Heard) -> bool:
        concerned = self.party in ("server", "broker") or heard.carrier == self.party
        return (
            heard.subject.endswith(".control")
            and concerned
            and isinstance(f.read_down(heard.payload), f.Finished)
        )


@dataclass
class Trap:
    """Waits for the n-th message of a kind and then acts, in the spy's thread, at once."""

    matches: Callable[[Heard], bool]
    act: Callable[[Heard], None]
    left: int
    sprung: SimpleQueue[Heard] = field(default_factory=SimpleQueue)

    def hear(self, heard: Heard) -> bool:
        """Whether it is over."""
        if not self.matches(heard):
            return False
        self.left -= 1
        if self.left:
            return False
        self.act(heard)
        self.sprung.put(heard)
        return True


class _SpyWatch(Watch):
    def __init__(self, connected: Event) -> None:
        self._connected = connected

    def reconnected(self) -> None:
        self._connected.set()


class Spy:
    """Hears all frames; on request it sends them again, late and in another order."""

    def __init__(self, options: dict[str, Any]) -> None:
        # What it sends itself does not come back to it.
        self.connected = Event()
        self._connection = Connection({**options, "no_echo": True}, _SpyWatch(self.connected))
        self._connection.open()
        self.trap: Trap | None = None
        self.phases: set[Phase] = set()
        self.repeated = 0
        self._noise: random.Random | None = None
        self._kept: deque[Heard] = deque(maxlen=400)
        for subject in ("down.>", "up.>"):
            self._connection.subscribe(subject, self._hear)

    def _hear(self, subject: str, payload: bytes) -> None:
        heard = read(subject, payload)
        if heard.phase is not None:
            self.phases.add(heard.phase)
        if self.trap is not None and self.trap.hear(heard):
            self.trap = None
        if self._noise is not None:
            self._disturb(heard, self._noise)

    def _disturb(self, heard: Heard, rng: random.Random) -> None:
        """Once more at once, and with it some old ones, in any order."""
        self._kept.append(heard)
        again = rng.sample(self._kept, min(2, len(self._kept)))
        if rng.random() < 0.5:
            again.append(heard)
        rng.shuffle(again)
        self.repeated += len(again)
        self._connection.post([(one.subject, one.payload) for one in again])

    def disturb(self, seed: int | None) -> None:
        self._noise = None if seed is None else random.Random(seed)

    def set_trap(
        self, matches: Callable[[Heard], bool], act: Callable[[Heard], None], nth: int = 1
    ) -> Trap:
        self.trap = trap = Trap(matches, act, nth)
        return trap

    def close(self) -> None:
        self._connection.close()


@dataclass(frozen=True)
class Data:
    """A data set in files, and the files of each of its users alone."""

    source: Source
    folder: Path
    users: tuple[str, ...]
    items: tuple[str, ...]

    def alone(self, user: int) -> list[object]:
        own = self.folder / self.users[user]
        return ["--data", f"{own}.train.csv", "--valid", f"{own}.valid.csv",
                "--test", f"{own}.test.csv"]  # fmt: skip

    @property
    def flags(self) -> list[object]:
        source = self.source
        return [source.dataset, "--train", source.train, "--valid", source.valid,
                "--test", source.test]  # fmt: skip


class Field:
    """A federation over a network: `hosts` and `joins` say which users are whose."""

    def __init__(
        self,
        folder: Path,
        data: Data,
        settings: dict[str, object],
        *,
        port: int,
        hosts: dict[str, range],
        joins: dict[str, int],
        first: int | None = None,
        serving: dict[str, object] | None = None,
        seed: int | None = SEED,
        patience: float = 30.0,
    ) -> None:
        """`first` clients are waited for. Without a seed every client draws its own."""
        self.folder, self.data, self.settings, self.seed = folder, data, settings, seed
        self.hosts, self.joins, self.patience = hosts, joins, patience
        self.server_folder, self.clients = folder / "server", folder / "clients"
        names = [*hosts, *joins]
        self.federation = FederationFolder.create(folder / "federation", port=port)
        for one in self.federation.enrol_all(names):
            one.save(self._credentials(one.name))
        split = data.source.open()
        PublicCatalogue.of(split.train, split.item_ids).write(folder / "catalogue.txt")
        self.broker = Broker(
            self.federation.config, log=folder / "broker.log", port=self.federation.about.place.port
        )
        self.broker.start()
        self.parties: dict[str, Party] = {}
        count = sum(map(len, hosts.values())) + len(joins)
        self._add_server(first or count, serving or {})
        for name, users in hosts.items():
            self._add_host(name, users)
        for name, user in joins.items():
            self._add_join(name, user)
        self._write_roster()
        self.spy = Spy(self._everything())

    def _credentials(self, name: str) -> Path:
        return self.folder / "credentials" / name

    def _everything(self) -> dict[str, Any]:
        """The account's own key signs for a user without limits: the test owns the federation."""
        account = jwt.Nkey(
            (self.federation.path / "keys" / "account.seed").read_text().strip(),
            jwt.NkeyKind.ACCOUNT,
        )
        user = jwt.Nkey.generate(jwt.NkeyKind.USER)
        rights = {"type": "user", "pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}
        token = jwt._signed("spy", user.public, account, rights)
        server = Credentials.load(self.federation.server_credentials)
        spy = msgspec.structs.replace(server, name="spy", token=token, seed=user.reveal())
        return spy.connect_options()

    def _add(self, name: str, *arguments: object) -> None:
        self.parties[name] = Party(name, arguments, self.folder / f"{name}.log")

    def _add_server(self, clients: int, serving: dict[str, object]) -> None:
        options = {"checkpoint-every": 2, **serving, **self.settings}
        self._add(
            "server", "serve", "--federation", self.federation.path, "--broker", self.broker.url,
            "--catalogue", self.folder / "catalogue.txt", "--clients", clients,
            "--state", self.server_folder, "--seed", SEED, "--patience", self.patience,
            *(part for name, value in options.items() for part in (f"--{name}", value)),
        )  # fmt: skip

    def _add_host(self, name: str, users: range) -> None:
        seed = [] if self.seed is None else ["--experiment-seed", self.seed]
        self._add(
            name, "host", *self.data.flags, "--users", f"{users.start}-{users.stop - 1}",
            "--credentials", self._credentials(name), "--state", self.clients, *seed,
        )  # fmt: skip

    def _add_join(self, name: str, user: int) -> None:
        folder = self.clients / str(user)
        if self.seed is not None:
            folder.mkdir(parents=True)
            owner = f"user {self.data.users[user]} of {name}"
            seeds = ClientSeeds(shared=self.seed, private=self.seed, owner=owner)
            (folder / "seeds.json").write_bytes(msgspec.json.encode(seeds))
        self._add(
            name, "join", *self.data.alone(user), "--credentials", self._credentials(name),
            "--state", folder,
        )  # fmt: skip

    def _write_roster(self) -> None:
        """Everybody has the number of its user, in whatever order they come."""
        numbers = [(name, user, user) for name, users in self.hosts.items() for user in users]
        numbers += [(name, 0, user) for name, user in self.joins.items()]
        self.server_folder.mkdir()
        roster = {"clients": numbers}
        (self.server_folder / "roster.json").write_bytes(msgspec.json.encode(roster))

    def via(self, name: str, url: str) -> None:
        """A party reaches the broker over another address from its next start on."""
        self.parties[name].arguments += ["--broker", url]

    def twin(self, name: str) -> Party:
        """A second process with the same command line."""
        return Party(name, self.parties[name].arguments[4:], self.folder / f"{name}-twin.log")

    def start(self, *names: str) -> None:
        for name in names or self.parties:
            self.parties[name].start()

    def start_in_time(self, name: str) -> None:
        """However long that takes, the run does not go on before this party has said hello."""
        server, party = self.parties["server"], self.parties[name]

        def says_hello(heard: Heard) -> bool:
            return heard.carrier == name and heard.subject.endswith(".hello")

        server.send(signal.SIGSTOP)
        trap = self.spy.set_trap(says_hello, lambda _: server.send(signal.SIGCONT))
        party.start()
        self.wait_for(trap, f"{name} says hello")

    # What a test waits for: everything has an end, and a failure shows what everybody said.

    def wait(self, done: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + SECONDS
        while not done():
            for party in self.parties.values():
                assert party.is_well, f"{party.name} failed before {what}\n{self.story()}"
            assert time.monotonic() < end, f"waited in vain: {what}\n{self.story()}"
            time.sleep(0.01)

    def wait_for(self, trap: Trap, what: str) -> Heard:
        server, found = self.parties["server"], list[Heard]()

        def sprung() -> bool:
            over = server.status == 0
            with suppress(Empty):
                found.append(trap.sprung.get(timeout=0.05))
            assert found or not over, f"the run ended before {what}\n{self.story()}"
            return bool(found)

        self.wait(sprung, what)
        return found[0]

    def wait_to_hear(self, name: str, text: str, times: int = 1) -> None:
        """Until a party has said something so often."""
        party = self.parties[name]
        self.wait(lambda: party.said().count(text) >= times, f"{name} says {text!r}")

    def when(
        self,
        phase: Phase,
        act: Callable[[], None] = lambda: None,
        *,
        client: int = -1,
        nth: int = 1,
    ) -> Heard:
        """Act in the moment when the answer of a client, or of any, passes for the n-th time."""

        def matches(heard: Heard) -> bool:
            mine = client < 0 or heard.client == client
            return heard.phase == phase and heard.direction == "up" and mine

        trap = self.spy.set_trap(matches, lambda _: act(), nth)
        return self.wait_for(trap, f"{phase.name} of {client}")

    def terms(self) -> list[Term]:
        """The log so far."""
        path = self.server_folder / "terms.jsonl"
        return read_terms(path) if path.exists() else []

    def wait_for_terms(self, count: int) -> None:
        self.wait(lambda: len(self.terms()) >= count, f"{count} terms")

    def strike(self, point: Point | LastWord) -> None:
        """Kill somebody there, and start it again."""
        if point.party == "broker":
            self._strike_broker(point)
            return

        def kill(heard: Heard) -> None:
            name = heard.carrier if point.party == WHOEVER else point.party
            self.parties[name].send(signal.SIGKILL)

        heard = self.wait_for(self.spy.set_trap(point.matches, kill, point.nth), str(point))
        self.parties[heard.carrier if point.party == WHOEVER else point.party].restart()

    def _strike_broker(self, point: Point | LastWord) -> None:
        """The server is frozen until the spy is back, or it would miss the points to come."""
        pid, server = self.broker.pid, self.parties["server"]

        def kill(_: Heard) -> None:
            server.send(signal.SIGSTOP)
            self.spy.connected.clear()
            os.kill(pid, signal.SIGKILL)

        self.wait_for(self.spy.set_trap(point.matches, kill, point.nth), str(point))
        self.broker.kill()
        self.broker.start()
        self.wait(self.spy.connected.is_set, "the spy is connected again")
        server.send(signal.SIGCONT)

    def finish(self) -> None:
        """Everybody ends by itself, and well."""
        running = [party for party in self.parties.values() if party.starts]
        self.wait(lambda: all(party.status == 0 for party in running), "the end of the run")

    def story(self) -> str:
        """The ends of all logs."""
        logs = [*(party.log for party in self.parties.values()), self.broker.log]
        told = []
        for log in logs:
            lines = log.read_text(errors="replace").splitlines() if log.exists() else ["(none)"]
            lines = [line for line in lines if "[INF]" not in line]
            told.append(f"--- {log.name}\n" + "\n".join(lines[-_TAIL:]))
        for party in self.parties.values():
            told.append(f"{party.name}: started {party.starts} times, status {party.status}")
        return "\n".join(told)

    def close(self) -> None:
        """Whatever was started here, by its process id."""
        self.spy.close()
        for party in self.parties.values():
            party.kill()
        self.broker.close()


@contextmanager
def opened(make: Callable[[], Field]) -> Iterator[Field]:
    made = make()
    try:
        yield made
    finally:
        made.close()


def write_data(folder: Path, n_users: int, n_items: int, seed: int) -> Data:
    """Every user has some items to train on, two to validate and two to test; every item has a
    user."""
    rng = random.Random(seed)
    users = tuple(f"user{number:02}" for number in range(n_users))
    items = tuple(f"canary-{number:02}-{rng.getrandbits(48):012x}" for number in range(n_items))
    rows: dict[str, list[tuple[str, str]]] = {"train": [], "valid": [], "test": []}
    for number, user in enumerate(users):
        sure = [items[item] for item in range(number, n_items, n_users)]
        more = rng.sample([item for item in items if item not in sure], rng.randint(7, 9))
        rows["train"] += [(user, item) for item in (*sure, *more[4:])]
        rows["valid"] += [(user, item) for item in more[:2]]
        rows["test"] += [(user, item) for item in more[2:4]]
    folder.mkdir(parents=True, exist_ok=True)
    for part, pairs in rows.items():
        _write(folder / f"{part}.csv", pairs)
        for user in users:
            _write(folder / f"{user}.{part}.csv", [pair for pair in pairs if pair[0] == user])
    files = {part: str(folder / f"{part}.csv") for part in rows}
    return Data(Source(dataset="tiny", **files), folder, users, items)


def _write(path: Path, pairs: Iterable[tuple[str, str]]) -> None:
    lines = ["user_id,item_id", *(f"{user},{item}" for user, item in pairs)]
    path.write_text("\n".join(lines) + "\n")
