"""From files to a split."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.data import (
    Columns,
    DataError,
    DataWarning,
    Interactions,
    Split,
    Splitting,
    ratio_split,
    read_split,
)
from lpgcn.data.written import check_can_be_written

PAIRS = st.sets(st.tuples(st.integers(0, 8), st.integers(0, 30)), min_size=1, max_size=80)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


def write_csv(path: Path, pairs: list[tuple[int, int]], prefix: str = "") -> Path:
    lines = [f"{prefix}{user},{prefix}{item}" for user, item in pairs]
    path.write_text("\n".join(["user_id,item_id", *lines]))
    return path


def external(split: Split, part: Interactions) -> set[tuple[int | str, int | str]]:
    return {
        (split.user_ids[user], split.item_ids[item])
        for user, item in zip(part.users, part.items, strict=True)
    }


@given(PAIRS, st.integers(0, 2**32))
def test_one_file_is_split_whatever_its_order_and_format(
    folder: Path, pairs: set[tuple[int, int]], seed: int
) -> None:
    ordered = sorted(pairs)
    shuffled = random.Random(seed).sample(ordered, len(ordered))
    split = read_split(write_csv(folder / "a.csv", ordered), splitting=Splitting(seed=seed))
    (folder / "b.txt").write_text("\n".join(f"{user} {item}" for user, item in shuffled))
    again = read_split(folder / "b.txt", splitting=Splitting(seed=seed))
    assert split.fingerprint == again.fingerprint
    assert (split.name, again.name) == ("a", "b")
    parts = [external(split, part) for part in split.parts.values()]
    assert set().union(*parts) == pairs
    assert sum(map(len, parts)) == len(pairs)
    assert list(split.user_ids) == sorted({user for user, _ in pairs})
    assert list(split.item_ids) == sorted({item for _, item in pairs})
    whole = Interactions.from_pairs(
        [split.user_ids.index_of(user) for user, _ in ordered],
        [split.item_ids.index_of(item) for _, item in ordered],
        split.n_users,
        split.n_items,
    )
    for mine, expected in zip(
        split.parts.values(), ratio_split(whole, (0.8, 0.1, 0.1), seed), strict=True
    ):
        assert np.array_equal(mine.keys, expected.keys)


@given(PAIRS, st.integers(0, 2**32), st.sampled_from(["", "id-"]))
def test_ready_made_parts_are_kept(
    folder: Path, pairs: set[tuple[int, int]], seed: int, prefix: str
) -> None:
    """Items that only valid or test has are allowed; every user trains on item 97."""
    draw = random.Random(seed)
    parts: list[list[tuple[int, int]]] = [[], [], []]
    for pair in sorted(pairs):
        parts[draw.randrange(3)].append(pair)
    for number, part in enumerate(parts):
        part += [(user, 97 + number) for user in range(9)]
        draw.shuffle(part)
    paths = [
        write_csv(folder / f"{name}.csv", part, prefix)
        for name, part in zip(("train", "valid", "test"), parts, strict=True)
    ]
    split = read_split(*paths, name="mine")
    spelt = [{(f"{prefix}{u}", f"{prefix}{i}") for u, i in part} for part in parts]
    found = [external(split, part) for part in split.parts.values()]
    assert [{(str(u), str(i)) for u, i in part} for part in found] == spelt
    assert split.user_ids.are_numbers == (prefix == "")
    assert split.name == "mine"
    for path in paths:
        lines = path.read_text().split("\n")
        path.write_text("\n".join([lines[0], *reversed(lines[1:])]))
    assert read_split(*paths).fingerprint == split.fingerprint


def test_a_part_that_is_not_given_is_empty(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "train.csv", [(0, 1), (1, 1)])
    test = write_csv(tmp_path / "test.csv", [(0, 2)])
    split = read_split(train, test=test)
    assert [len(part) for part in split.parts.values()] == [2, 0, 1]
    assert (split.n_users, split.n_items) == (2, 2)
    split = read_split(train, valid=test)
    assert [len(part) for part in split.parts.values()] == [2, 1, 0]


def test_ids_that_are_strings_in_one_file_are_strings_in_all(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "train.csv", [(9, 1), (10, 1)])
    (tmp_path / "test.csv").write_text("user_id,item_id\n9,1b\n10,2")
    split = read_split(train, test=tmp_path / "test.csv")
    assert list(split.user_ids) == [9, 10]
    assert list(split.item_ids) == ["1", "1b", "2"]
    assert external(split, split.test) == {(9, "1b"), (10, "2")}


@given(PAIRS, st.data())
def test_duplicates_are_counted_and_merged(
    folder: Path, pairs: set[tuple[int, int]], data: st.DataObject
) -> None:
    once = sorted(pairs)
    more = data.draw(st.lists(st.sampled_from(once), min_size=1, max_size=5))
    clean = read_split(write_csv(folder / "once.csv", once))
    path = write_csv(folder / "more.csv", once + more)
    user, item = more[0]
    with pytest.warns(
        DataWarning,
        match=f"{len(more)} of {len(once + more)} interactions are duplicates and were merged; "
        f"the first is user {user} and item {item}, again on line {len(once) + 2}$",
    ):
        assert read_split(path).fingerprint == clean.fingerprint


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            ("0 1 2\n1 2\n", "0 3 1\n1 2\n", "0 4\n"),
            r"valid\.txt: pairs in both train and valid: 2; the first is user 0 and item 1 "
            r"\(line 1 of .*train\.txt and line 1 of .*valid\.txt\); remove them",
        ),
        (("0 1\n1 2\n", "0 3\n", "0 4\n1 2\n"), r"test\.txt: pairs in both train and test: 1;"),
        (("0 1\n1 2\n", "0 3\n", "0 4\n0 3\n"), "pairs in both valid and test: 1;"),
        (("0 1\n", "", "0 4\n"), r"valid\.txt: the file is empty"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    tmp_path: Path, files: tuple[str, ...], message: str
) -> None:
    paths = [tmp_path / f"{name}.txt" for name in ("train", "valid", "test")]
    for path, text in zip(paths, files, strict=True):
        path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_split(*paths)
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_a_user_alone_on_a_line_of_a_held_out_file_is_nothing(tmp_path: Path) -> None:
    """Public copies of LightGCN's test.txt have such lines."""
    (tmp_path / "train.txt").write_text("0 1\n1 2\n")
    (tmp_path / "test.txt").write_text("0 2\n1 \n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        split = read_split(tmp_path / "train.txt", test=tmp_path / "test.txt")
    assert external(split, split.test) == {(0, 2)}


@pytest.mark.parametrize(
    ("files", "message", "users", "sizes"),
    [
        (
            ("0 1\n1 2\n", "0 3\n5 3\n", "6 4\n0 4\n"),
            r"train\.txt: 2 users have no training items and are left out, the first is user 5;",
            [0, 1],
            [2, 1, 1],
        ),
        (("0 1\n1 2\n", "0 3\n", "0 5\n6 4\n"), "1 users .* is user 6;", [0, 1], [2, 1, 1]),
        (("0 1\n1\n2 3\n", "0 3\n", "1 4\n"), "1 users .* is user 1;", [0, 2], [2, 1, 0]),
        (("0 1\n7\n2 3\n", "0 3\n", "2 4\n"), "1 users .* is user 7;", [0, 2], [2, 1, 1]),
    ],
)
def test_users_without_training_items_are_left_out_and_counted(
    tmp_path: Path, files: tuple[str, ...], message: str, users: list[int], sizes: list[int]
) -> None:
    paths = [tmp_path / f"{name}.txt" for name in ("train", "valid", "test")]
    for path, text in zip(paths, files, strict=True):
        path.write_text(text)
    with pytest.warns(DataWarning, match=message):
        split = read_split(*paths)
    assert list(split.user_ids) == users
    assert [len(part) for part in split.parts.values()] == sizes
    assert split.train.user_degrees.min() > 0
    check_can_be_written(split)


@given(PAIRS, st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.3]))
def test_validation_is_taken_out_of_train_where_there_is_only_a_test_part(
    folder: Path, pairs: set[tuple[int, int]], seed: int, share: float
) -> None:
    train = write_csv(folder / "train.csv", sorted(pairs))
    test = write_csv(folder / "test.csv", [(user, 99) for user in {u for u, _ in pairs}])
    splitting = Splitting(valid_ratio=share, seed=seed)
    split = read_split(train, test=test, splitting=splitting)
    assert external(split, split.train) | external(split, split.valid) == pairs
    assert len(split.train) + len(split.valid) == len(pairs)
    for user, degree in enumerate(split.train.user_degrees + split.valid.user_degrees):
        assert split.valid.user_degrees[user] == min(int(share * degree + 0.5), degree - 1)
    assert external(split, split.test) == {(user, 99) for user, _ in pairs}


