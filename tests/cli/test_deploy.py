"""The walk-through of docs/DEPLOY.md, on three network namespaces or, if need be, on loopback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("machines", ["loopback", pytest.param("auto", marks=pytest.mark.slow)])
def test_the_walk_through_works(
    machines: str, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """`auto` takes namespaces where there may be some, and loopback elsewhere."""
    here = str(Path(sys.executable).parent)
    environment = os.environ | {
        "PATH": f"{here}:{os.environ['PATH']}",
        "PORT": str(free_port()),
        "METRICS_PORT": str(free_port()),
        "SECONDS_TO_WAIT": "300",
    }
    done = subprocess.run(
        ["bash", DOCS / "deploy.sh", machines, tmp_path],
        env=environment, text=True, capture_output=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("everything is stopped")
    assert re.search(r"For user-6.*\n(.*\n)+?.*\b1\s+film-\d\d", done.stdout), done.stdout
    assert "the broker refused the credentials" in done.stderr
    model = tmp_path / "two" / "bob" / "model"
    assert model.is_dir() and not list((tmp_path / "server").rglob("model"))
    # What is the clients' own is nowhere in the server's folder.
    for path in (tmp_path / "server" / "run").rglob("*"):
        assert not path.is_file() or b"user-6" not in path.read_bytes()


def test_every_command_of_the_script_is_in_the_text() -> None:
    script, text = ((DOCS / name).read_text() for name in ("deploy.sh", "DEPLOY.md"))
    commands = set(re.findall(r"\blpgcn ((?:federation )?[a-z]+)", script)) - {"and"}
    assert commands >= {"federation init", "federation enrol", "serve", "join", "recommend"}
    for command in commands:
        assert f"lpgcn {command}" in text
