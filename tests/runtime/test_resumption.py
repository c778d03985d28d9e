"""A run in any way to run, stopped anywhere or damaged: it goes on, and ends in the same bits."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lpgcn.checkpoints import CheckpointError, InFolder
from lpgcn.config import Config, Mode
from lpgcn.errors import LpgcnError
from lpgcn.plan import PlanError
from lpgcn.protocol.phases import Phase
from lpgcn.runtime.engines.engine import Engine, RunInterruptedError
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs.run_folder import Progress, Run, RunFolder, RunFolderError
from lpgcn.runtime.runs.source import Source
from lpgcn.runtime.runs.training import Execution, Observer, train
from lpgcn.terms import Term, write_terms

EPOCHS, STEPS_PER_EPOCH, USERS = 3, 4, 9
CONFIG = Config(
    layers=2, dim=4, lr=0.05, batch_size=16, epochs=EPOCHS, eval_every=2, planner="cover",
    virtual_items="2", schedule="cosine", at=(5,),
)  # fmt: skip


class Way(NamedTuple):
    """A way to run."""

    mode: Mode
    workers: int = 1


WAYS = (Way("centralized"), Way("simulated"), Way("federated"), Way("federated", 2))
WAYS_LAST_SLOW = (*WAYS[:-1], pytest.param(WAYS[-1], marks=pytest.mark.slow))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """9 users with 9 of 25 items each; 7, 1 and 1 after the split."""
    path = tmp_path_factory.mktemp("data") / "few.txt"
    lines = [[user, *{(7 * user + i * i) % 25 for i in range(40)}][:10] for user in range(USERS)]
    path.write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))
    return Source(dataset="few", train=str(path))


class Interruption(BaseException):
    pass


@dataclass
class Witness(Observer):
    """Stops the run after so many steps, and remembers what it was told."""

    steps: int = -1
    damages: list[CheckpointError] = field(default_factory=list)
    checkpoints: list[int] = field(default_factory=list)
    beginnings: list[Progress] = field(default_factory=list)

    def run_began(self, run: Run, steps_per_epoch: int, so_far: Progress) -> None:
        self.beginnings.append(so_far)

    def step_done(self) -> None:
        self.steps -= 1
        if self.steps == 0:
            raise Interruption

    def checkpointed(self, number: int) -> None:
        self.checkpoints.append(number)

    def damaged(self, error: CheckpointError) -> None:
        self.damages.append(error)


def started(
    source: Source, way: Way, config: Config, out: Path, steps: int, **options: Any
) -> None:
    config = config.changed(mode=way.mode)
    with pytest.raises(Interruption):
        train(
            source, config, out=out, workers=way.workers, threads=1, observer=Witness(steps),
            **options,
        )  # fmt: skip


def result(out: Path) -> dict[str, Any]:
    """The model but for its mode, the metrics and the summary; without what took time or travelled,
    of which a run that was stopped has had more."""
    model = {path.name: path.read_bytes() for path in sorted((out / "model").iterdir())}
    card = msgspec.json.decode(model.pop("config.json"))
    assert msgspec.json.decode((out / "summary.json").read_bytes())["config"] == card["config"]
    card["config"].pop("mode")
    lines = [msgspec.structs.replace(line, seconds=0) for line in RunFolder(out).metrics()]
    assert [line.epoch for line in lines] == [*range(1, EPOCHS + 1)]
    summary = RunFolder(out).summary()
    assert summary
    summary = msgspec.structs.replace(summary, seconds=0, traffic=None, mode="any", config=None)
    return {**model, "card": card, "metrics": lines, "summary": summary}


uninterrupted: dict[tuple[str, str], dict[str, Any]] = {}


def expected(source: Source, model: str) -> dict[str, Any]:
    """Of a centralised run that nobody touched."""
    if (source.dataset, model) not in uninterrupted:
        with tempfile.TemporaryDirectory() as folder:
            train(source, CONFIG.changed(model=model), out=folder)
            uninterrupted[source.dataset, model] = result(Path(folder))
    return uninterrupted[source.dataset, model]


def steps_kept(out: Path) -> int:
    folder = RunFolder(out)
    return max((folder.progress(number).steps for number in folder.checkpoints()), default=0)


@settings(max_examples=6)
@given(
    model=st.sampled_from(["lightgcn", "lightgcn+"]),
    every=st.sampled_from([1, 2]),
    interruptions=st.lists(st.integers(1, EPOCHS * STEPS_PER_EPOCH), min_size=1, max_size=3),
)
@example("lightgcn+", 1, [STEPS_PER_EPOCH + 2, 1, 3])
@example("lightgcn", 2, [3, STEPS_PER_EPOCH + 3])
@pytest.mark.parametrize("way", WAYS_LAST_SLOW, ids=str)
def test_stopped_anywhere_within_an_epoch(
    source: Source, way: Way, model: str, every: int, interruptions: list[int]
) -> None:
    config = CONFIG.changed(mode=way.mode, model=model)
    with tempfile.TemporaryDirectory() as folder:
        out, done = Path(folder) / "run", 0
        for number, steps in enumerate(interruptions):
            observer = Witness(steps)
            try:
                train(
                    source, config, out=out, resume=number > 0, workers=way.workers, threads=1,
                    checkpoint_every=every, observer=observer,
                )  # fmt: skip
            except Interruption:
                # Nothing is lost but the steps since the last checkpoint.
                [began] = observer.beginnings
                assert began.steps == done
                done = steps_kept(out)
                assert began.steps + steps - done <= every
        train(source, config, out=out, resume=True, workers=way.workers, checkpoint_every=every)
        assert result(out) == expected(source, model)


def test_who_is_stopped_goes_on_in_any_number_of_processes(source: Source, tmp_path: Path) -> None:
    started(source, Way("federated", 2), CONFIG, tmp_path, 3, checkpoint_every=1)
    clients = tmp_path / "state" / "clients"
    assert {path.name for path in clients.iterdir()} == {str(user) for user in range(USERS)}
    with pytest.raises(Interruption):
        train(source, out=tmp_path, resume=True, checkpoint_every=1, observer=Witness(4))
    train(source, out=tmp_path, resume=True, workers=3)
    assert result(tmp_path) == expected(source, "lightgcn+")


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_run_with_pools_that_was_stopped_goes_on(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    """In every one of its epochs, which have one step each."""
    if way.workers == 1:
        # Other processes would not agree.
        monkeypatch.setattr("lpgcn.model.batches.smallest_group", lambda _: 3)
    config = CONFIG.changed(
        loss="softmax", batch_size="full", negatives=8, answers=5, groups=2, temperature=0.3
    )
    train(source, config, out=tmp_path / "whole")
    out = tmp_path / "parts"
    started(source, way, config, out, 2, checkpoint_every=1)
    assert steps_kept(out) == 1
    with pytest.raises(Interruption):
        train(
            source, out=out, resume=True, workers=way.workers, checkpoint_every=1,
            observer=Witness(2),
        )  # fmt: skip
    assert steps_kept(out) == 2
    train(source, out=out, resume=True, workers=way.workers)
    assert result(out) == result(tmp_path / "whole")


def newest(out: Path) -> list[Path]:
    """The files of all parties' last checkpoint."""
    last = RunFolder(out).checkpoints()[-1]
    return sorted(out.rglob(f"checkpoint-{last}"))


