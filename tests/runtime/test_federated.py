"""A federation as an engine: over several processes, interrupted and resumed, the same bits."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lpgcn.config import Config
from lpgcn.data import Interactions, load
from lpgcn.evaluation import EvaluationError
from lpgcn.runtime.crowd import PrivacyWarning
from lpgcn.runtime.engines import federated
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.engines.engine import Engine
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.engines.simulated import Simulated
from lpgcn.runtime.estimation import some_users
from lpgcn.runtime.hosts.workers import WorkerError, Workers
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs import training
from lpgcn.runtime.runs.run_folder import EpochMetrics
from lpgcn.runtime.runs.saved_model import Recommender
from lpgcn.runtime.runs.source import Source

CONFIG = Config(
    mode="federated",
    planner="cover",
    layers=1,
    dim=4,
    batch_size=64,
    virtual_items="2",
    epochs=3,
    eval_every=1,
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A few users of the demo, as a file."""
    demo, path = load("demo"), tmp_path_factory.mktemp("data") / "few.csv"
    parts = list(demo.parts.values())
    pairs = [
        f"{demo.user_ids[user]},{item}"
        for part in parts
        for user, item in zip(part.users.tolist(), part.items.tolist(), strict=True)
        if user < 12 and item < 400
    ]
    path.write_text("user_id,item_id\n" + "\n".join(pairs) + "\n")
    return Source(dataset="few", train=str(path))


def take_steps(engine: Engine, numbers: Iterable[int]) -> None:
    for number in numbers:
        engine.step(*divmod(number, engine.steps_per_epoch), 0.01)


class Stop(training.Observer):
    def epoch_done(self, metrics: EpochMetrics) -> None:
        if metrics.epoch == 2:
            raise KeyboardInterrupt


def test_several_processes_and_a_resumed_run_have_the_same_bits(
    source: Source, tmp_path: Path
) -> None:
    training.train(source, CONFIG, out=tmp_path / "one")
    training.train(source, CONFIG, out=tmp_path / "two", workers=2)
    with pytest.raises(KeyboardInterrupt):
        training.train(source, CONFIG, out=tmp_path / "stopped", observer=Stop())
    training.train(source, CONFIG, out=tmp_path / "stopped", resume=True)
    central = CONFIG.changed(mode="centralized")
    training.train(source, central, out=tmp_path / "central")
    expected = Recommender.load(tmp_path / "central").vectors
    for name in ("one", "two", "stopped"):
        found = Recommender.load(tmp_path / name).vectors
        assert np.array_equal(found.users, expected.users), name
        assert np.array_equal(found.items, expected.items), name


def test_a_client_recommends_what_the_model_recommends(source: Source, tmp_path: Path) -> None:
    training.train(source, CONFIG, out=tmp_path / "run")
    model = Recommender.load(tmp_path / "run")
    split = source.open()
    state = tmp_path / "run" / "state"
    engine = Federated(split, CONFIG, planner_for(split, CONFIG), workers=2, folder=state)
    try:
        engine.resume(training.RunFolder(tmp_path / "run").checkpoints()[-1])
        engine.go_back()
        found = engine.recommend(3, 5)
    finally:
        engine.close()
    expected = model.recommend(split.user_ids[3], 5)
    assert [split.item_ids[item] for item, _ in found] == [one.item for one in expected]
    assert [score for _, score in found] == [one.score for one in expected]


def test_a_worker_that_is_killed_is_an_error_now_and_later() -> None:
    workers = Workers([], 2)
    workers._workers[0]._process.kill()
    for _ in range(2):
        with pytest.raises(WorkerError, match=r"by signal 9 \(SIGKILL\).*--resume"):
            dict(workers.perform("export", [(0, b""), (1, b"")]))
    workers.close()