def test_parts_are_not_split_again(tmp_path: Path) -> None:
    train = write_csv(tmp_path / "train.csv", [(0, 1), (1, 1)])
    test = write_csv(tmp_path / "test.csv", [(0, 2)])
    for splitting in (Splitting("leave-one-out"), Splitting(k_core=2)):
        with pytest.raises(DataError, match="ready-made parts were given"):
            read_split(train, test=test, splitting=splitting)


@given(PAIRS, st.integers(1, 5))
def test_a_k_core_is_what_remains(folder: Path, pairs: set[tuple[int, int]], k: int) -> None:
    path = write_csv(folder / "core.csv", sorted(pairs))
    left = set(pairs)
    while weak := {
        (user, item)
        for user, item in left
        if sum(u == user for u, _ in left) < k or sum(i == item for _, i in left) < k
    }:
        left -= weak
    if not left:
        with pytest.raises(DataError, match=f"have {k} interactions or more"):
            read_split(path, splitting=Splitting(k_core=k))
        return
    split = read_split(path, splitting=Splitting(k_core=k))
    parts = [external(split, part) for part in split.parts.values()]
    assert set().union(*parts) == left
    assert list(split.user_ids) == sorted({user for user, _ in left})
    assert list(split.item_ids) == sorted({item for _, item in left})


