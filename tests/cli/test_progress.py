"""What is told about a run while it runs, where there is no terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.status import Status

from lpgcn.cli import progress
from lpgcn.config import Config
from lpgcn.data import load
from lpgcn.evaluation import EarlyStopping
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
    config = Config(model="lightgcn", loss="softmax", batch_size="full", groups=asked)
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
