"""A federation as an engine: over several processes, interrupted and resumed, the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from lpgcn.config import Config
from lpgcn.data import load
from lpgcn.runtime import training
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs.saved_model import Recommender
from lpgcn.runtime.runs.run_folder import EpochMetrics
from lpgcn.runtime.runs.source import Source
from lpgcn.runtime.hosts.workers import WorkerError, Workers

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
        assert torch.equal(found.users, expected.users), name
        assert torch.equal(found.items, expected.items), name


def test_a_client_recommends_what_the_model_recommends(source: Source, tmp_path: Path) -> None:
    training.train(source, CONFIG, out=tmp_path / "run")
    model = Recommender.load(tmp_path / "run")
    split = source.open(CONFIG.seed)
    engine = Federated(split, CONFIG, planner_for(split, CONFIG), workers=2)
    try:
        state = training.RunFolder(tmp_path / "run").load_checkpoint()
        assert state is not None
        engine.set_parameters(state.best)
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
        with pytest.raises(WorkerError):
            workers.perform("export", [(0, b""), (1, b"")])
    workers.close()


def test_a_call_that_broke_off_is_not_taken_up_again() -> None:
    """Its answers would come as those of the next call."""

    def broken() -> Iterator[tuple[int, bytes]]:
        yield 0, b""
        raise KeyboardInterrupt

    workers = Workers([], 2)
    with pytest.raises(KeyboardInterrupt):
        workers.perform("export", broken())
    with pytest.raises(WorkerError, match="failed before: KeyboardInterrupt"):
        workers.perform("export", [])
    workers.close()


def test_an_error_of_a_client_comes_back_and_is_not_forgotten(source: Source) -> None:
    split = source.open(CONFIG.seed)
    engine = Federated(split, CONFIG, planner_for(split, CONFIG), workers=2)
    with pytest.raises(WorkerError, match="MalformedMessageError"):
        engine._host.perform("handle", [(0, b"\xc1")])
    with pytest.raises(WorkerError, match="before"):
        engine.step(0, 0, 0.01)
    engine.close()
