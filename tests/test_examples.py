"""The notebook: its cells run from the first to the last, and print what is printed in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parent.parent / "examples" / "first_steps.ipynb"
KERNEL = """
import contextlib, io, json, sys
space = {}
for source in json.load(sys.stdin):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(source, "cell", "exec"), space)
    print(json.dumps(shown.getvalue()), flush=True)
"""
"""All that these cells need of one: a process in which names stay."""


@pytest.mark.slow
def test_the_notebook_prints_what_is_printed_in_it(tmp_path: Path) -> None:
    cells = [
        cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"
    ]
    sources = ["".join(cell["source"]) for cell in cells]
    done = subprocess.run(
        [sys.executable, "-c", KERNEL], input=json.dumps(sources), cwd=tmp_path,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == ["".join(cell["outputs"][0]["text"]) for cell in cells]
    assert "the same bits: True" in found[-2]