@pytest.fixture(scope="module", params=WAYS_LAST_SLOW, ids=str)
def stopped(
    request: pytest.FixtureRequest, source: Source, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Way, Path]:
    """A run that was stopped in its second epoch, after checkpoints 5 and 6."""
    way: Way = request.param
    out = tmp_path_factory.mktemp("stopped") / "run"
    started(source, way, CONFIG, out, STEPS_PER_EPOCH + 3, checkpoint_every=1)
    return way, out


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8 % len(content)] ^= 1 << bit % 8
    path.write_bytes(content)


def resumed(source: Source, way: Way, out: Path) -> Witness:
    observer = Witness()
    train(source, out=out, resume=True, workers=way.workers, threads=1, observer=observer)
    return observer


@settings(max_examples=8)
@given(st.data())
def test_a_damaged_checkpoint_is_not_used_but_the_one_before_it(
    source: Source, stopped: tuple[Way, Path], data: st.DataObject
) -> None:
    """Any bit of any party's, or of how far the run had come."""
    way, whole = stopped
    with tempfile.TemporaryDirectory() as folder:
        out = shutil.copytree(whole, Path(folder) / "run")
        files, before = newest(out), RunFolder(out).checkpoints()[-2]
        parties = {"centralized": 1, "simulated": 1, "federated": USERS + 1}[way.mode]
        assert len(files) == 1 + parties
        numbers = data.draw(st.sets(st.integers(0, len(files) - 1), min_size=1, max_size=2))
        chosen = [files[number] for number in sorted(numbers)]
        cut = data.draw(st.booleans())
        for path in chosen:
            if cut:
                path.write_bytes(path.read_bytes()[: data.draw(st.integers(0, 60))])
            else:
                flip(path, data.draw(st.integers(0, 2**20)))
        steps = RunFolder(out).progress(before).steps
        observer = resumed(source, way, out)
        [error] = observer.damages
        assert any(str(path) in str(error) for path in chosen)
        assert [began.steps for began in observer.beginnings] == [steps]
        assert result(out) == expected(source, "lightgcn+")


