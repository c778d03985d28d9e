"""Which data a run is about, and that its split has a seed of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lpgcn
from lpgcn.config import Config, ConfigError
from lpgcn.data import Columns, DataError, read_split
from lpgcn.runtime.runs.run_folder import RunFolder
from lpgcn.runtime.runs.source import Source, SourceError

SEEDS = (0, 1, 2**63 - 1)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One file of one's own, and the same pairs as a named data set that is split here."""
    pairs = [(user, (user + item) % 12) for user in range(9) for item in range(10)]
    rows = "".join(f"{user},{item}\n" for user, item in pairs)
    (tmp_path / "mine.csv").write_text(f"user_id,item_id\n{rows}")
    (tmp_path / "ml-100k").mkdir()
    lines = "".join(f"{user}\t{item}\t5\t0\n" for user, item in pairs)
    (tmp_path / "ml-100k" / "u.data").write_text(lines)
    monkeypatch.setenv("LPGCN_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_the_split_seed_alone_decides_a_split_of_ones_own_file_and_of_a_named_data_set() -> None:
    own = [Source(dataset="mine", train="mine.csv", split_seed=seed).open() for seed in SEEDS]
    named = [Source(dataset="ml-100k", split_seed=seed).open() for seed in SEEDS]
    found = [split.fingerprint for split in own]
    assert found == [split.fingerprint for split in named]
    assert len(set(found)) == len(SEEDS)
    assert Source(dataset="ml-100k").open().fingerprint == found[0]


def test_paths_are_as_good_as_strings(folder: Path) -> None:
    path: Any = folder / "mine.csv"
    assert Source(dataset="mine", train=path) == Source(dataset="mine", train=str(path))
    by_path, by_string = (read_split(file, test=None) for file in (path, str(path)))
    assert by_path.fingerprint == by_string.fingerprint
    assert by_string.name == "mine"
    (folder / "late.csv").write_text("user_id,item_id\n0,11\n")
    assert len(read_split(str(path), test="late.csv").test) == 1


def test_a_path_is_trained_as_a_source(folder: Path) -> None:
    model = lpgcn.Model("popular")
    by_path = model.fit(folder / "mine.csv", out=folder / "run").summary
    assert by_path.dataset == "mine"
    source = Source(dataset="mine", train=str(folder / "mine.csv"))
    assert RunFolder(folder / "run").describe().source == source
    assert by_path.fingerprint == source.open().fingerprint
    with pytest.raises(SourceError, match="give a Source with them"):
        model.fit(folder / "mine.csv", columns=Columns("who"))


def test_a_configuration_has_no_say_in_the_split() -> None:
    assert "split_seed" not in Config.__struct_fields__
    assert "seed" not in Source.__struct_fields__


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ["demo", "gowalla", "yelp2018"])
def test_ready_made_splits_have_no_seed(name: str) -> None:
    with pytest.raises(DataError, match=f"of a split for '{name}', whose parts are ready-made"):
        Source(dataset=name, split_seed=3).open()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "latest"}, "split is 'latest'; expected ratio or leave-one-out or temporal"),
        ({"split_seed": -1}, "split_seed is -1; expected"),
        ({"split_seed": 2**63}, "expected a whole number from 0 to"),
        ({"train": "a", "valid": "b", "split_seed": 1}, "found --split-seed and a ready-made"),
        ({"train": "a", "valid": "b", "valid_ratio": 0.2}, "found --valid-ratio and a ready-made"),
        ({"train": "a", "valid_ratio": 0.2}, "found --valid-ratio and no --test"),
        ({"train": "a", "valid": "b", "ratio": (0.5, 0.5, 0.0)}, "found --ratio and ready-made"),
        ({"train": "a", "test": "b", "k_core": 5}, "found --k-core and ready-made"),
        ({"train": "a", "test": "b", "split": "temporal"}, "found --split and ready-made"),
        ({"split": "leave-one-out", "ratio": (0.5, 0.5, 0.0)}, "found --ratio and --split leave"),
        ({"split": "temporal", "split_seed": 2}, "found --split-seed and --split temporal"),
        ({"valid_ratio": 0.2}, "options about files"),
        ({"format": "csv", "split_seed": 1}, "options about files"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, object], message: str) -> None:
    with pytest.raises((SourceError, ConfigError), match=message):
        Source(dataset="ml-100k", **options)  # type: ignore[arg-type]


def test_a_source_survives_its_flags() -> None:
    source = Source(dataset="x", train="/a b.csv", ratio=(0.5, 0.25, 0.25), user_column="who")
    assert source.flags() == [
        "x", "--train", "/a b.csv", "--user-column", "who", "--ratio", "0.5", "0.25", "0.25",
    ]  # fmt: skip
