"""Shells complete commands and options: what `lpgcn completion` prints is run by a real shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = str(Path(sys.executable).parent)
ENVIRONMENT = {**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"}


def completed(words: list[str]) -> set[str]:
    """What bash offers after these words: its own variables, then the function that was printed."""
    line = " ".join(words)
    script = (
        'eval "$(lpgcn completion bash)"\n'
        f"COMP_WORDS=({' '.join(repr(word) for word in words)})\n"
        f"COMP_CWORD={len(words) - 1}\nCOMP_LINE={line!r}\n"
        '_lpgcn_completion lpgcn\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_bash_completes_commands_and_options() -> None:
    assert {"train", "recommend", "report"} <= completed(["lpgcn", ""])
    assert completed(["lpgcn", "rep"]) == {"report"}
    assert completed(["lpgcn", "train", "--virtual-d"]) == {"--virtual-draw"}
    assert completed(["lpgcn", "train", "--mode", ""]) == {"centralized", "simulated", "federated"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_theirs(shell: str) -> None:
    done = subprocess.run(
        ["lpgcn", "completion", shell], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    assert "_LPGCN_COMPLETE" in done.stdout and f"{shell}_complete" in done.stdout
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=done.stdout, text=True, check=True)
