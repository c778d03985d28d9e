"""`serve`, `join`, `host` and `federation up`, through the command line and as processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result

from lpgcn.checkpoints import InFolder
from lpgcn.cli import main
from lpgcn.cli.carrying_display import connect_options
from lpgcn.cli.logs import EventLog, telling
from lpgcn.cli.roll import Roll
from lpgcn.cli.serving_display import ServingDisplay, Several
from lpgcn.cli.serving_log import ServingLog
from lpgcn.config import Config
from lpgcn.evaluation import EarlyStopping, EvaluationWarning
from lpgcn.files import held
from lpgcn.protocol.client.standing import ClientSnapshot
from lpgcn.protocol.phases import Phase
from lpgcn.runtime.crowd import warn_of_small_change
from lpgcn.runtime.hosts.nats.authority import FederationFolder
from lpgcn.runtime.hosts.nats.broker import Broker
from lpgcn.runtime.hosts.nats.connection import Connection
from lpgcn.runtime.hosts.nats.credentials import Credentials, CredentialsError
from lpgcn.runtime.hosts.nats.enrolment import accept_enrolment, request_enrolment
from lpgcn.runtime.hosts.nats.jwt import Nkey, NkeyKind
from lpgcn.runtime.hosts.nats.switchboard import Interrupted
from lpgcn.runtime.runs.local_network import HostError, LocalNetwork
from lpgcn.runtime.runs.run_folder import Progress, Run
from lpgcn.runtime.runs.serving import Serving, ServingObserver, secret_seed
from lpgcn.runtime.runs.source import Source

SECONDS = 300
SMALL = ["--dim", "4", "--layers", "2", "--epochs", "2", "--eval-every", "1"]
ITEMS = [f"planted-{number:02}" for number in range(30)]
"""Ids that are looked for in logs."""
GATHERING = '"event":"gathering"'


def lpgcn(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in arguments])


def csv(users: dict[str, list[str]]) -> str:
    rows = [f"{user},{item}\n" for user, items in users.items() for item in items]
    return "user_id,item_id\n" + "".join(rows)


def items_of(number: int) -> list[str]:
    return sorted({ITEMS[(number * 7 + k * k) % 30] for k in range(10)})


def features(path: Path, ids: list[str], width: int) -> Path:
    values = np.random.default_rng(width).normal(size=(len(ids), width))
    np.savez(path, ids=np.array(ids), features=values)
    return path


class Command:
    """A command that runs; its output is in files, so that it never waits for a reader."""

    def __init__(self, stack: ExitStack, place: Path, *arguments: object) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.out, self.log = place / "out.txt", place / "log.txt"
        with self.out.open("wb") as out, self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "lpgcn", *map(str, arguments)],
                stdout=out, stderr=log, stdin=subprocess.DEVNULL,
                # Who is killed leaves its files where pytest clears up.
                env={**os.environ, "TMPDIR": str(place)},
            )  # fmt: skip
        stack.callback(self._end)

    def _end(self) -> None:
        self.process.kill()
        self.process.wait()

    def wait_to_hear(self, words: str) -> None:
        """Until its log has them."""
        end = time.monotonic() + SECONDS
        while words not in self.log.read_text():
            try:
                self.process.wait(0.02)
            except subprocess.TimeoutExpired:
                assert time.monotonic() < end, self.log.read_text()
            else:
                raise AssertionError(f"ended too early: {self.log.read_text()}")

    def finish(self, code: int = 0) -> str:
        assert self.process.wait(SECONDS) == code, self.log.read_text()
        return self.out.read_text()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


class Field:
    """A federation in a folder, with the broker that it is at."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.path = folder, folder / "fed"
        self.made = FederationFolder.create(self.path, name="films", port=port)
        self.catalogue = folder / "items.txt"
        self.catalogue.write_text("".join(f"{item}\n" for item in ITEMS))

    def enrolled(self, name: str) -> Path:
        path = self.folder / f"{name}.credentials"
        self.made.enrol(name).save(path)
        return path

    def serving(self, state: Path, clients: int, *more: object) -> list[object]:
        return [
            "serve", "--federation", self.path, "--catalogue", self.catalogue, "--clients", clients,
            "--state", state, *SMALL, *more,
        ]  # fmt: skip

    def seeds(self) -> list[str]:
        """Everything in the federation's folder and its credentials that must not be told."""
        found = [path.read_text().strip() for path in (self.path / "keys").glob("*.seed")]
        for path in [*self.folder.rglob("*.credentials"), *self.folder.rglob("*.invitation")]:
            content = json.loads(path.read_bytes())
            found += [content["seed"], content["token"]]
        return found


