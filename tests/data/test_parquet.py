"""Parquet files, with pyarrow and without."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.data import Columns, DataError
from lpgcn.data.readers import read
from lpgcn.data.rows import Rows

NUMBERS = st.integers(1 - 2**53, 2**53 - 1)
NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=6
).filter(str.strip)


def write(path: Path, **columns: Any) -> Path:
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


def pairs_of(rows: Rows) -> list[tuple[int | str, int | str]]:
    return [
        (rows.users.ids[user], rows.items.ids[item])
        for user, item in zip(rows.users.codes.tolist(), rows.items.codes.tolist(), strict=True)
    ]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parquet")


@given(
    pairs=st.lists(st.tuples(NUMBERS, NAMES), min_size=1, max_size=20),
    number=st.sampled_from([pa.int64(), pa.float64()]),
    name=st.sampled_from([pa.string(), pa.large_string()]),
    categories=st.booleans(),
)
def test_round_trip_of_every_type_of_id(
    folder: Path,
    pairs: list[tuple[int, str]],
    number: pa.DataType,
    name: pa.DataType,
    categories: bool,
) -> None:
    users = pa.array([user for user, _ in pairs], pa.int64()).cast(number)
    items = pa.array([f"#{item}" for _, item in pairs], name)
    if categories:
        users, items = users.dictionary_encode(), items.dictionary_encode()
    path = write(folder / "a.parquet", item_id=items, user_id=users)
    rows = read(path, Columns())
    assert pairs_of(rows) == [(user, f"#{item}".strip()) for user, item in pairs]
    assert rows.lines.tolist() == list(range(1, len(pairs) + 1))


def test_only_ratings_from_the_minimum_on_count(folder: Path) -> None:
    path = write(folder / "r.pq", u=[1, 1, 2], i=["a", "b", "c"], stars=[5.0, 3.5, 4.0])
    rows = read(path, Columns("u", "i", "stars", minimum_rating=4))
    assert pairs_of(rows) == [(1, "a"), (2, "c")]
    assert list(rows.items.ids) == ["a", "c"]
    assert rows.lines.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"user": [1], "item_id": [1]}, r"unknown column 'user_id' \(did you mean 'user'"),
        ({"user_id": [1, None], "item_id": [1, 2]}, "line 2: column 'user_id' has None"),
        ({"user_id": ["a", None], "item_id": [1, 2]}, "line 2: column 'user_id' has None"),
        ({"user_id": [1.0, math.nan], "item_id": [1, 2]}, "line 2: column 'user_id' has nan"),
        ({"user_id": [1.0, 2.5], "item_id": [1, 2]}, "has 2.5; expected a whole number"),
        (
            {"user_id": [1.0, 1e300], "item_id": [1, 2]},
            "has 1e.300; expected a whole number",
        ),
        ({"user_id": [2.0**53], "item_id": [1]}, "at most 9007199254740991; above that"),
        ({"user_id": ["a", " "], "item_id": [1, 2]}, "line 2: column 'user_id' has ' '"),
        ({"user_id": ["a", "a", "NaN"], "item_id": [1, 2, 3]}, "line 3: column 'user_id' has 'Na"),
        ({"user_id": [True], "item_id": [1]}, "type bool; expected whole numbers or strings"),
        ({"user_id": [1], "item_id": [1], "rating": ["good"]}, "type string; expected numbers"),
        ({"user_id": [1], "item_id": [1], "rating": [math.nan]}, "line 1: column 'rating' has nan"),
        ({"user_id": [1], "item_id": [1], "rating": [1]}, "no interactions rated 4 or more"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "a.parquet", **columns)
    with pytest.raises(DataError, match=message):
        read(path, Columns(minimum_rating=4 if "rating" in columns else None))


def test_only_moments_and_numbers_are_times(tmp_path: Path) -> None:
    since = pa.array([1, 2], pa.duration("s"))
    path = write(tmp_path / "a.parquet", user_id=[1, 1], item_id=[1, 2], since=since)
    with pytest.raises(DataError, match=r"column 'since' has type duration.*; expected numbers"):
        read(path, Columns(time="since"))


def test_a_file_that_is_not_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("user_id,item_id")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read(tmp_path / "a.parquet", Columns())
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        read(tmp_path / "missing.parquet", Columns())


def test_without_pyarrow_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"pip install 'lpgcn\[parquet\]'"):
        read(tmp_path / "a.parquet", Columns())