def test_a_split_by_time_leaves_out_who_came_later(tmp_path: Path) -> None:
    path = tmp_path / "timed.csv"
    dates = [f"2026-01-{day:02d}" for day in range(1, 11)]
    rows = [f"{'new' if day > 9 else 'old'},{day},{date}" for day, date in enumerate(dates, 1)]
    path.write_text("\n".join(["user_id,item_id,when", *rows]))
    columns = Columns(time="when")
    with pytest.warns(DataWarning, match="'new'; so are 1 items that nobody else has;"):
        split = read_split(path, columns=columns, splitting=Splitting("temporal"))
    assert list(split.user_ids) == ["old"]
    assert list(split.item_ids) == list(range(1, 10))
    check_can_be_written(split)
    assert [len(part) for part in split.parts.values()] == [8, 1, 0]
    with pytest.raises(DataError, match=r"needs the time of every interaction.*--time-column"):
        read_split(path, splitting=Splitting("temporal"))
    last = read_split(path, columns=columns, splitting=Splitting("leave-one-out"))
    assert external(last, last.test) == {("old", 9)}
    assert external(last, last.valid) == {("old", 8)}


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("timestamp", r"perhaps 'timestamp', say which with --time-column timestamp"),
        ("mood", r"if a column has them, say which with --time-column \(in Python"),
    ],
)
def test_last_items_that_are_drawn_are_told(tmp_path: Path, column: str, said: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"user_id,item_id,{column}\n0,1,5\n0,2,3\n0,3,4\n")
    with pytest.warns(DataWarning, match=f"no times: the last items are drawn; .*{said}"):
        read_split(path, splitting=Splitting("leave-one-out"))


def test_a_pair_that_comes_again_is_of_its_first_time(tmp_path: Path) -> None:
    path = tmp_path / "again.csv"
    path.write_text("user_id,item_id,t\n0,1,5\n0,2,3\n0,3,4\n0,1,1\n")
    with pytest.warns(DataWarning, match="duplicates"):
        split = read_split(path, columns=Columns(time="t"), splitting=Splitting("leave-one-out"))
    assert external(split, split.test) == {(0, 3)}


def test_a_ratio_is_checked_before_anything_is_read() -> None:
    with pytest.raises(DataError, match="add up to 1"):
        Splitting(ratio=(0.5, 0.1, 0.1))
    with pytest.raises(DataError, match=r"share 1\.0 of the training part"):
        Splitting(valid_ratio=1.0)
    with pytest.raises(DataError, match="k-core of 0"):
        Splitting(k_core=0)
