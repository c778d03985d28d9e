"""A real process, killed or stopped, then resumed: the same bits as a run that nobody touched."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from lpgcn.cli import main
from lpgcn.runtime.runs.run_folder import RunFolder

CONFIG = shlex.split("--layers 2 --dim 8 --lr 0.02 --batch-size 10000 --epochs 12 --patience 12")
OFTEN = [*CONFIG, "--eval-every", "1"]
NEVER = [*CONFIG, "--eval-every", "12"]
DEADLINE = 120.0


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "lpgcn", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background makes its children deaf to Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def finish(*arguments: object) -> None:
    """In this process, on one thread: the bits do not depend on who computes them."""
    outcome = CliRunner().invoke(main, [*map(str, arguments), "--threads", "1"])
    assert outcome.exit_code == 0, outcome.stderr


def stop_when(
    ready: Callable[[], bool], with_signal: signal.Signals, *arguments: object
) -> tuple[int, str]:
    """The exit code and standard error of a process that gets a signal as soon as it is ready."""
    process = start(*arguments)
    give_up = time.monotonic() + DEADLINE
    while not ready():
        try:
            process.wait(0.01)
        except subprocess.TimeoutExpired:
            assert time.monotonic() < give_up, "the process did not get ready"
        else:
            raise AssertionError(f"the process ended too early: {process.communicate()}")
    process.send_signal(with_signal)
    _, said = process.communicate(timeout=DEADLINE)
    return process.returncode, said


def has_checkpoint(out: Path) -> bool:
    """One that a run can go on from; a temporary file is none."""
    return any((out / "progress").glob("checkpoint-*"))


def result(out: Path) -> dict[str, Any]:
    """Everything that a run leaves but the time it took."""
    model = {path.name: path.read_bytes() for path in sorted((out / "model").iterdir())}
    lines = [msgspec.structs.replace(line, seconds=0) for line in RunFolder(out).metrics()]
    summary = RunFolder(out).summary()
    assert summary
    return {**model, "metrics": lines, "summary": msgspec.structs.replace(summary, seconds=0)}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("whole")
    finish("train", "demo", *OFTEN, "--out", out)
    return result(out)


def test_killed_after_a_checkpoint(tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
    asked = ["train", "demo", *OFTEN, "--out", tmp_path]
    code, _ = stop_when(lambda: has_checkpoint(tmp_path), signal.SIGKILL, *asked)
    assert code == -signal.SIGKILL
    assert not (tmp_path / "summary.json").exists()
    finish("train", "--out", tmp_path, "--resume")
    assert result(tmp_path) == uninterrupted


def test_killed_before_the_first_checkpoint(tmp_path: Path, uninterrupted: dict[str, Any]) -> None:
    asked = ["train", "demo", *NEVER, "--out", tmp_path]
    stop_when(lambda: len(RunFolder(tmp_path).metrics()) > 2, signal.SIGKILL, *asked)
    assert not has_checkpoint(tmp_path)
    finish("train", "--out", tmp_path, "--resume")
    found = result(tmp_path)
    losses = [line.loss for line in found["metrics"]]
    assert losses == [line.loss for line in uninterrupted["metrics"]]
    assert found["metrics"][-1] == uninterrupted["metrics"][-1]


@pytest.mark.parametrize(("how", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_control_c_says_how_to_go_on(
    tmp_path: Path, uninterrupted: dict[str, Any], how: signal.Signals, exit_code: int
) -> None:
    """So does what a service manager sends."""
    out = tmp_path / "a folder"
    asked = ["train", "demo", *OFTEN, "--out", out]
    code, said = stop_when(lambda: has_checkpoint(out), how, *asked)
    assert code == exit_code
    last = said.splitlines()[-1]
    assert last.startswith("stopped: continue with: lpgcn ")
    assert "Traceback" not in said
    finish(*shlex.split(last.partition("lpgcn ")[2]))
    assert result(out) == uninterrupted