@pytest.mark.parametrize("users", ["0-2", "2", "1-9999"])
def test_a_host_has_the_users_of_its_data_only(tmp_path: Path, users: str) -> None:
    family, state = tmp_path / "family.csv", tmp_path / "state"
    family.write_text(csv({"mother": items_of(1), "father": items_of(2)}))
    done = lpgcn(
        "host", "family", "--train", family, "--users", users, "--credentials",
        tmp_path / "none.credentials", "--state", state,
    )  # fmt: skip
    assert done.exit_code == 2 and "family has users 0-1." in done.stderr
    assert not state.exists()


SETTINGS = ("--user-feature-dim", 2, "--item-feature-dim", 3, "--virtual-items", 3)


class Finished:
    """A federation of six: two by a host, two enrolled, two invited; it is over. Everybody has two
    features of its own, and items have three."""

    def __init__(self, folder: Path, port: int) -> None:
        field = self.field = Field(folder, port)
        family = folder / "family.csv"
        family.write_text(csv({"mother": items_of(1), "father": items_of(2)}))
        invitation = folder / "two.invitation"
        field.made.invite(uses=2).save(invitation)
        public = ["--item-features", features(folder / "items.npz", ITEMS, 3)]
        of_family = features(folder / "family.npz", ["mother", "father"], 2)
        with ExitStack() as stack:
            self.serve = Command(
                stack, folder / "server",
                *field.serving(folder / "run", 6, "--log-json", "--json", *SETTINGS),
            )  # fmt: skip
            self.host = Command(
                stack, folder / "host", "host", "family", "--train", family, "--credentials",
                field.enrolled("family"), "--state", folder / "family", "--log-json", "--json",
                "--user-features", of_family, *public,
            )  # fmt: skip
            self.joins = {}
            for number, name in enumerate(["alice", "bob", "carol", "dave"], 3):
                mine = folder / f"{name}.csv"
                mine.write_text(csv({name: items_of(number)}))
                by = ["--credentials", field.enrolled(name)] if number < 5 else [
                    "--credentials", invitation, "--name", name
                ]  # fmt: skip
                if number == 5:
                    # An invitation is for a server that runs.
                    self.serve.wait_to_hear(GATHERING)
                self.joins[name] = Command(
                    stack, folder / f"of-{name}", "join", *by, "--data", mine, "--state",
                    folder / name, *(["--log-json"] if number % 2 else []), "--json",
                    "--user-features", features(folder / f"{name}.npz", [name], 2), *public,
                )  # fmt: skip
            self.summary = json.loads(self.serve.finish())
            self.hosted = json.loads(self.host.finish())
            self.found = {name: json.loads(one.finish()) for name, one in self.joins.items()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]) -> Finished:
    return Finished(tmp_path_factory.mktemp("films"), free_port())


def test_every_command_prints_one_object(finished: Finished) -> None:
    summary = finished.summary
    assert summary["test_users"] == 6 and summary["mode"] == "federated"
    assert summary["state"] == str(finished.field.folder / "run")
    assert summary == json.loads((finished.field.folder / "run" / "summary.json").read_bytes()) | {
        "state": summary["state"]
    }
    assert finished.hosted["clients"] == 2
    fingerprints = set()
    for name, found in finished.found.items():
        assert found["user"] == name
        assert len(found["items"]) == 10
        assert {one["item"] for one in found["items"]} <= set(ITEMS)
        assert "Recall@20" in found["text"]
        fingerprints |= set(found["fingerprints"])
    assert len(fingerprints) == 1
    assert re.fullmatch(r"([a-z]{5}-){7}[a-z]{5}", fingerprints.pop())


def test_a_model_recommends_offline_what_was_shown(finished: Finished) -> None:
    for name, found in finished.found.items():
        done = lpgcn("recommend", finished.field.folder / name, "-k", 10, "--json")
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["items"] == found["items"]


def test_the_same_command_shows_the_summary_of_a_run_that_is_over(finished: Finished) -> None:
    done = lpgcn(*finished.field.serving(finished.field.folder / "run", 6, "--json", *SETTINGS))
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == finished.summary