@pytest.mark.parametrize(("way", "write"), [*zip(WAYS, (2, 2, 5), strict=False)], ids=str)
def test_killed_while_the_number_of_a_damaged_checkpoint_is_given_again(
    source: Source, way: Way, write: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At another step than before: some parties have the old checkpoint, some the new one, and
    none of the two is a checkpoint of the run."""
    started(source, way, CONFIG, tmp_path, STEPS_PER_EPOCH + 3, checkpoint_every=1)
    before, last = RunFolder(tmp_path).checkpoints()
    flip(newest(tmp_path)[0], 7)
    writing, writes = InFolder.write, []

    def interrupted(self: InFolder, number: int, content: bytes) -> None:
        writes.extend([number] if number == last else [])
        if len(writes) == write:
            raise Interruption
        writing(self, number, content)

    with monkeypatch.context() as patched:
        patched.setattr(InFolder, "write", interrupted)
        with pytest.raises(Interruption):
            train(source, out=tmp_path, resume=True, threads=1, checkpoint_every=2)
    assert RunFolder(tmp_path).checkpoints() == [before]
    assert resumed(source, way, tmp_path).damages == []
    assert result(tmp_path) == expected(source, "lightgcn+")


def test_with_both_checkpoints_damaged_it_says_what_to_do(
    source: Source, stopped: tuple[Way, Path], tmp_path: Path
) -> None:
    """Of different parties, so that nobody has lost both."""
    way, whole = stopped
    out = shutil.copytree(whole, tmp_path / "run")
    last, (before, _) = newest(out), RunFolder(out).checkpoints()
    flip(last[0], 77)
    flip(sorted(out.rglob(f"checkpoint-{before}"))[-1], 99)
    kept = {path: path.read_bytes() for path in out.rglob("checkpoint-*")}
    with pytest.raises(CheckpointError, match=r"no checkpoint .* is whole: .*--overwrite"):
        resumed(source, way, out)
    assert {path: path.read_bytes() for path in out.rglob("checkpoint-*")} == kept
    config = RunFolder(out).describe().config
    train(source, config, out=out, overwrite=True, workers=way.workers)
    assert result(out) == expected(source, "lightgcn+")


@pytest.fixture(scope="module")
def begun(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation that was stopped after three steps, with a checkpoint of each."""
    out = tmp_path_factory.mktemp("begun") / "run"
    started(source, Way("federated"), CONFIG, out, 3, checkpoint_every=1)
    return out


@settings(max_examples=10)
@given(bit=st.integers(0, 15), party=st.sampled_from(["server", "clients/0", "clients/8"]))
def test_a_damaged_number_of_a_stretch_is_noticed_or_changes_nothing(
    source: Source, begun: Path, bit: int, party: str
) -> None:
    """The one file of a party that is not a checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        out = shutil.copytree(begun, Path(folder) / "run")
        flip(out / "state" / party / "stretch", bit)
        try:
            resumed(source, Way("federated"), out)
        except LpgcnError:
            assert not (out / "summary.json").exists()
        else:
            assert result(out) == expected(source, "lightgcn+")


def test_the_files_of_a_client_are_its_own(stopped: tuple[Way, Path]) -> None:
    way, out = stopped
    if way.mode != "federated":
        assert {path.name for path in (out / "state").iterdir()} == {"checkpoint-5", "checkpoint-6"}
        return
    parties = [*(out / "state" / "clients").iterdir(), out / "state" / "server"]
    assert len(parties) == USERS + 1
    for folder in parties:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        names = {path.name for path in folder.iterdir()}
        assert names == {"checkpoint-5", "checkpoint-6", "stretch"}
        for path in folder.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


def everything(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}


class Unable(Observer):
    """Who is interrupted when the plan would be made: keys and lists have been sent."""

    def stage_began(self, phase: Phase) -> None:
        if phase is Phase.PLAN:
            raise Interruption


@pytest.mark.parametrize("mode", ["simulated", "federated"])
def test_a_run_whose_replacement_has_no_plan_can_still_go_on(
    source: Source, stopped: tuple[Way, Path], tmp_path: Path, mode: Mode
) -> None:
    way, whole = stopped
    out = shutil.copytree(whole, tmp_path / "run")
    before = everything(out)
    impossible = CONFIG.changed(mode=mode, max_load="1")
    with pytest.raises(PlanError, match="is item"):
        train(source, impossible, out=out, overwrite=True)
    assert everything(out) == before
    possible = CONFIG.changed(mode="federated")
    with pytest.raises(Interruption):
        train(source, possible, out=out, overwrite=True, observer=Unable())
    assert everything(out) == before
    assert not resumed(source, way, out).damages
    assert result(out) == expected(source, "lightgcn+")


BEGIN_AND_END = """
import os, pathlib, sys
from lpgcn.checkpoints import InFolder
from lpgcn.runtime.runs.run_folder import RunFolder
folder = RunFolder(pathlib.Path(sys.argv[1]))
with folder.beginning(folder.describe(), overwrite=True):
    InFolder(folder.state / "server").begin_stretch(0)
    os._exit(0)
"""


def test_a_replacement_that_was_killed_before_its_first_step_has_replaced_nothing(
    source: Source, stopped: tuple[Way, Path], tmp_path: Path
) -> None:
    """A kill runs no code: what was put aside is still aside. Then another one is killed, too."""
    way, whole = stopped
    out = shutil.copytree(whole, tmp_path / "run")
    before = everything(out)
    for _ in range(2):
        subprocess.run([sys.executable, "-c", BEGIN_AND_END, str(out)], check=True)
    assert everything(out) != before
    assert RunFolder(out).checkpoints() == [5, 6]
    assert everything(out) == before
    resumed(source, way, out)
    assert result(out) == expected(source, "lightgcn+")


@pytest.mark.parametrize("other", WAYS, ids=str)
def test_a_run_replaces_another_one(
    source: Source, stopped: tuple[Way, Path], tmp_path: Path, other: Way
) -> None:
    out = shutil.copytree(stopped[1], tmp_path / "run")
    config = CONFIG.changed(mode=other.mode, model="lightgcn")
    train(source, config, out=out, overwrite=True, workers=other.workers)
    assert result(out) == expected(source, "lightgcn")
    assert not (out / ".replaced").exists()


def test_a_simulation_that_was_stopped_has_counted_what_the_federation_has(
    source: Source, tmp_path: Path
) -> None:
    """All that was sent and not undone, and that everybody was told to go on."""
    found = []
    for way in WAYS[1:]:
        out = tmp_path / str(len(found))
        started(source, way, CONFIG, out, STEPS_PER_EPOCH + 3, checkpoint_every=2)
        with pytest.raises(Interruption):
            train(source, out=out, resume=True, workers=way.workers, observer=Witness(4))
        found.append(train(source, out=out, resume=True, workers=way.workers).traffic)
    assert found[0] == found[1] == found[2]
    assert found[0] is not None
    assert found[0].steps == EPOCHS * STEPS_PER_EPOCH


def test_a_beginning_that_was_interrupted_is_tried_again(source: Source, tmp_path: Path) -> None:
    """In the next stretch: messages of the first one are not taken twice."""

    class Late(Federated):
        recovered = 0

        def recover(self, error: RunInterruptedError) -> list[int]:
            self.recovered += 1
            return []

    engines: list[Late] = []

    def make(split: Any, config: Config, how: Execution) -> Engine:
        calls = iter([Phase.LIST, Phase.COUNT])
        due = [next(calls)]

        def watch(phase: Phase) -> None:
            if due and phase is due[0]:
                due[:] = [*calls][:1]
                raise RunInterruptedError("somebody is away")

        planner = planner_for(split, config)
        engines.append(Late(split, config, planner, watch=watch, folder=how.folder))
        return engines[-1]

    train(source, CONFIG.changed(mode="federated"), out=tmp_path / "run", engine_for=make)
    assert [engine.recovered for engine in engines] == [2]
    assert result(tmp_path / "run") == expected(source, "lightgcn+")


@pytest.mark.parametrize("way", WAYS[2:], ids=str)
def test_a_first_beginning_that_failed_is_no_run_but_its_stretch_is_not_forgotten(
    source: Source, tmp_path: Path, way: Way
) -> None:
    """Over a network its messages have gone to devices which would refuse them again."""
    config, out = CONFIG.changed(mode=way.mode), tmp_path / "run"
    for number in (0, 1):
        with pytest.raises(Interruption):
            train(source, config, out=out, workers=way.workers, observer=Unable())
        assert [path.name for path in out.iterdir()] == ["state"]
        assert (out / "state" / "server" / "stretch").read_text() == f"{number}\n"
    with pytest.raises(RunFolderError, match="has no run"):
        train(source, config, out=out, resume=True)
    train(source, config, out=out, workers=way.workers)
    assert result(out) == expected(source, "lightgcn+")
    assert (out / "state" / "server" / "stretch").read_text() == "2\n"


def test_a_log_that_is_followed_is_kept_with_the_run(source: Source, tmp_path: Path) -> None:
    """Who resumes need not give it again, and may not give another one."""
    first, second = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    everybody = tuple(range(USERS))
    write_terms(
        first,
        [
            Term(epoch=0, step=0, members=everybody),
            Term(epoch=0, step=3, members=everybody[2:]),
            Term(epoch=2, step=1, members=everybody),
        ],
    )
    write_terms(second, [Term(epoch=0, step=0, members=everybody)])
    whole, out = tmp_path / "whole", tmp_path / "parts"
    train(source, CONFIG, out=whole, terms=first)
    assert result(whole) != expected(source, "lightgcn+")
    started(source, Way("centralized"), CONFIG, out, 2, checkpoint_every=1, terms=first)
    content = first.read_bytes()
    first.unlink()
    for steps in (2, 2, 2, 2):
        with pytest.raises(Interruption):
            train(source, out=out, resume=True, checkpoint_every=2, observer=Witness(steps))
    with pytest.raises(LpgcnError, match="another log of terms"):
        train(source, out=out, resume=True, terms=second)
    assert (out / "terms.jsonl").read_bytes() == content
    train(source, out=out, resume=True)
    assert result(out) == result(whole)
    train(source, CONFIG, out=out, overwrite=True)
    assert result(out) == expected(source, "lightgcn+")
