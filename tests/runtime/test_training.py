"""The training loop: interrupted anywhere it ends in the same bits; the test set is seen once."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import lpgcn
from lpgcn.config import Config, ConfigError
from lpgcn.evaluation import Evaluation, EvaluationWarning, Vectors
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.runs import loop
from lpgcn.runtime.runs.run_folder import EpochMetrics, RunFolder, RunFolderError
from lpgcn.runtime.runs.saved_model import ModelError, Recommender
from lpgcn.runtime.runs.source import Source, SourceError
from lpgcn.runtime.runs.training import Execution, Observer, Summary, train

EPOCHS = 5
CONFIG = Config(layers=2, dim=8, lr=0.05, batch_size=100, epochs=EPOCHS, eval_every=2, at=(5,))
STEPS_PER_EPOCH = 3


def write_interactions(path: Path, *, changed: int = 0) -> Source:
    """30 users with 12 of 40 items each; 10, 1 and 1 after the split."""
    lines = [
        [user, *sorted({(7 * user + item * item + item) % 41 for item in range(40)})[:12]]
        for user in range(30)
    ]
    lines[3][1] += changed
    path.write_text("".join(" ".join(map(str, line)) + "\n" for line in lines))
    return Source(dataset="small", train=str(path))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return write_interactions(tmp_path_factory.mktemp("data") / "all.txt")


class Interruption(BaseException):
    pass


@dataclass
class InterruptAfter(Observer):
    """Raises when so many steps are done, or so many epochs have been told about."""

    steps: int = -1
    epochs: int = -1

    def step_done(self) -> None:
        self.steps -= 1
        if self.steps == 0:
            raise Interruption

    def epoch_done(self, metrics: EpochMetrics) -> None:
        self.epochs -= 1
        if self.epochs == 0:
            raise Interruption


def interrupt(source: Source, config: Config, out: Path, **after: int) -> None:
    with pytest.raises(Interruption):
        train(source, config, out=out, observer=InterruptAfter(**after))


def result(out: Path) -> dict[str, Any]:
    """Everything that a run leaves but the time it took."""
    model = {path.name: path.read_bytes() for path in sorted((out / "model").iterdir())}
    lines = [msgspec.structs.replace(line, seconds=0) for line in RunFolder(out).metrics()]
    summary = RunFolder(out).summary()
    assert summary
    return {**model, "metrics": lines, "summary": msgspec.structs.replace(summary, seconds=0)}


uninterrupted: dict[Config, dict[str, Any]] = {}


@settings(max_examples=12)
@given(
    model=st.sampled_from(["lightgcn", "lightgcn+"]),
    eval_every=st.integers(0, EPOCHS),
    seconds_to_lose=st.sampled_from([-1.0, 60.0]),
    interruptions=st.lists(st.integers(1, EPOCHS * STEPS_PER_EPOCH), min_size=1, max_size=3),
)
@example("lightgcn+", EPOCHS, 60.0, [EPOCHS * STEPS_PER_EPOCH])
@example("lightgcn+", EPOCHS, -1.0, [EPOCHS * STEPS_PER_EPOCH])
@example("lightgcn", 0, -1.0, [EPOCHS * STEPS_PER_EPOCH])
def test_interrupted_anywhere_and_resumed_it_ends_in_the_same_bits(
    source: Source, model: Any, eval_every: int, seconds_to_lose: float, interruptions: list[int]
) -> None:
    config = CONFIG.changed(model=model, eval_every=eval_every)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if config not in uninterrupted:
            train(source, config, out=Path(folder) / "whole")
            uninterrupted[config] = result(Path(folder) / "whole")
        patch.setattr(loop, "SECONDS_TO_LOSE", seconds_to_lose)
        out, resume = Path(folder) / "parts", False
        for steps in interruptions:
            try:
                train(source, config, out=out, resume=resume, observer=InterruptAfter(steps))
            except Interruption:
                resume = True
        train(source, config, out=out, resume=True)
        assert result(out) == uninterrupted[config]
        assert [line.epoch for line in RunFolder(out).metrics()] == [*range(1, EPOCHS + 1)]


@settings(max_examples=12)
@given(
    lengths=st.lists(st.integers(1, EPOCHS), min_size=1, max_size=3, unique=True).map(sorted),
    eval_every=st.integers(0, EPOCHS),
    seconds_to_lose=st.sampled_from([-1.0, 60.0]),
    stopped_after=st.integers(1, EPOCHS * STEPS_PER_EPOCH),
)
@example([1], 5, 60.0, 1)
@example([2], 2, 60.0, 1)
@example([3], 2, -1.0, 2)
@example([3], 0, -1.0, 2)
@example([2], 0, 60.0, 1)
def test_a_finished_run_that_is_made_longer_ends_in_the_bits_of_a_long_one(
    source: Source,
    lengths: list[int],
    eval_every: int,
    seconds_to_lose: float,
    stopped_after: int,
) -> None:
    config = CONFIG.changed(eval_every=eval_every, model="lightgcn")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if config not in uninterrupted:
            train(source, config, out=Path(folder) / "whole")
            uninterrupted[config] = result(Path(folder) / "whole")
        patch.setattr(loop, "SECONDS_TO_LOSE", seconds_to_lose)
        out = Path(folder) / "parts"
        for number, epochs in enumerate(lengths):
            short = config.changed(epochs=epochs)
            assert train(source, short, out=out, resume=number > 0).epochs == epochs
        try:
            train(source, config, out=out, resume=True, observer=InterruptAfter(stopped_after))
        except Interruption:
            train(source, config, out=out, resume=True)
        assert result(out) == uninterrupted[config]
        assert RunFolder(out).describe().config == config


@pytest.mark.parametrize("mode", ["simulated", "federated"])
def test_a_federation_can_be_made_longer_too(source: Source, tmp_path: Path, mode: Any) -> None:
    config = CONFIG.changed(mode=mode, epochs=4, eval_every=3, planner="cover", layers=1, dim=4)
    train(source, config, out=tmp_path / "whole")
    train(source, config.changed(epochs=2), out=tmp_path / "parts")
    train(source, config, out=tmp_path / "parts", resume=True)
    assert result(tmp_path / "parts") == result(tmp_path / "whole")


def test_a_run_that_stopped_early_stops_there_again(source: Source, tmp_path: Path) -> None:
    config = CONFIG.changed(patience=1, eval_every=1, lr=1e-9, epochs=3)
    first = train(source, config, out=tmp_path / "run")
    again = train(source, config.changed(epochs=5), out=tmp_path / "run", resume=True)
    assert again.epochs == first.epochs < 3
    assert again.test == first.test


def test_a_run_whose_rates_depend_on_its_length_is_not_made_longer(
    source: Source, tmp_path: Path
) -> None:
    config = CONFIG.changed(schedule="cosine", epochs=1)
    train(source, config, out=tmp_path)
    before = result(tmp_path)
    with pytest.raises(RunFolderError, match=r"has 1 epochs, and the learning rate .*cosine"):
        train(source, config.changed(epochs=2), out=tmp_path, resume=True)
    train(source, CONFIG.changed(epochs=2), out=tmp_path / "two")
    with pytest.raises(RunFolderError, match="has epochs 2, not 1"):
        train(source, CONFIG.changed(epochs=1), out=tmp_path / "two", resume=True)
    assert result(tmp_path) == before


@dataclass
class Spy:
    """An engine that writes down what it is asked to do."""

    engine: Centralized
    calls: list[str] = field(default_factory=list)
    best: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def step(self, *arguments: Any) -> None:
        self.calls.append("step")
        self.engine.step(*arguments)

    def measure(self, part: Any) -> Evaluation:
        self.calls.append(part)
        if part == "valid":
            return Evaluation({"recall@20": self._made_up()}, 30)
        return self.engine.measure(part)

    def _made_up(self) -> float:
        """A validation that is best the second time: these parameters are the ones to test."""
        times = self.calls.count("valid")
        if times == 2:
            self.best = self.parameters()
        return [0.0, 0.1, 0.3, 0.2, 0.1, 0.3, 0.3][times]

    def parameters(self) -> dict[str, Any]:
        state = self.engine.inspector().state()
        return {name: table for name, table in state.items() if name.endswith(".parameter")}

    def go_back(self) -> None:
        self.calls.append("go back")
        self.engine.go_back()
        found = self.parameters()
        assert found.keys() == self.best.keys()
        assert all((found[name] == self.best[name]).all() for name in self.best)


def spied() -> tuple[Any, list[Spy]]:
    """What makes engines, and those that it made."""
    spies: list[Spy] = []

    def make(split: Any, config: Config, how: Execution) -> Spy:
        spies.append(Spy(Centralized(split, config, Machine.with_threads(1))))
        return spies[-1]

    return make, spies


def test_the_test_set_is_looked_at_once_at_the_end_with_the_best_parameters(
    source: Source, tmp_path: Path
) -> None:
    engine_for, spies = spied()
    summary = train(
        source, CONFIG.changed(eval_every=1, patience=4, epochs=9), out=tmp_path / "run",
        engine_for=engine_for,
    )  # fmt: skip
    [spy] = spies
    assert spy.calls == 6 * [*STEPS_PER_EPOCH * ["step"], "valid"] + ["go back", "test"]
    assert (summary.epochs, summary.best_epoch) == (6, 2)
    train(source, out=tmp_path / "run", resume=True, engine_for=engine_for)
    assert len(spies) == 1


def test_a_finished_run_is_described_by_its_summary(source: Source, tmp_path: Path) -> None:
    summary = train(source, CONFIG, out=tmp_path)
    assert train(source, out=tmp_path, resume=True) == summary == RunFolder(tmp_path).summary()
    best = RunFolder(tmp_path).metrics()[summary.best_epoch - 1]
    assert (best.loss, best.valid) == (summary.loss, summary.valid)
    assert summary.steps == EPOCHS * STEPS_PER_EPOCH
    again = Recommender.load(tmp_path).evaluate(source.open(), (5, 20))
    assert (again.values, again.n_users) == (summary.test, summary.test_users)
    assert RunFolder(tmp_path).describe().config == CONFIG


def test_a_folder_with_a_run_is_left_alone(source: Source, tmp_path: Path) -> None:
    interrupt(source, CONFIG, tmp_path, steps=1)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(RunFolderError, match=r"already has a run .*--resume.*--overwrite"):
        train(source, CONFIG, out=tmp_path)
    assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_overwrite_forgets_the_old_run_and_nothing_else(source: Source, tmp_path: Path) -> None:
    train(source, CONFIG, out=tmp_path / "one")
    (tmp_path / "one" / "notes.txt").write_text("mine")
    other = CONFIG.changed(seed=1)
    train(source, other, out=tmp_path / "one", overwrite=True)
    train(source, other, out=tmp_path / "two")
    assert result(tmp_path / "one") == result(tmp_path / "two")
    assert (tmp_path / "one" / "notes.txt").read_text() == "mine"


def test_resume_keeps_to_the_configuration_and_the_data_set(source: Source, tmp_path: Path) -> None:
    interrupt(source, CONFIG, tmp_path, steps=1)
    with pytest.raises(RunFolderError, match=r"has lr 0\.05, not 0\.1"):
        train(source, CONFIG.changed(lr=0.1), out=tmp_path, resume=True)
    with pytest.raises(RunFolderError, match="has dataset small, not demo"):
        train("demo", out=tmp_path, resume=True)


def test_resume_needs_a_run(source: Source, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="has no run"):
        train(source, out=tmp_path, resume=True)


@pytest.mark.parametrize("epochs", [1, 4], ids=["before", "after the first checkpoint"])
def test_changed_data_is_noticed(tmp_path: Path, epochs: int) -> None:
    source = write_interactions(tmp_path / "all.txt")
    interrupt(source, CONFIG, tmp_path / "run", epochs=epochs)
    write_interactions(tmp_path / "all.txt", changed=1)
    with pytest.raises(RunFolderError, match="the data has changed"):
        train(source, out=tmp_path / "run", resume=True)
    write_interactions(tmp_path / "all.txt")
    train(source, out=tmp_path / "run", resume=True)
    write_interactions(tmp_path / "all.txt", changed=1)
    with pytest.raises(ModelError, match="the data has changed"):
        Recommender.load(tmp_path / "run").evaluate(source.open(), (20,))


def test_without_its_checkpoints_a_run_begins_anew(source: Source, tmp_path: Path) -> None:
    interrupt(source, CONFIG, tmp_path / "one", epochs=4)
    for name in ("progress", "state"):
        shutil.rmtree(tmp_path / "one" / name)
    (tmp_path / "one" / ".model.123.tmp").write_text("half")
    with (tmp_path / "one" / "metrics.jsonl").open("ab") as file:
        file.write(b'{"epoch": 6, "lo')
    train(source, out=tmp_path / "one", resume=True)
    train(source, CONFIG, out=tmp_path / "two")
    assert result(tmp_path / "one") == result(tmp_path / "two")
    assert not list((tmp_path / "one").glob(".*"))


@pytest.mark.parametrize("name", ["metrics.jsonl", "summary.json"])
def test_damaged_results_are_errors(source: Source, tmp_path: Path, name: str) -> None:
    train(source, CONFIG, out=tmp_path)
    (tmp_path / name).write_text("{\n")
    folder = RunFolder(tmp_path)
    with pytest.raises(RunFolderError, match=f"{name} is damaged"):
        (folder.metrics if name == "metrics.jsonl" else folder.summary)()


def test_damaged_descriptions_are_errors(source: Source, tmp_path: Path) -> None:
    interrupt(source, CONFIG, tmp_path, steps=1)
    (tmp_path / "data.toml").write_text("datset = 'demo'\n")
    with pytest.raises(ConfigError, match=r"data\.toml: unknown key 'datset'"):
        train(source, out=tmp_path, resume=True)


@pytest.mark.parametrize("ratio", [(0.9, 0.0, 0.1), (0.9, 0.1, 0.0)])
def test_a_part_that_is_missing_is_noticed_before_anything_is_written(
    source: Source, tmp_path: Path, ratio: tuple[float, float, float]
) -> None:
    with pytest.raises(SourceError, match="part of small has no interactions"):
        train(msgspec.structs.replace(source, ratio=ratio), CONFIG, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("batch_size", [100, "full"])
def test_everything_is_trained_on_if_nothing_is_held_out(
    source: Source, tmp_path: Path, batch_size: Any
) -> None:
    """In every way to run the same, and the last epoch is what is kept."""
    everything = msgspec.structs.replace(source, ratio=(1.0, 0.0, 0.0))
    config = CONFIG.changed(eval_every=0, batch_size=batch_size, planner="cover", dim=4)
    found = {}
    for mode in ("centralized", "federated"):
        out = tmp_path / mode
        summary = train(everything, config.changed(mode=mode), out=out)
        assert (summary.valid, summary.test, summary.test_users) == ({}, {}, 0)
        assert summary.best_epoch == summary.epochs == EPOCHS
        model = Recommender.load(out / "model")
        assert len(model.seen) == 30 * 12
        vectors = model.vectors
        assert isinstance(vectors, Vectors)
        found[mode] = summary.loss, vectors.users.tobytes(), vectors.items.tobytes()
    assert found["federated"] == found["centralized"]


@pytest.mark.parametrize("ratio", [(1.0, 0.0, 0.0), (0.8, 0.2, 0.0), (0.8, 0.0, 0.2)])
def test_data_in_memory_is_read_again_whatever_is_held_out(
    tmp_path: Path, ratio: tuple[float, float, float]
) -> None:
    pairs = [(user, (7 * user + item * item) % 101) for user in range(20) for item in range(10)]
    config, splitting = CONFIG.changed(eval_every=0, epochs=2), lpgcn.Splitting(ratio=ratio)
    train(pairs, config.changed(epochs=1), splitting=splitting, out=tmp_path / "run")
    run = RunFolder(tmp_path / "run").describe()
    assert run.source.open().fingerprint == run.fingerprint
    assert train(run.source, config, out=tmp_path / "run", resume=True).epochs == 2


def test_losses_are_told_now_and_then_where_nothing_is_validated(
    source: Source, tmp_path: Path
) -> None:
    """Each is the mean since the one before; where an epoch has more steps, each has its own."""
    for batch_size, told in (("full", [10, 20, 23]), (100, [*range(1, 24)])):
        out = tmp_path / str(batch_size)
        config = CONFIG.changed(eval_every=0, epochs=23, batch_size=batch_size)
        summary = train(source, config, out=out)
        lines = RunFolder(out).metrics()
        assert [line.epoch for line in lines if line.loss is not None] == told
        assert summary.loss == lines[-1].loss


def test_without_validations_the_last_epoch_is_tested(source: Source, tmp_path: Path) -> None:
    engine_for, spies = spied()
    config = CONFIG.changed(eval_every=0)
    summary = train(source, config, out=tmp_path / "run", engine_for=engine_for)
    assert spies[0].calls == ["step"] * EPOCHS * STEPS_PER_EPOCH + ["test"]
    assert summary.test_users == 30 and summary.valid == {}
    last = train(source, config.changed(eval_every=EPOCHS), out=tmp_path / "validated")
    assert summary.test == last.test


def test_a_saved_run_finds_its_files_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_interactions(Path("all.txt"))
    interrupt(Source(dataset="small", train="all.txt"), CONFIG, tmp_path / "run", steps=1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert RunFolder(tmp_path / "run").describe().source.open().n_users == 30


def test_the_split_has_a_seed_of_its_own(source: Source, tmp_path: Path) -> None:
    found = {
        (seed, split_seed): train(
            msgspec.structs.replace(source, split_seed=split_seed),
            CONFIG.changed(seed=seed, epochs=1),
            out=tmp_path / f"{seed}-{split_seed}",
        )
        for seed, split_seed in ((0, 0), (1, 0), (0, 1))
    }
    same, other_training, other_split = found.values()
    assert same.fingerprint == other_training.fingerprint != other_split.fingerprint
    assert same.loss != other_training.loss
    moved = msgspec.structs.replace(source, split_seed=1)
    with pytest.raises(RunFolderError, match="has split_seed 0, not 1"):
        train(moved, out=tmp_path / "1-0", resume=True)


def test_options_about_files_go_with_a_file() -> None:
    with pytest.raises(SourceError, match="--train"):
        Source(dataset="demo", format="csv")
    with pytest.raises(SourceError, match="--ratio"):
        Source(dataset="mine", train="a.txt", test="b.txt", ratio=(0.9, 0.05, 0.05))


def test_the_public_names_are_there() -> None:
    assert (lpgcn.Config, lpgcn.Summary) == (Config, Summary)
    assert all(getattr(lpgcn, name) for name in lpgcn.__all__)
    assert sorted(lpgcn.__all__) == [name for name in dir(lpgcn) if not name.startswith("_")]
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        lpgcn.trian  # noqa: B018


def test_a_validation_that_cannot_be_improved_is_told_once(tmp_path: Path) -> None:
    pairs = [(user, item) for user in range(20) for item in range(18) if (user + item) % 3]
    config = CONFIG.changed(epochs=6)
    with pytest.warns(EvaluationWarning, match="is 1 at epoch 2, .* give --eval-every 6") as told:
        assert train(pairs, config, out=tmp_path / "first").best_epoch == 2
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        last = train(pairs, config.changed(eval_every=6), out=tmp_path / "last")
    assert last.best_epoch == 6


def test_a_validation_that_can_be_improved_is_no_warning(tmp_path: Path) -> None:
    pairs = [(user, (7 * user + item * item) % 101) for user in range(20) for item in range(10)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", EvaluationWarning)
        assert train(pairs, CONFIG, out=tmp_path / "run").valid["recall@20"] < 1