def test_logs_are_lines_of_json_with_what_happened(finished: Finished) -> None:
    logs = [finished.serve, finished.host, finished.joins["alice"], finished.joins["carol"]]
    for log in logs:
        for event in log.events():
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]+\.\d{3}\+00:00", event["time"])
            assert event["level"] in ("info", "warning", "error") and event["event"]
    events = finished.serve.events()
    by_kind = {event["event"]: event for event in events}
    assert by_kind["checkpoint"]["members"] == 6 and by_kind["checkpoint"]["term"] == 0
    assert by_kind["epoch_done"]["epoch"] == 2 and "recall20" in by_kind["epoch_done"]
    assert by_kind["run_ended"]["step"] == finished.summary["steps"]
    carriers = {
        event["carrier"]: event["clients"] for event in events if event["event"] == "joined"
    }
    assert carriers == {"family": 2, "alice": 1, "bob": 1, "carol": 1, "dave": 1}
    (term,) = [one for one in finished.joins["alice"].events() if one["event"] == "term_began"]
    assert [term["fingerprint"]] == finished.found["alice"]["fingerprints"]
    assert finished.host.events()[-1]["event"] == "ended"


def test_people_are_told_who_they_are_and_what_to_compare(finished: Finished) -> None:
    told = finished.joins["bob"].log.read_text()
    assert re.search(r"connected: this is member \d of the federation", told)
    (words,) = finished.found["bob"]["fingerprints"]
    assert f"a term with 6 members; fingerprint of their keys: {words}" in told
    assert "compare them with another one" in told


def test_no_log_has_an_item_or_a_secret(finished: Finished) -> None:
    """What was planted is looked for in everything that was said, and in the server's folder."""
    seeds = finished.field.seeds()
    assert len(seeds) > 8
    commands = [finished.serve, finished.host, *finished.joins.values()]
    folder = finished.field.folder / "run"
    said = {one.log: one.log.read_text() for one in commands}
    said |= {path: path.read_text() for path in folder.glob("*.log")}
    for path, text in said.items():
        assert text
        assert "planted-" not in text, path
        assert not [seed for seed in seeds if seed in text], path
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert b"planted-" not in content, path
            assert not [seed for seed in seeds if seed.encode() in content], path


def test_the_seed_of_a_server_is_drawn_and_stays_with_it(finished: Finished) -> None:
    """Who is in which batch follows from it. Nobody asked for a seed here."""
    run = finished.field.folder / "run"
    seed = finished.summary["config"]["seed"]
    # One in four billion is as small by chance.
    assert seed >= 2**31
    assert secret_seed(run) == seed != secret_seed(finished.field.folder / "another")
    assert {(run / name).stat().st_mode & 0o077 for name in ("config.toml", "summary.json")} == {0}
    written = [str(seed).encode(), msgspec.msgpack.encode(seed)]
    for name in ("alice", "bob", "carol", "dave", "family"):
        for path in (finished.field.folder / name).rglob("*"):
            assert not path.is_file() or not any(one in path.read_bytes() for one in written), path


def test_virtual_items_are_kept_beside_the_credentials(finished: Finished) -> None:
    """Those that were listed, and nothing else."""
    for name in ("alice", "carol", "family"):
        path = finished.field.folder / f"{name}.virtual-items"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        users = json.loads(path.read_text())["users"]
        assert users.keys() == ({"mother", "father"} if name == "family" else {name})
        for kept in users.values():
            assert len(set(kept["virtual"])) == 3 and set(kept["virtual"]) < set(ITEMS)
            assert set(kept["own"]) < set(ITEMS) and "train" in kept["own"].values()
    saved = InFolder(finished.field.folder / "alice")
    snapshot = msgspec.msgpack.decode(saved.read(saved.numbers()[-1]), type=ClientSnapshot)
    uploaded = {ITEMS[item] for item in np.frombuffer(snapshot.standing.uploaded, "<u4")}
    kept = json.loads((finished.field.folder / "alice.virtual-items").read_text())["users"]["alice"]
    assert uploaded >= set(kept["virtual"])
    real = uploaded - set(kept["virtual"])
    assert (
        real == {item for item, part in kept["own"].items() if part == "train"} <= set(items_of(3))
    )


# What a server shows.


