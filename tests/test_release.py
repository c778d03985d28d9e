"""A release: the wheel and the source distribution install and run where there is nothing else."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import lpgcn

ROOT = Path(__file__).parent.parent
PYTHONS = ("python3.11", "python3.12", "python3.13")
PIP = ["-m", "pip", "--disable-pip-version-check", "--quiet"]


def run(*words: object, cwd: Path) -> str:
    """In an environment that knows nothing of this one."""
    known = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env=known,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def interpreter_of(python: str) -> Path | None:
    """One that runs: a name on the path may be pyenv's, which has versions that are not on it."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    places = [Path(shutil.which(python) or python), *pyenv.glob(f"versions/*/bin/{python}")]
    for place in places:
        if (
            place.exists()
            and not subprocess.run([place, "--version"], capture_output=True).returncode
        ):
            return place
    return None


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """From what git has, so that nothing depends on a file that is not committed."""
    folder = tmp_path_factory.mktemp("release")
    run("git", "clone", "--quiet", ROOT, folder / "source", cwd=folder)
    tool = "import sys, hatchling.build as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"
    names = {
        kind: run(sys.executable, "-c", tool, f"build_{kind}", folder, cwd=folder / "source")
        for kind in ("sdist", "wheel")
    }
    return {kind: folder / name.split()[-1] for kind, name in names.items()}


@pytest.mark.slow
def test_both_have_what_they_need_and_no_more(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        names = wheel.namelist()
    own = {"lpgcn/py.typed", "lpgcn/cli/demo.toml", "lpgcn/report/page.css", "lpgcn/report/page.js"}
    assert own <= set(names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"lpgcn"}
    with tarfile.open(built["sdist"]) as source:
        top = {name.split("/")[1] for name in source.getnames()}
    assert {"src", "pyproject.toml", "README.md", "LICENSE", "constraints.txt"} <= top


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
def test_a_wheel_runs_where_there_is_nothing_else(
    built: dict[str, Path], python: str, tmp_path: Path
) -> None:
    interpreter = interpreter_of(python)
    if interpreter is None:
        pytest.skip(f"there is no {python} on this machine")
    run(interpreter, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    own = tmp_path / "env" / "bin"
    pins = ["-c", ROOT / "constraints.txt"]
    run(own / "python", *PIP, "install", *pins, built["wheel"], cwd=tmp_path)
    assert run(own / "lpgcn", "--version", cwd=tmp_path) == f"lpgcn {lpgcn.__version__}\n"
    short = ["--layers", "1", "--dim", "8", "--batch-size", "16384", "--epochs", "2"]
    asked = ["train", "demo", *short, "--mode", "simulated", "--out", "run", "--report", "run.html"]
    summary = json.loads(run(own / "lpgcn", *asked, "--json", cwd=tmp_path))
    assert summary["epochs"] == 2 and (tmp_path / "run.html").stat().st_size > 20_000
    found = json.loads(
        run(own / "lpgcn", "recommend", "run", "--user", "user-1", "--json", cwd=tmp_path)
    )
    assert len(found["items"]) == 20
    assert "torch" not in run(own / "python", *PIP, "list", cwd=tmp_path).lower().split()


@pytest.mark.slow
def test_a_source_distribution_makes_the_same_package(
    built: dict[str, Path], tmp_path: Path
) -> None:
    run(sys.executable, *PIP, "wheel", "--no-deps", "-w", tmp_path, built["sdist"], cwd=tmp_path)
    (again,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(built["wheel"]) as other:
        contents = [{name: pack.read(name) for name in pack.namelist()} for pack in (one, other)]
    assert contents[0] == contents[1]
