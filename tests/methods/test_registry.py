"""Methods of other packages, and what there is to say about every one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lpgcn.config import ConfigError
from lpgcn.methods.model import Model
from lpgcn.methods.registry import METHODS, described, find, names

OUTSIDE = '''
import numpy as np
from lpgcn.evaluation import Vectors
from lpgcn.methods import IN_ONE_GO, Losses, Method

class Backwards:
    """The least popular first."""
    steps_per_epoch = 1
    def __init__(self, split):
        self.degrees, self.n = split.train.item_degrees.astype(float), split.n_users
    def step(self, epoch, step, learning_rate): return Losses(0.0, 1)
    def scorer(self): return Vectors(np.ones((self.n, 1)), -self.degrees[:, None])
    def state(self): return {"degrees": self.degrees.copy()}
    def restore(self, state): self.degrees = state["degrees"]
    def traffic(self): return None

def fit(split, config, options, machine): return Backwards(split)

METHOD = Method(name="backwards", summary="least popular", fit=fit, protects="Nothing.",
                defaults=IN_ONE_GO)
'''


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A tiny package as pip would lay it out, with an entry point."""
    (tmp_path / "outside.py").write_text(OUTSIDE)
    info = tmp_path / "outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[lpgcn.methods]\nbackwards = outside:METHOD\npopular = outside:METHOD\n"
        "broken = outside:fit\nmissing = nowhere:METHOD\n"
    )
    return tmp_path


def lpgcn(*words: str, path: Path) -> subprocess.CompletedProcess[str]:
    script = f"import sys; sys.path.insert(0, {str(path)!r}); from lpgcn.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )


def test_a_package_adds_a_method(outside: Path, tmp_path: Path) -> None:
    out = str(tmp_path / "run")
    done = lpgcn("train", "demo", "--model", "backwards", "--out", out, path=outside)
    assert done.returncode == 0, done.stderr
    listed = lpgcn("models", path=outside)
    assert "backwards" in listed.stdout
    assert "warning: the entry point 'broken'" in listed.stderr
    assert "warning: the method 'missing' of another package cannot be loaded" in listed.stderr
    # A saved model needs no code of the package that trained it.
    best = lpgcn("recommend", out, "--user", "user-1", "-k", "1", "--json", path=tmp_path / "none")
    assert best.returncode == 0, best.stderr
    loaded = Model.load(out)
    assert loaded.config.model == "backwards"
    [first] = loaded.recommend("user-1", 1)
    assert first.item == json.loads(best.stdout)["items"][0]["item"]


def test_our_names_stay_ours_and_what_is_no_method_is_refused(outside: Path) -> None:
    assert "most popular" in lpgcn("models", "popular", path=outside).stdout
    refused = lpgcn("models", "broken", path=outside)
    assert refused.returncode != 0
    assert "expected a lpgcn.methods.Method" in refused.stderr


def test_every_one_says_what_it_is_and_what_it_protects() -> None:
    assert len(names()) == len(set(names())) >= len(METHODS)
    for name in names():
        about = described(name)
        assert about.summary and about.protects.endswith((".", ".)"))


def test_a_near_name_is_offered() -> None:
    with pytest.raises(ConfigError, match="did you mean 'popular'"):
        find("populer")


def test_the_method_of_the_documentation(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "METHODS.md"
    example = page.read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    (tmp_path / "recent.py").write_text(example)
    info = tmp_path / "recent-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: recent\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lpgcn.methods]\nrecent = recent:METHOD\n")
    words = ("train", "demo", "--model", "recent", "--out", str(tmp_path / "run"))
    done = lpgcn(*words, path=tmp_path)
    assert done.returncode == 0, done.stderr