def test_a_server_says_who_is_missing_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    serving = Serving(1000, patience=60.0)
    display = ServingDisplay(tmp_path, serving)
    display.gathering(0, 1000, list(range(1000)))
    for present in range(1000):
        display.gathering(present, 1000, [])
    for number in range(2):
        display.joined(f"host-{number}", tuple(range(500 * number, 500 * (number + 1))))
    display.gathering(1000, 1000, [])
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "0 of 1,000 members are here"
    assert told[-1] == "1,000 of 1,000 members are here"
    assert len(told) == 11, "a line for a tenth, not for every client"

    gone = frozenset(range(500, 1000))
    display.silent("host-1", tuple(gone))
    display.interrupted(Interrupted(frozenset(), gone))
    display.interrupted(Interrupted(frozenset({3, 4}), frozenset()))
    display.left("host-1", tuple(gone))
    display.interrupted(Interrupted(frozenset(), gone))
    display.term_began(2, [], sorted(gone))
    display.checkpointed(7)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "warning: host-1 is silent (500 clients)"
    assert told[1] == (
        "paused: host-1 (500 clients) silent for 60 s; waiting for it; --on-missing leave would "
        "go on without"
    )
    assert "host-0 (2 clients) came back without memory" in told[2]
    assert "host-1 (500 clients) left; waiting" in told[3]
    assert told[4] == "term 2 begins: host-1 (500 clients) left"
    assert told[5].startswith("checkpoint 7")
    leaving = ServingDisplay(tmp_path, replace(serving, on_missing="leave"))
    leaving.interrupted(Interrupted(frozenset(), frozenset({1, 2})))
    leaving.held_back(1, 5)
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "2 clients silent for 60 s; going on without, if there is a checkpoint and 2 are left",
        "1 client could join; waiting until 5 can (--least-change)",
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_a_run_that_pauses_goes_on_being_shown(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    terminal: bool,
) -> None:
    """The bar of members takes turns with that of the run."""
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    run = Run(source=Source(dataset="films"), config=Config(epochs=2), fingerprint="0" * 64)
    with ServingDisplay(tmp_path, Serving(2, patience=60.0)) as display:
        display.joined("host-0", (0,))
        display.joined("host-1", (1,))
        for _ in range(2):
            display.gathering(1, 2, [1])
            display.gathering(2, 2, [])
            display.stage_began(Phase.RESUME)
            display.run_began(run, 4, Progress(stopping=EarlyStopping(3)))
            display.stage_began(Phase.FORWARD)
            display.step_done()
            display.interrupted(Interrupted(frozenset(), frozenset({1})))
    told = capsys.readouterr().err
    assert told.count("paused: host-1 (1 client) silent for 60 s") == 2
    assert ("waiting for members" in told) is terminal
    assert "waiting for host-1 (1 client)" in told


def test_who_does_not_answer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ServingDisplay(tmp_path, Serving(2)).unanswered("host-1", 3)
    assert "warning: host-1 does not answer" in capsys.readouterr().err
    ServingLog(EventLog()).unanswered("host-1", 3)
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["carrier"]) == ("unanswered", "warning", "host-1")


def test_many_carriers_are_named_in_part() -> None:
    roll = Roll()
    for number in range(5):
        roll.joined(f"c{number}", (number,))
    assert roll.named(range(7)) == "c0 (1 client), c1 (1 client), c2 (1 client), 4 more"
    assert roll.named([9]) == "1 client"


def test_everybody_is_told_everything() -> None:
    told: list[tuple[int, str, tuple[Any, ...]]] = []

    class Noting(ServingObserver):
        def __init__(self, number: int) -> None:
            self.number = number

        def checkpointed(self, number: int) -> None:
            told.append((self.number, "checkpointed", (number,)))

        def retried(self, name: str, requests: int) -> None:
            told.append((self.number, "retried", (name, requests)))

    both = Several(Noting(1), Noting(2))
    both.checkpointed(3)
    both.retried("host-0", 4)
    both.step_done()
    assert told == [
        (number, *event)
        for event in (("checkpointed", (3,)), ("retried", ("host-0", 4)))
        for number in (1, 2)
    ]


# What goes wrong is said in words.


@pytest.fixture
def field(tmp_path: Path, free_port: Callable[[], int]) -> Field:
    return Field(tmp_path, free_port())


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(csv({"me": items_of(4)}))
    return path


def server_of(stack: ExitStack, field: Field, clients: int) -> Command:
    asked = field.serving(field.folder / "run", clients, "--log-json")
    command = Command(stack, field.folder / "server", *asked)
    command.wait_to_hear(GATHERING)
    return command


@pytest.fixture
def served(field: Field) -> Iterator[Command]:
    """A server that waits for two clients."""
    with ExitStack() as stack:
        yield server_of(stack, field, 2)


