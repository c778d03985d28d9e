"""Named data sets, on real copies where there are some."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lpgcn.data import DataError, Splitting, describe, load, names


def test_names_and_descriptions() -> None:
    assert set(names()) == {"demo", "ml-100k", "gowalla", "yelp2018", "amazon-book"}
    for name in names():
        dataset = describe(name)
        assert dataset.name == name
        assert dataset.summary and dataset.source


def test_a_missing_data_set_names_folder_files_and_source(tmp_path: Path) -> None:
    (tmp_path / "gowalla").mkdir()
    (tmp_path / "gowalla" / "train.txt").write_text("0 1\n")
    with pytest.raises(DataError) as error:
        load("gowalla", tmp_path)
    message = str(error.value)
    assert str(tmp_path / "gowalla") in message
    assert "missing valid.txt, test.txt" in message
    assert describe("gowalla").source in message and "LPGCN_DATA" in message
    assert describe("gowalla").missing(tmp_path) == ("valid.txt", "test.txt")


def test_an_unknown_name_gets_a_hint() -> None:
    with pytest.raises(
        DataError,
        match=r"unknown data set 'Gowala'; .*Did you mean 'gowalla'\?.* \(in Python Source\(",
    ):
        load("Gowala")


def test_the_folder_is_given_or_from_the_environment_or_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = ["1\t7\t4\t0", "1\t8\t5\t0", "2\t7\t3\t0", "3\t9\t4\t0", "3\t7\t1\t0"]
    for folder in ("given", "environment", "data"):
        (tmp_path / folder / "ml-100k").mkdir(parents=True)
        (tmp_path / folder / "ml-100k" / "u.data").write_text("\n".join(lines))
        lines.append(f"4\t{len(lines)}\t4\t0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LPGCN_DATA", "environment")
    given = load("ml-100k", tmp_path / "given")
    assert (list(given.user_ids), list(given.item_ids)) == ([1, 3], [7, 8, 9])
    assert list(load("ml-100k").item_ids) == [5, 7, 8, 9]
    monkeypatch.delenv("LPGCN_DATA")
    assert list(load("ml-100k").item_ids) == [5, 6, 7, 8, 9]


def test_the_seed_of_the_split_is_for_data_that_is_split_here(tmp_path: Path) -> None:
    (tmp_path / "ml-100k").mkdir()
    lines = (f"{user}\t{item}\t5\t0" for user in range(20) for item in range(10))
    (tmp_path / "ml-100k" / "u.data").write_text("\n".join(lines))
    splits = [load("ml-100k", tmp_path, splitting=Splitting(seed=seed)) for seed in (0, 1, 2)]
    assert len({split.fingerprint for split in splits}) == 3
    assert len({tuple(map(len, split.parts.values())) for split in splits}) == 1
    assert load("ml-100k", tmp_path).fingerprint == splits[0].fingerprint
    for name in set(names()) - {"ml-100k"}:
        with pytest.raises(DataError, match=rf"of a split for '{name}'.* ready-made.*ml-100k"):
            load(name, tmp_path, splitting=Splitting(seed=7))
    by_time = load("ml-100k", tmp_path, splitting=Splitting("leave-one-out"))
    assert [len(part) for part in by_time.parts.values()] == [160, 20, 20]


@pytest.mark.parametrize(
    ("name", "n_users", "n_items", "sizes"),
    [
        ("gowalla", 29_858, 40_981, (739_706, 82_190, 205_474)),
        ("yelp2018", 31_668, 38_048, (1_113_533, 123_726, 324_147)),
    ],
)
def test_ready_made_splits(
    real_data: Path, name: str, n_users: int, n_items: int, sizes: tuple[int, int, int]
) -> None:
    split = load(name, real_data)
    assert (split.name, split.n_users, split.n_items) == (name, n_users, n_items)
    assert tuple(len(part) for part in split.parts.values()) == sizes
    assert np.array_equal(split.user_ids.values, np.arange(n_users))
    assert np.array_equal(split.item_ids.values, np.arange(n_items))
    with (real_data / name / "test.txt").open() as file:
        for line, _ in zip(file, range(100), strict=False):
            user, *items = map(int, line.split())
            assert split.test.items_of(user).tolist() == sorted(set(items))


def test_movielens(real_data: Path) -> None:
    """942 of 943 users have a rating of 4 or 5; such ratings are 55,375."""
    split = load("ml-100k", real_data)
    assert (split.n_users, split.n_items) == (942, 1447)
    sizes = [len(part) for part in split.parts.values()]
    assert sum(sizes) == 55_375
    assert np.abs(np.array(sizes) / 55_375 - (0.8, 0.1, 0.1)).max() < 0.005
    assert split.train.user_degrees.min() > 0
    with (real_data / "ml-100k" / "u.data").open() as file:
        rows = [tuple(map(int, line.split())) for line in file]
    liked = {(user, item) for user, item, rating, _ in rows if rating >= 4}
    assert liked == {
        (split.user_ids[user], split.item_ids[item])
        for part in split.parts.values()
        for user, item in zip(part.users, part.items, strict=True)
    }
