"""Interactions in memory are what a file with the same ones is."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.data import Columns, DataError, Split, Splitting, make_split, read_split

Triple = tuple[int, int, int]
TRIPLES = st.dictionaries(
    st.tuples(st.integers(0, 8), st.integers(0, 30)), st.integers(1, 5), min_size=1, max_size=80
).map(lambda rated: [(user, item, stars) for (user, item), stars in rated.items()])


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("memory")


def from_file(folder: Path, triples: list[Triple], prefix: str, **options: Any) -> Split:
    lines = [f"{prefix}{user},{prefix}{item},{stars}" for user, item, stars in triples]
    (folder / "a.csv").write_text("\n".join(["u,i,stars", *lines]))
    return read_split(folder / "a.csv", **options)


def frames(triples: list[Triple], prefix: str) -> dict[str, Any]:
    """The same interactions in every way, with ids as numbers or as strings."""
    users = [f"{prefix}{user}" if prefix else user for user, _, _ in triples]
    items = [f"{prefix}{item}" if prefix else item for _, item, _ in triples]
    stars = [rating for _, _, rating in triples]
    named = {"i": items, "other": [None] * len(items), "u": users, "stars": stars}
    frame = pd.DataFrame(named)
    whole = {} if prefix else {"array": np.array([users, items, stars]).T}
    return whole | {
        "pandas": frame,
        "pandas objects": frame.astype(object),
        "pandas categories": frame.astype({"u": "category", "i": "category"}),
        "polars": pl.DataFrame(named),
        "list": list(zip(users, items, stars, strict=True)),
        "records": frame.to_dict("records"),
        "tuple": (np.array(users), np.array(items), np.array(stars)),
    }


@settings(max_examples=25)
@given(TRIPLES, st.sampled_from(["", "id-"]), st.integers(0, 9), st.sampled_from([None, 3]))
def test_the_fingerprint_is_that_of_a_file(
    folder: Path, triples: list[Triple], prefix: str, seed: int, least: int | None
) -> None:
    columns = Columns("u", "i", "stars", minimum_rating=least)
    options: dict[str, Any] = {"columns": columns, "splitting": Splitting(seed=seed)}
    data = frames(triples, prefix)
    if least and max(stars for *_, stars in triples) < least:
        for one in data.values():
            with pytest.raises(DataError, match="no interactions rated 3"):
                make_split(one, **options)
        return
    wanted = from_file(folder, triples, prefix, **options)
    for name, one in data.items():
        found = make_split(one, name="a", **options)
        assert found.fingerprint == wanted.fingerprint, name
    assert make_split(wanted) is wanted


@settings(max_examples=25)
@given(TRIPLES, st.integers(0, 9), st.sampled_from([None, 3]))
@pytest.mark.parametrize("kind", ["csr_matrix", "csc_matrix", "coo_array", "lil_array"])
def test_the_numbers_of_a_sparse_matrix_are_interactions(
    folder: Path, kind: str, triples: list[Triple], seed: int, least: int | None
) -> None:
    users, items, stars = (np.array(column) for column in zip(*triples, strict=True))
    made = scipy.sparse.coo_array((stars.astype(float), (users, items)), shape=(20, 40))
    matrix = getattr(scipy.sparse, kind)(made)
    columns = Columns("u", "i", "stars", minimum_rating=least)
    options: dict[str, Any] = {"columns": columns, "splitting": Splitting(seed=seed)}
    if least and stars.max() < least:
        with pytest.raises(DataError, match="the matrix: there are no interactions rated 3"):
            make_split(matrix, **options)
        return
    assert (
        make_split(matrix, **options).fingerprint
        == from_file(folder, triples, "", **options).fingerprint
    )


def test_blanks_around_ids_are_no_part_of_them_in_any_reader(folder: Path) -> None:
    frame = pd.DataFrame({"user_id": ["a", " a", "b\t", "b"], "item_id": ["x", "y ", "x", " z z "]})
    frame.to_csv(folder / "blanks.csv", index=False)
    frame.to_parquet(folder / "blanks.parquet")
    splits = [
        make_split(frame),
        read_split(folder / "blanks.csv"),
        read_split(folder / "blanks.parquet"),
    ]
    assert len({split.fingerprint for split in splits}) == 1
    for split in splits:
        assert list(split.user_ids) == ["a", "b"]
        assert list(split.item_ids) == ["x", "y", "z z"]


def test_one_id_that_is_too_long_is_told_in_any_reader(folder: Path) -> None:
    def frame(length: int) -> pd.DataFrame:
        return pd.DataFrame({"user_id": ["a", "b"], "item_id": ["x", "y" * length]})

    assert make_split(frame(512)).item_ids[1] == "y" * 512
    frame(513).to_csv(folder / "long.csv", index=False)
    frame(513).to_parquet(folder / "long.parquet")
    told = r"line \d: column 'item_id' has 'y{40}…'; expected an id of at most 512 .*, not 513"
    for read in (
        lambda: make_split(frame(513)),
        lambda: read_split(folder / "long.csv"),
        lambda: read_split(folder / "long.parquet"),
    ):
        with pytest.raises(DataError, match=told):
            read()


@pytest.mark.parametrize("columns", [Columns(positions=(2, 1, 3)), Columns("1", "0", "2")])
def test_a_frame_without_names_is_read_by_positions(columns: Columns) -> None:
    frame = pd.DataFrame([("x", "a", 5), ("y", "a", 1), ("y", "b", 4)])
    with pytest.raises(DataError, match=r"the numbers 0, 1, 2; .*positions=\(1, 2, 3\).*user="):
        make_split(frame)
    for data in (frame, pl.from_pandas(frame.rename(columns=str))):
        split = make_split(data, columns=replace(columns, minimum_rating=4))
        assert list(split.user_ids) == ["a", "b"]
        assert list(split.item_ids) == ["x", "y"]
        assert len(split.train) == 2
    with pytest.raises(DataError, match="found 3 fields, expected a column 4"):
        make_split(frame, columns=Columns(positions=(1, 4)))


def test_zeros_that_are_stored_are_no_interactions() -> None:
    matrix = scipy.sparse.csr_array(([1, 0, 2], ([0, 0, 1], [3, 4, 4])), shape=(2, 5))
    split = make_split(matrix)
    assert list(split.user_ids) == [0, 1]
    assert list(split.item_ids) == [3, 4]
    assert len(split.train) == 2


@pytest.mark.parametrize("kind", ["numbers", "pandas", "polars"])
def test_times_of_a_data_frame(kind: str) -> None:
    days = ["2026-01-03", "2026-01-01", "2026-01-02"]
    times: Any = [3.0, 1.0, 2.0] if kind == "numbers" else pd.to_datetime(days)
    frame: Any = pd.DataFrame({"user_id": [1, 1, 1], "item_id": [5, 6, 7], "t": times})
    if kind == "polars":
        frame = pl.from_pandas(frame)
    split = make_split(frame, columns=Columns(time="t"), splitting=Splitting("leave-one-out"))
    assert [split.item_ids[int(part.items[0])] for part in split.parts.values()] == [6, 7, 5]
    pairs = [(1, 5, 4.0, 3), (1, 6, 4.0, 1), (1, 7, 4.0, 2)]
    same = make_split(pairs, splitting=Splitting("leave-one-out"))
    assert same.fingerprint == split.fingerprint


MOMENTS = [
    datetime(2026, 1, 3, 1, tzinfo=timezone(timedelta(hours=5))),
    datetime(2026, 1, 2, 23, 30, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=UTC),
]
"""The first is before the second, though its clock says otherwise."""


@pytest.mark.parametrize(
    "times",
    [
        pd.Series(pd.to_datetime(MOMENTS, utc=True)),
        pd.Series(pd.to_datetime(MOMENTS, utc=True)).dt.tz_convert("Asia/Tokyo"),
        MOMENTS,
        [moment.astimezone(UTC).replace(tzinfo=None) for moment in MOMENTS],
        [moment.isoformat() for moment in MOMENTS],
        np.array([moment.isoformat() for moment in MOMENTS]),
        [date(2026, 1, 2), date(2026, 1, 3), date(2026, 1, 1)],
        [str(moment.timestamp()) for moment in MOMENTS],
    ],
)
def test_every_kind_of_date_is_a_time(times: Any) -> None:
    split = make_split(
        pd.DataFrame({"user_id": [1, 1, 1], "item_id": [5, 6, 7], "t": times}),
        columns=Columns(time="t"),
        splitting=Splitting("leave-one-out"),
    )
    assert [split.item_ids[int(part.items[0])] for part in split.parts.values()] == [7, 5, 6]


def test_a_frame_may_have_a_column_of_any_name() -> None:
    frame = pd.DataFrame({"user_id": [1, 1], "item_id": [1, 2], "collect": [0, 0]})
    assert len(make_split(frame).train) == 2


@pytest.mark.parametrize("bad", [None, "soon", "nan", True, float("inf"), pd.NaT, b"2026-01-01"])
def test_what_is_no_time_is_told_with_its_place(bad: Any) -> None:
    pairs = [(1, 5, 4.0, date(2026, 1, 1)), (1, 6, 4.0, bad)]
    with pytest.raises(DataError, match=r"line 2: column 'time' has .* expected a number, or"):
        make_split(pairs, splitting=Splitting("leave-one-out"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (pd.DataFrame({"user": [1], "item_id": [1]}), r"did you mean 'user'\?"),
        (pd.DataFrame({"user_id": ["a", None], "item_id": [1, 2]}), "line 2: column 'user_id' has"),
        (pd.DataFrame({"user_id": [1.0, np.nan], "item_id": [1, 2]}), "column 'user_id' has nan"),
        (pd.DataFrame({"user_id": [1.0, 2.5], "item_id": [1, 2]}), "has 2.5; expected a whole n"),
        (
            pd.DataFrame({"user_id": [True], "item_id": [1]}),
            "has True; expected a whole number .*or",
        ),
        (pd.DataFrame({"user_id": ["a", " "], "item_id": [1, 2]}), "line 2: column 'user_id' has "),
        (pd.DataFrame({"user_id": [], "item_id": []}), "the data frame: there are no interactions"),
        (pl.DataFrame({"user_id": ["a", None], "item_id": [1, 2]}), "line 2: column 'user_id' has"),
        (scipy.sparse.csr_array((3, 3)), "the matrix: there are no interactions"),
        ((np.array([1]), np.array([1, 2])), "arrays of 1, 2 entries"),
        (np.array([1, 2]), "found ndarray as data; expected a pandas"),
        (7, "found int as data"),
        ([], "found an empty list as data"),
        ([("a",)], "found rows of 1 field as data; expected .* a list of \\(user, item"),
        ([(1, 2, 3, 4, 5)], "found rows of 5 fields as data"),
        ([(1, 2), (1, 2, 3)], "found 2 and, in row 2, 3 fields; expected as many in each"),
        ([1, 2], "found list as data"),
        (["ab"], "found list as data"),
        ([b"ab"], "found list as data"),
        ([("a", 1), ("b\ud800", 1)], "line 2: column 'user' has .* halves of surrogate pairs"),
        (pl.LazyFrame({"user_id": [1], "item_id": [1]}), r"a LazyFrame, .* give data\.collect\(\)"),
        ([("a", "b"), {"a", "c"}], "found a set as row 2, .* expected .user, item"),
        ([{"user_id": 1, "item_id": 2}, (1, 2)], "found a dict as row 1"),
        ([{"user": 1, "item_id": 2}], r"the records: .*did you mean 'user'\?"),
        ([{"user_id": 1, "item_id": 2}, {"user_id": 1}], "records, line 2: .* 'item_id' has None"),
    ],
)
def test_what_is_wrong_is_told(data: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_split(data)


@pytest.mark.parametrize(
    ("users", "message"),
    [
        (
            np.array([2.0**53 - 1, 2.0**53]),
            "line 2: .* at most 9007199254740991; above that",
        ),
        (np.array([-(2.0**60)]), "line 1: .* at most 9007199254740991; .* integers or strings"),
        (
            np.array([2.0**24 - 1, 2.0**24], dtype=np.float32),
            "line 2: .* at most 16777215; above that",
        ),
        (np.array([7, 2**63], dtype=np.uint64), "9223372036854775808; .* larger ids as strings"),
        (np.array([2.0**53], dtype=object), r"as a float, below 2\^53"),
    ],
)
def test_ids_that_numbers_do_not_tell_apart_are_refused(users: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_split((users, np.arange(len(users))))


def test_the_largest_ids_are_kept_apart() -> None:
    ends = np.array([-(2**63), 2**53, 2**53 + 1, 2**63 - 1])
    assert list(make_split((ends, np.arange(4))).user_ids) == ends.tolist()
    exact = np.array([1 - 2.0**53, 2.0**53 - 1])
    assert list(make_split((exact, np.arange(2))).user_ids) == [1 - 2**53, 2**53 - 1]


def test_a_split_is_not_split_again() -> None:
    split = make_split([(1, 2), (1, 3)])
    with pytest.raises(DataError, match="has its parts already"):
        make_split(split, splitting=Splitting("leave-one-out"))