@pytest.fixture(scope="module")
def waiting(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[tuple[Field, Command]]:
    """A server that waits for more clients than all tests have together."""
    field = Field(tmp_path_factory.mktemp("waiting"), free_port())
    with ExitStack() as stack:
        yield field, server_of(stack, field, 9)


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Callable[[Field, str], Command]]:
    """Starts another client, which takes part until the end."""
    with ExitStack() as stack:

        def start(field: Field, name: str) -> Command:
            data = tmp_path / f"{name}.csv"
            data.write_text(csv({name: items_of(8)}))
            return Command(
                stack, tmp_path / f"of-{name}", "join", "--credentials", field.enrolled(name),
                "--data", data, "--state", tmp_path / name,
            )  # fmt: skip

        yield start


def join(credentials: Path, data: Path, *more: object) -> Result:
    return lpgcn("join", "--credentials", credentials, "--data", data, *more)


@pytest.mark.parametrize("log", [False, True])
def test_an_item_that_is_not_in_the_catalogue(
    waiting: tuple[Field, Command], tmp_path: Path, log: bool
) -> None:
    """Its owner reads which one it is; a log does not."""
    field, server = waiting
    wrong = tmp_path / "wrong.csv"
    wrong.write_text(csv({"me": [*items_of(4), "my-private-tape"]}))
    options = ["--state", tmp_path / "me", "--ratio", "1", "0", "0", *(["--log-json"] * log)]
    done = join(field.enrolled(f"wrong-{log}"), wrong, *options)
    assert done.exit_code == 2
    assert ("my-private-tape" in done.stderr) is not log
    assert ("catalogue" in done.stderr) is not log
    if log:
        event = json.loads(done.stderr.splitlines()[-1])
        assert event["event"] == "failed" and "data of a user" in event["message"]
    assert "my-private-tape" not in server.log.read_text()


def test_join_is_for_one_user(field: Field, tmp_path: Path) -> None:
    two = tmp_path / "two.csv"
    two.write_text(csv({"me": items_of(1), "you": items_of(2)}))
    done = join(field.enrolled("me"), two, "--state", tmp_path / "me")
    assert done.exit_code == 2
    assert "2 users" in done.stderr and "lpgcn host" in done.stderr


def test_credentials_that_do_not_work(field: Field, mine: Path, tmp_path: Path) -> None:
    state = ["--state", tmp_path / "me"]
    done = join(tmp_path / "nobody.credentials", mine, *state)
    assert done.exit_code == 2 and "does not exist" in done.stderr
    good = field.enrolled("me")
    good.chmod(0o644)
    assert f"chmod 600 {good}" in join(good, mine, *state).stderr
    good.chmod(0o600)
    broken = tmp_path / "broken.credentials"
    broken.write_bytes(good.read_bytes()[:-40])
    broken.chmod(0o600)
    assert "not a whole credentials file" in join(broken, mine, *state).stderr


def test_no_broker_elsewhere_without_tls(
    field: Field, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "open", lambda _: pytest.fail("a connection is tried"))
    plain = FederationFolder.create(tmp_path / "plain", plain=True)
    plain.enrol("me").save(tmp_path / "me.credentials")
    elsewhere = ["--broker", "nats://203.0.113.5:4222"]
    field.path = plain.path
    for done in (
        join(tmp_path / "me.credentials", mine, "--state", tmp_path / "me", *elsewhere),
        lpgcn(*field.serving(tmp_path / "run", 2, *elsewhere)),
    ):
        assert done.exit_code == 2 and "expected a loopback address" in done.stderr, done.stderr


