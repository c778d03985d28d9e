"""What is told about a run while it runs, where there is no terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.status import Status

from lpgcn.cli import progress
from lpgcn.config import Config
from lpgcn.data import Interactions, load
from lpgcn.evaluation import EarlyStopping
from lpgcn.protocol.phases import Phase
from lpgcn.runtime.local_cost import LocalCost
from lpgcn.runtime.runs.run_folder import EpochMetrics, Progress, Run
from lpgcn.runtime.runs.source import Source


def test_steps_are_told_from_time_to_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes 4 s here, so that every third one is told of, counted from the last line."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    run = Run(source=Source(dataset="demo"), config=Config(epochs=2), fingerprint="0" * 64)
    with progress.ProgressDisplay(Path("out")) as display:
        display.run_began(run, 7, Progress(stopping=EarlyStopping(5)))
        capsys.readouterr()
        for epoch in (1, 2):
            for _ in range(7):
                now[0] += 4
                display.step_done()
            valid = {"recall@20": 0.5} if epoch == 2 else None
            display.epoch_done(EpochMetrics(epoch=epoch, seconds=now[0], loss=0.25, valid=valid))
    assert capsys.readouterr().err.splitlines() == [
        "epoch 1/2, step 3 of 7",
        "epoch 1/2, step 6 of 7",
        "epoch 2/2, step 2 of 7",
        "epoch 2/2, step 5 of 7",
        "epoch 2/2  loss 0.2500  Recall@20 0.5000  best 0.5000 at 2  56.0 s",
    ]


def test_a_verification_tells_where_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    status = Status("", console=Console(file=io.StringIO()))
    display = progress.VerificationDisplay(status, is_terminal=False)
    display.way_began("federated sealed")
    display.planning("greedy", 0.5)
    assert status.status == "federated sealed: planning, greedy"
    for step in range(1, 6):
        now[0] += 6
        display.step_done(step, 5)
        assert status.status == f"federated sealed: step {step} of 5"
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"federated sealed: step {step} of 5" for step in (2, 4)]


@pytest.mark.parametrize("free", [10**9, 10**12, None])
def test_what_a_federation_takes_is_told_before_it_takes_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, free: int | None
) -> None:
    monkeypatch.setattr(progress, "available_memory", lambda: free)
    with progress.ProgressDisplay(Path("out")) as display:
        display.estimated(LocalCost(processes=2, seconds=754.2, memory=2 * 10**9))
    first, *more = capsys.readouterr().err.splitlines()
    assert first.startswith(
        "estimate: about 12 min 34 s for all epochs in 2 processes, and about 2"
    )
    assert first.endswith("GB of memory" if free is None else "that are free")
    assert [line.partition(":")[0] for line in more] == (["warning"] if free == 10**9 else [])


@pytest.mark.parametrize(
    ("asked", "clients", "said"),
    [
        (7, 942, ""),
        (100, 942, "7 groups instead of 100: each needs 128 clients, and there are 942"),
        (2, 130, "1 group instead of 2: each needs 128 clients, and there are 130"),
        (1, 5, ""),
    ],
)
def test_groups_that_would_be_too_small_are_told(asked: int, clients: int, said: str) -> None:
    for model in ("lightgcn", "lp-gcn"):
        config = Config(model=model, loss="softmax", batch_size="full", groups=asked)
        assert progress.fewer_groups(config, clients) == said


def test_a_run_says_at_its_beginning_that_it_has_fewer_groups(
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = Config(model="lightgcn", loss="softmax", batch_size="full", groups=100)
    run = Run(source=Source(dataset="demo"), config=config, fingerprint="0" * 64)
    with progress.ProgressDisplay(Path("out")) as display:
        display.data_read(load("demo"))
        display.run_began(run, 1, Progress(stopping=EarlyStopping(5)))
    assert "warning: 7 groups instead of 100" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("2", ""),
        ("3", "1 user of 2 cannot list --virtual-items 3: there are 5 items, and they list all b"),
        ("2.0x", "1 user of 2 cannot list --virtual-items 2.0x"),
        ("9", "2 users of 2 cannot list"),
    ],
)
def test_virtual_items_that_are_not_there_are_told(asked: str, said: str) -> None:
    train = Interactions.from_pairs([0, 1, 1], [0, 0, 1], 2, 5)
    found = progress.fewer_virtual_items(Config(virtual_items=asked), train)
    assert found.startswith(said) and bool(found) == bool(said)
    assert progress.fewer_virtual_items(Config(model="popular", virtual_items=asked), train) == ""


def test_a_user_of_all_items_is_no_matter_without_virtual_ones() -> None:
    train = Interactions.from_pairs([0, 0], [0, 1], 1, 2)
    assert progress.fewer_virtual_items(Config(), train) == ""


def test_what_is_computed_in_one_go_has_no_loss(capsys: pytest.CaptureFixture[str]) -> None:
    config = Config(model="popular", epochs=1)
    run = Run(source=Source(dataset="demo"), config=config, fingerprint="0" * 64)
    with progress.ProgressDisplay(Path("out")) as display:
        display.run_began(run, 1, Progress(stopping=EarlyStopping(5)))
        valid = {"recall@20": 0.5}
        display.epoch_done(EpochMetrics(epoch=1, seconds=2, loss=0.0, valid=valid))
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == "epoch 1/1  Recall@20 0.5000  best 0.5000 at 1  2.0 s"


def test_the_first_stage_of_a_federation_is_no_resumption(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress.ProgressDisplay(Path("out")) as display:
        display.stage_began(Phase.RESUME)
    assert capsys.readouterr().err == "initialising: clients hear from where they begin, or go on\n"