def test_there_are_no_more_processes_than_clients(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def started(
        profiles: Iterable[tuple[int, bytes]], count: int, folder: Path | None, features: bytes
    ) -> Workers:
        asked.append(count)
        return Workers(profiles, min(count, 2), folder, features)

    monkeypatch.setattr(federated, "Workers", started)
    split = source.open()
    engine = Federated(split, CONFIG, planner_for(split, CONFIG), workers=10_000)
    try:
        engine.begin()
    finally:
        engine.close()
    assert asked == [split.n_users]


def test_a_call_that_broke_off_is_not_taken_up_again() -> None:
    """Its answers would come as those of the next call."""

    def broken() -> Iterator[tuple[int, bytes]]:
        yield 0, b""
        raise KeyboardInterrupt

    workers = Workers([], 2)
    with pytest.raises(KeyboardInterrupt):
        dict(workers.perform("export", broken()))
    with pytest.raises(WorkerError, match="failed before: KeyboardInterrupt"):
        dict(workers.perform("export", []))
    workers.close()


def test_an_error_of_a_client_comes_back_and_is_not_forgotten(source: Source) -> None:
    split = source.open()
    engine = Federated(split, CONFIG, planner_for(split, CONFIG), workers=2)
    engine.begin()
    with pytest.raises(WorkerError, match="MalformedMessageError"):
        dict(engine._host.perform("handle", [(0, b"\xc1")]))
    with pytest.raises(WorkerError, match="before"):
        engine.step(0, 0, 0.01)
    engine.close()


@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
def test_two_processes_are_one(source: Source, model: str) -> None:
    """Everything that an engine gives, not only what a model is made of."""
    split, config = source.open(), CONFIG.changed(model=model, layers=2)
    planner = planner_for(split, config)
    engines: list[Engine] = [
        Federated(split, config, planner, workers=2),
        Federated(split, config, planner),
        Centralized(split, config, Machine.with_threads(1)),
    ]
    found = []
    try:
        for engine in engines:
            engine.begin()
            take_steps(engine, range(3))
            measured = engine.take_loss(), engine.measure("valid"), engine.measure("test")
            inspector = engine.inspector()
            assert inspector is not None
            tables = {**inspector.state(), **vars(inspector.scorer())}
            found.append((measured, {name: table.tobytes() for name, table in tables.items()}))
        assert found[0] == found[1] == found[2]
        # What was sent is counted, not guessed: handles are random, sizes are not.
        assert engines[0].traffic() == engines[1].traffic()
    finally:
        for engine in engines:
            engine.close()


def test_a_run_goes_on_over_other_processes_and_in_other_terms(
    source: Source, tmp_path: Path
) -> None:
    """Three lives of one run: two processes, one, and a new term with other owners."""
    split, planner = source.open(), planner_for(source.open(), CONFIG)
    greedy = CONFIG.changed(planner="greedy")
    lives: list[Federated] = []
    for number, workers in ((0, 2), (1, 1), (2, 2)):
        plan = planner if number < 2 else planner_for(split, greedy)
        lives.append(Federated(split, CONFIG, plan, workers, folder=tmp_path / "state"))
        try:
            lives[-1].resume(number)
            if number == 2:
                before = lives[-1].server.plan
                lives[-1].change_members(np.arange(split.n_users))
                assert not np.array_equal(before.owner, lives[-1].server.plan.owner)
            take_steps(lives[-1], [number])
            lives[-1].checkpoint(number + 1, 0, number + 1)
            found = lives[-1].inspector().state()
        finally:
            lives[-1].close()
    centralized = Centralized(split, CONFIG, Machine.with_threads(1))
    take_steps(centralized, range(3))
    expected = centralized.inspector().state()
    assert (expected["items.steps"] == 3).all()
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert value.tobytes() == expected[name].tobytes(), name


def test_with_nothing_held_out_every_way_to_run_says_the_same(source: Source) -> None:
    whole = source.open()
    nothing = Interactions.from_pairs([], [], whole.n_users, whole.n_items)
    split = replace(whole, valid=nothing)
    planner = planner_for(split, CONFIG)
    engines: list[Engine] = [
        Centralized(split, CONFIG, Machine.with_threads(1)),
        Simulated(split, CONFIG, planner, Machine.with_threads(1)),
        Federated(split, CONFIG, planner),
    ]
    messages = set()
    for engine in engines:
        engine.begin()
        with pytest.raises(EvaluationError) as refused:
            engine.measure("valid")
        messages.add(str(refused.value))
        assert engine.measure("test").n_users > 0
    assert len(messages) == 1
    assert "no user with held-out items" in messages.pop()


@pytest.mark.parametrize(("dim", "few"), [(24, True), (20, False)])
def test_a_crowd_too_small_to_hide_in_is_warned_of(dim: int, few: bool) -> None:
    """40 clients are 2d for d = 20."""
    split = some_users(load("demo"), 40, 0)
    config = Config(
        model="lightgcn", layers=1, dim=dim, loss="softmax", batch_size="full", negatives=8
    )
    engine = Federated(split, config, planner_for(split, config))
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            engine.begin()
    finally:
        engine.close()
    assert [issubclass(one.category, PrivacyWarning) for one in seen] == [True] * few


def test_the_warning_follows_the_members(tmp_path: Path) -> None:
    """One of 40 leaves; a process that goes on from there says so, too, and says it once."""
    split = some_users(load("demo"), 40, 0)
    config = Config(
        model="lightgcn", layers=1, dim=20, loss="softmax", batch_size="full", negatives=8
    )
    lives = [
        Federated(split, config, planner_for(split, config), folder=tmp_path / "state")
        for _ in range(2)
    ]
    told = []
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for act in (
                lives[0].begin,
                lambda: lives[0].checkpoint(1, 0, 0),
                lambda: lives[0].change_members(np.arange(39)),
                lambda: lives[0].checkpoint(2, 0, 0),
                lambda: lives[1].resume(2),
                lambda: lives[1].resume(2),
            ):
                act()
                told.append([str(one.message)[:10] for one in seen])
                seen.clear()
    finally:
        for engine in lives:
            engine.close()
    assert told == [[], [], ["39 clients"], [], ["39 clients"], []]