def test_credentials_that_have_expired(
    field: Field, mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = field.enrolled("me")
    monkeypatch.setattr(Credentials, "expired", lambda self: True)
    done = join(good, mine, "--state", tmp_path / "me")
    assert done.exit_code == 2
    assert "expired on" in done.stderr and "new one" in done.stderr


def test_credentials_of_another_federation(field: Field, mine: Path, tmp_path: Path) -> None:
    """The broker's certificate is of an authority that they do not know."""
    other = FederationFolder.create(tmp_path / "other", port=field.made.about.place.port)
    stranger = tmp_path / "stranger.credentials"
    other.enrol("me").save(stranger)
    with Broker(field.made.config, log=tmp_path / "broker.log"):
        done = join(stranger, mine, "--state", tmp_path / "me")
        assert done.exit_code == 2
        assert "cannot be trusted" in done.stderr
        field.made.enrol("me")
        spoilt = msgspec.structs.replace(
            other.enrol("you"), authority=(field.path / "tls" / "ca.pem").read_text()
        )
        path = tmp_path / "spoilt.credentials"
        spoilt.save(path)
        done = join(path, mine, "--state", tmp_path / "me")
        assert done.exit_code == 2
        assert "refused the credentials" in done.stderr and "new ones" in done.stderr


def test_a_broker_out_of_reach_is_waited_for_and_said_once(
    field: Field, mine: Path, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        command = Command(
            stack, tmp_path / "me", "join", "--credentials", field.enrolled("me"), "--data", mine,
            "--state", tmp_path / "me",
        )  # fmt: skip
        command.wait_to_hear("cannot be reached")
        command.process.terminate()
        command.finish(130)
        told = command.log.read_text()
        assert told.count("cannot be reached") == 1
        assert "stopped: the same command goes on" in told


def test_a_server_that_logs_ends_at_sigterm_with_the_code_of_one_that_does_not(
    served: Command,
) -> None:
    served.process.terminate()
    served.finish(128 + signal.SIGTERM)
    assert served.events()[-1]["event"] == "stopped"


def test_a_server_ends_when_its_own_broker_does(served: Command, field: Field) -> None:
    """With an error, so that whoever watches over it starts both again."""
    server = served.process.pid
    (broker,) = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    os.kill(int(broker), signal.SIGKILL)
    served.finish(2)
    last = served.events()[-1]
    assert last["event"] == "failed" and last["error"] == "BrokerError"
    assert str(field.folder / "run" / "broker.log") in last["message"]


def test_a_state_of_another_run_is_refused_by_the_server(
    finished: Finished, tmp_path: Path
) -> None:
    field, state = finished.field, finished.field.folder / "run"
    done = lpgcn(*field.serving(state, 6, "--lr", "0.5"))
    assert done.exit_code == 2
    assert "with another lr, " in done.stderr and "--state" in done.stderr


def test_a_server_of_what_is_no_backbone_waits_for_nobody(
    finished: Finished, tmp_path: Path
) -> None:
    done = lpgcn(*finished.field.serving(tmp_path / "state", 6, "--model", "popular"))
    assert done.exit_code == 2
    assert "'popular', which is no backbone" in done.stderr and "members" not in done.stderr


def test_a_state_of_another_run_is_refused_by_the_client(
    finished: Finished,
    field: Field,
    served: Command,
    beside: Callable[[Field, str], Command],
    tmp_path: Path,
) -> None:
    """And the server waits for the client to come back with a folder of its own."""
    beside(field, "bob")
    state, mine = tmp_path / "used", finished.field.folder / "alice.csv"
    shutil.copytree(finished.field.folder / "alice", state)
    credentials = field.enrolled("alice")
    done = join(credentials, mine, "--state", state)
    assert done.exit_code == 2
    assert "another run" in done.stderr and "--state" in done.stderr
    done = join(credentials, mine, "--state", tmp_path / "new", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["user"] == "alice"
    served.finish()


def test_a_federation_of_too_few_is_refused_by_the_client(
    field: Field,
    served: Command,
    beside: Callable[[Field, str], Command],
    mine: Path,
    tmp_path: Path,
) -> None:
    """And does not end for the others: the client may come back when it is content with two."""
    other, credentials = beside(field, "bob"), field.enrolled("me")
    asked = [credentials, mine, "--state", tmp_path / "me"]
    done = join(*asked, "--least-members", 3)
    assert done.exit_code == 2
    assert "a term of 2, expected 3 members or more" in done.stderr
    assert "--least-members" in done.stderr
    assert served.process.poll() is None and other.process.poll() is None
    done = join(*asked, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["user"] == "me"
    served.finish()
    other.finish()


def test_a_federation_of_one_is_refused_by_the_server(field: Field) -> None:
    done = lpgcn(*field.serving(field.folder / "run", 1))
    assert done.exit_code == 2
    assert "--clients 1, expected --least-members, which is 2, or more" in done.stderr
    assert not (field.folder / "run").exists()
    done = lpgcn(*field.serving(field.folder / "run", 9, "--least-members", 1))
    assert done.exit_code == 2 and "--least-members" in done.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\nb\na\n", "names an item twice"),
        ("a\t1\nb\n", "one id on each line"),
        ("a\t1\nb\tmany\n", "no number"),
        ("", "0 items"),
        (None, "cannot read the catalogue"),
    ],
)
def test_a_catalogue_that_cannot_be_used(field: Field, content: str | None, message: str) -> None:
    field.catalogue.unlink()
    if content is not None:
        field.catalogue.write_text(content)
    done = lpgcn(*field.serving(field.folder / "run", 1, "--json"))
    assert done.exit_code == 2
    assert message in done.stderr
    assert message in json.loads(done.stdout)["error"]["message"]
    logged = lpgcn(*field.serving(field.folder / "run", 1, "--json", "--log-json"))
    assert logged.exit_code == 2
    assert message in json.loads(logged.stdout)["error"]["message"]
    (event,) = map(json.loads, logged.stderr.splitlines())
    assert event["event"] == "failed" and message in event["message"]


@pytest.mark.parametrize("kind", ["user", "item"])
def test_features_that_the_federation_has_no_use_for(
    waiting: tuple[Field, Command], mine: Path, tmp_path: Path, kind: str
) -> None:
    field, _ = waiting
    path = features(tmp_path / "f.npz", ["me"] if kind == "user" else ITEMS, 2)
    options = ["--state", tmp_path / "me", f"--{kind}-features", path]
    done = join(field.enrolled(f"{kind}-features"), mine, *options)
    assert done.exit_code == 2
    assert f"the federation's {kind}s have 0 features, found 2; leave them out" in done.stderr


def test_an_invitation_needs_a_name(field: Field, mine: Path, tmp_path: Path) -> None:
    path = tmp_path / "one.invitation"
    field.made.invite().save(path)
    done = join(path, mine, "--state", tmp_path / "me")
    assert done.exit_code == 2 and "--name" in done.stderr


def test_who_came_by_an_invitation_comes_again_when_it_has_expired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, state = tmp_path / "one.invitation", tmp_path / "alice"
    folder = FederationFolder.create(tmp_path / "fed")
    invitation, key = folder.invite(days=3), Nkey.generate(NkeyKind.USER)
    invitation.save(path)
    request = request_enrolment(invitation, "alice", key)
    reply = folder.desk().answer(request, invitation.name)
    accept_enrolment(invitation, request, key, reply).save(state / "own.credentials")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 4 * 24 * 3600)
    with pytest.raises(CredentialsError, match="expired"):
        connect_options(path, None, "alice", tmp_path / "elsewhere")
    assert connect_options(path, None, "alice", state)[0] == "alice"


def test_a_federation_has_one_server_at_a_time(tmp_path: Path) -> None:
    """The second one would take the clients away from the first."""
    federation, catalogue = FederationFolder.create(tmp_path / "fed"), tmp_path / "catalogue.txt"
    catalogue.write_text("\n".join(ITEMS))
    with held(federation.path):
        done = lpgcn(
            "serve", "--federation", federation.path, "--catalogue", catalogue, "--clients", 2,
            "--state", tmp_path / "run",
        )  # fmt: skip
    assert done.exit_code == 2 and "fed is used by another process" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_kept_beside_secret_keys(tmp_path: Path) -> None:
    federation, catalogue = FederationFolder.create(tmp_path / "fed"), tmp_path / "catalogue.txt"
    catalogue.write_text("\n".join(ITEMS))
    before = sorted(federation.path.rglob("*"))
    done = lpgcn(
        "serve", "--federation", federation.path, "--catalogue", catalogue, "--clients", 2,
        "--state", tmp_path / "elsewhere" / ".." / "fed",
    )  # fmt: skip
    assert done.exit_code == 2 and "the federation's own folder" in done.stderr
    assert sorted(federation.path.rglob("*")) == before


def test_up_writes_over_nothing(tmp_path: Path) -> None:
    data, mine = tmp_path / "tiny.csv", tmp_path / "mine" / "catalogue.txt"
    data.write_text(csv({f"user-{n}": items_of(n) for n in range(5)}))
    mine.parent.mkdir()
    mine.write_text("my own")
    done = lpgcn("federation", "up", "tiny", "--train", data, *SMALL, "--out", mine.parent)
    assert done.exit_code == 2 and "has files already" in done.stderr
    assert [path.name for path in mine.parent.iterdir()] == ["catalogue.txt"]
    assert mine.read_text() == "my own"


def test_up_trains_on_everything_if_nothing_is_held_out(tmp_path: Path) -> None:
    data = tmp_path / "tiny.csv"
    data.write_text(csv({f"user-{n}": items_of(n) for n in range(5)}))
    asked = ["federation", "up", "tiny", "--train", data, *SMALL, "--ratio", 1, 0, 0]
    refused = lpgcn(*asked)
    assert refused.exit_code == 2 and "--ratio 1 0 0 --eval-every 0" in refused.stderr
    done = lpgcn(*asked, "--eval-every", 0, "--verify")
    assert done.exit_code == 0, done.output
    assert "2 epochs, not validated" in done.stdout
    assert "nothing was held out to test" in done.stdout
    assert "lossless, bit for bit" in done.stdout


def test_up_goes_on_in_its_folder_and_points_to_it(tmp_path: Path) -> None:
    data, out = tmp_path / "tiny.csv", tmp_path / "out"
    data.write_text(csv({f"user-{n}": items_of(n) for n in range(5)}))
    of_users = features(tmp_path / "users.npz", [f"user-{n}" for n in range(5)], 2)
    listed = sorted({item for n in range(5) for item in items_of(n)})
    of_items = features(tmp_path / "items.npz", listed, 3)
    asked = [
        "federation", "up", "tiny", "--train", data, *SMALL, "--out", out,
        "--user-features", of_users, "--item-features", of_items,
    ]  # fmt: skip
    done = lpgcn(*asked, "--verify", "--log-json")
    assert done.exit_code == 0, done.output
    assert str(out / "server") in done.stdout
    assert "lossless, bit for bit" in done.stdout
    for line in done.stderr.splitlines():
        assert json.loads(line)["event"]
    text = done.stderr + "".join(path.read_text() for path in (out / "hosts").glob("*.log"))
    assert "fingerprint of their keys" in text and "planted-" not in text
    for path in (out / "hosts").glob("*.credentials"):
        assert Credentials.load(path).seed not in text


def test_records_and_warnings_of_the_package_are_lines_for_people_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import logging

    logger = logging.getLogger("lpgcn.runtime.hosts.nats.connection")
    with telling(log_json=False, as_json=False):
        logger.warning("a message was dropped")
        logger.info("not for people")
    with telling(log_json=True, as_json=False):
        logger.info("for machines")
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "warning: a message was dropped"
    event = json.loads(told[1])
    assert (event["event"], event["level"], event["message"]) == ("log", "info", "for machines")
    assert len(told) == 2
    assert not logging.getLogger("lpgcn").handlers


def test_a_log_tells_what_warnings_about_nobody_say(capsys: pytest.CaptureFixture[str]) -> None:
    """Unlike others, which may be about the data of a user."""
    with telling(log_json=True, as_json=False):
        warnings.simplefilter("always")
        warn_of_small_change(1, 2)
        warnings.warn("Recall@20 is 1", EvaluationWarning, stacklevel=1)
        warnings.warn("item planted-00", UserWarning, stacklevel=1)
    ours, measured, other = map(json.loads, capsys.readouterr().err.splitlines())
    assert ours["kind"] == "PrivacyWarning" and "--least-change" in ours["message"]
    assert measured["message"] == "Recall@20 is 1"
    assert other["kind"] == "UserWarning" and "planted" not in other["message"]


def test_what_ends_a_thread_is_a_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise asyncio.CancelledError

    before = threading.excepthook
    with telling(log_json=True, as_json=False):
        thread = threading.Thread(target=fail, name="lpgcn nats")
        thread.start()
        thread.join()
    event = json.loads(capsys.readouterr().err)
    assert (event["event"], event["error"]) == ("thread_failed", "CancelledError")
    assert threading.excepthook is before


@pytest.mark.parametrize(
    "command",
    [["serve"], ["join"], ["host"], ["federation"], ["federation", "up"], ["federation", "init"],
     ["federation", "enrol"], ["federation", "invite"], ["federation", "revoke"]],
    ids=" ".join,
)  # fmt: skip
def test_help_has_an_example(command: list[str]) -> None:
    done = lpgcn(*command, "--help")
    assert done.exit_code == 0
    assert re.search(rf"^ +lpgcn {' '.join(command)} ", done.output.partition("Example")[2], re.M)
    assert done.stderr == ""


def test_hosts_without_a_user_are_not_started_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise HostError("not started")

    monkeypatch.setattr(LocalNetwork, "run", refuse)
    path = tmp_path / "mine.csv"
    path.write_text(csv({f"user-{number}": items_of(number) for number in range(3)}))
    up = ("federation", "up", "mine", "--train", path, "--hosts", 50, "--out", tmp_path / "net")
    said = f"broker, server and 3 hosts instead of 50, one a user, in {tmp_path / 'net'}"
    assert said in lpgcn(*up).stderr
