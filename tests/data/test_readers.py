"""Every text format: what is written by a plain writer is read again, and what is wrong is told."""

from __future__ import annotations

import csv
import gzip
import math
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.data import Columns, DataError, DataWarning
from lpgcn.data.readers import read
from lpgcn.data.rows import Rows

Pair = tuple[int | str, int | str]
NUMBER_PAIRS = st.lists(
    st.tuples(st.integers(0, 10**17), st.integers(0, 10**17)), min_size=1, max_size=30
)
NAMES = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8
).filter(lambda name: name == name.strip() and name.lower() != "nan")
NAME_PAIRS = st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=30)
PLAIN_NAMES = st.text("abcXYZ019-_ é\"'", min_size=1, max_size=8).filter(
    lambda name: name == name.strip()
)


def pairs_of(rows: Rows) -> list[tuple[str, str]]:
    return [
        (str(rows.users.ids[user]), str(rows.items.ids[item]))
        for user, item in zip(rows.users.codes.tolist(), rows.items.codes.tolist(), strict=True)
    ]


def spelt(pairs: list[Pair]) -> list[tuple[str, str]]:
    return [(str(user), str(item)) for user, item in pairs]


def lightgcn(pairs: list[Pair]) -> str:
    return "".join(f"{user} {item}\n" for user, item in pairs)


def movielens(pairs: list[Pair]) -> str:
    return "".join(f"{user}\t{item}\t5\t881250949\n" for user, item in pairs)


def recbole(pairs: list[Pair]) -> str:
    lines = [f"5.0\t{user}\t{item}\n" for user, item in pairs]
    return "rating:float\tuser_id:token\titem_id:token\n" + "".join(lines)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readers")


@given(pairs=NUMBER_PAIRS, line_end=st.sampled_from(["\n", "\r\n"]), mark=st.booleans())
@pytest.mark.parametrize(
    ("name", "write"),
    [("a.txt", lightgcn), ("u.data", movielens), ("a.inter", recbole)],
)
def test_numbers_round_trip(
    folder: Path,
    name: str,
    write: Callable[[list[Pair]], str],
    pairs: list[Pair],
    line_end: str,
    mark: bool,
) -> None:
    data = write(pairs).replace("\n", line_end).encode("utf-8-sig" if mark else "utf-8")
    (folder / name).write_bytes(data)
    rows = read(folder / name, Columns())
    assert pairs_of(rows) == spelt(pairs)
    first = 2 if name.endswith("inter") else 1
    assert rows.lines.tolist() == list(range(first, first + len(pairs)))
    assert rows.users.ids.are_numbers and rows.items.ids.are_numbers


@given(pairs=NAME_PAIRS)
@pytest.mark.parametrize(("name", "delimiter"), [("a.csv", ","), ("a.tsv", "\t")])
def test_names_round_trip_with_quotes_where_needed(
    folder: Path, name: str, delimiter: str, pairs: list[Pair]
) -> None:
    with (folder / name).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["item", "when", "who"])
        writer.writerows((item, "today", user) for user, item in pairs)
    rows = read(folder / name, Columns(user="who", item="item"))
    assert pairs_of(rows) == spelt(pairs)


@given(pairs=st.lists(st.tuples(PLAIN_NAMES, PLAIN_NAMES), min_size=1, max_size=30))
def test_recbole_has_no_quotes(folder: Path, pairs: list[Pair]) -> None:
    (folder / "a.inter").write_text(recbole(pairs), encoding="utf-8")
    assert pairs_of(read(folder / "a.inter", Columns())) == spelt(pairs)


@given(st.dictionaries(st.integers(0, 99), st.lists(st.integers(0, 99)), min_size=1))
def test_lightgcn_lines_hold_a_user_and_any_number_of_items(
    folder: Path, items_of: dict[int, list[int]]
) -> None:
    items_of = items_of | {100: [3]}
    path = folder / "many.txt"
    path.write_text("\n\n".join(" ".join(map(str, [u, *i])) + " " for u, i in items_of.items()))
    rows = read(path, Columns())
    assert pairs_of(rows) == spelt([(u, i) for u, items in items_of.items() for i in items])
    line_of = {user: 2 * place + 1 for place, user in enumerate(items_of)}
    assert rows.users_alone == {line_of[u]: u for u, items in items_of.items() if not items}
    assert rows.lines.tolist() == [line_of[u] for u, items in items_of.items() for _ in items]


@given(ratings=st.lists(st.integers(1, 5), min_size=1), least=st.integers(1, 5))
@pytest.mark.parametrize("name", ["u.data", "a.csv", "a.inter"])
def test_only_ratings_from_the_minimum_on_count(
    folder: Path, name: str, ratings: list[int], least: int
) -> None:
    headers = {
        "u.data": "",
        "a.csv": "u,i,stars,t\n",
        "a.inter": "u:token\ti:token\tstars:float\tt:float\n",
    }
    between = "," if name == "a.csv" else "\t"
    lines = (between.join(map(str, (n, n + 1, stars, 0))) for n, stars in enumerate(ratings))
    (folder / name).write_text(headers[name] + "\n".join(lines))
    columns = Columns("u", "i", "stars", minimum_rating=least)
    kept = [(n, n + 1) for n, stars in enumerate(ratings) if stars >= least]
    if kept:
        rows = read(folder / name, columns)
        assert pairs_of(rows) == spelt(kept)
        assert [int(user) for user in rows.users.ids] == [user for user, _ in kept]
    else:
        with pytest.raises(DataError, match=f"no interactions rated {least} or more"):
            read(folder / name, columns)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.txt", "", r"a\.txt: the file is empty"),
        ("a.csv", " \n\n", r"a\.csv: the file is empty"),
        ("a.txt", "0\n1\n", r"a\.txt: there are no interactions"),
        ("a.csv", "user_id,item_id\n", r"a\.csv: there are no interactions"),
        ("a.txt", "0 1\n1 2 x3 4\n", r"a\.txt, line 2: found 'x3'; expected `user item item …`"),
        ("a.txt", "0 1\n\n1 -2\n", r"line 3: found '-2'; .* whole numbers from 0 up; mend"),
        ("a.txt", "0 1.5\n", r"line 1: found '1\.5'"),
        ("a.txt", "0 nan\n", r"line 1: found 'nan'"),
        ("a.txt", "0 1\r1 2\r", r"line 1: found '1\\r1'"),
        ("a.txt", f"0 {10**19}\n", "line 1: found '10000000000000000000'"),
        ("a.txt", "user,item\n1,2\n", r"line 1: found 'user,item'; .*give the format"),
        ("u.data", "1\t2\t3\t4\n1\t2\t3\n", "line 2: found 3 numbers; expected `user item rating"),
        ("u.data", "1\t2\tgood\t4\n", "line 1: found 'good'"),
        ("a.csv", "user,item_id\n1,2\n", r"unknown column 'user_id' \(did you mean 'user'\?\)"),
        (
            "a.csv",
            "\nx,y\n1,2\n",
            r"a\.csv, line 2: unknown column 'user_id'; the columns are x, y; say which",
        ),
        ("a.csv", "user_id,item_id,user_id\n1,2,3\n", "two columns 'user_id'"),
        ("a.inter", "user_id:token\titem:token\n1\t2\n", "unknown column 'item_id'"),
        ("a.csv", "user_id,item_id\n1,2\n,3\n", r"line 3: column 'user_id' has ''; expected an id"),
        ("a.csv", "user_id,item_id\n1,2\n1,NaN\n", "line 3: column 'item_id' has 'NaN'"),
        ("a.csv", "user_id,item_id\n1,2\n\n1\n", r"line 4: found 1 fields; expected 2"),
        ("a.tsv", "user_id,item_id\n1,2\n", "found one field with ',' in it"),
        ("a.csv", "x\n1\n", "unknown column 'user_id'; the columns are x;"),
        ("a.csv", 'user_id,item_id\n1,"' + "x" * 140_000, "quotation mark"),
        ("a.csv", "user_id,item_id\n1,\0\n", "not a text file"),
        ("a.xlsx", "x", r"no format goes with 'a\.xlsx'; say which it is: lightgcn, movielens"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_bytes(text.encode())
    with pytest.raises(DataError, match=message):
        read(tmp_path / name, Columns())


@pytest.mark.parametrize(
    ("cell", "message"),
    [("nan", "has 'nan'; expected a number"), ("good", "has 'good'"), ("inf", "has 'inf'")],
)
def test_ratings_must_be_numbers(tmp_path: Path, cell: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"user_id,item_id,rating\n1,2,4\n1,3,{cell}\n")
    assert pairs_of(read(path, Columns())) == [("1", "2"), ("1", "3")]
    with pytest.raises(DataError, match=f"line 3: column 'rating' {message}"):
        read(path, Columns(minimum_rating=4))


@pytest.mark.parametrize("between", [";", "\t", "|", "::"])
@pytest.mark.parametrize("columns", [Columns(minimum_rating=4), Columns(positions=(1, 2))])
def test_other_delimiters_are_told_and_read_as_text(
    tmp_path: Path, between: str, columns: Columns
) -> None:
    header = [] if columns.positions else [["user_id", "item_id", "rating"]]
    lines = [*header, ["a", "x", "5"], ["b", "y", "4.5"]]
    path = tmp_path / "a.csv"
    path.write_text("".join(between.join(line) + "\n" for line in lines))
    with pytest.raises(DataError, match=r"a\.csv, line 1: found one field .*--format text"):
        read(path, columns)
    assert pairs_of(read(path, columns, "text")) == [("a", "x"), ("b", "y")]


def test_other_ways_to_fail(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with pytest.raises(DataError, match=r"a\.csv: cannot be read \(No such file"):
        read(path, Columns())
    path.write_bytes("user_id,item_id\n1,2\n1,é\n".encode("latin-1"))
    with pytest.raises(DataError, match="line 3: this is not UTF-8"):
        read(path, Columns())
    with pytest.raises(DataError, match="unknown format 'excel'"):
        read(path, Columns(), "excel")
    path.write_text("0 1\n")
    assert pairs_of(read(path, Columns(), "lightgcn")) == [("0", "1")]
    with pytest.raises(DataError, match="no ratings"):
        read(path, Columns(minimum_rating=4), "lightgcn")


TRIPLES = "1\t51\t13883\n1\t52\t11690\n2\t51\t228\n"
"""lastfm's user_artists without its header: user, artist, count."""


def test_counts_are_not_read_as_items(tmp_path: Path) -> None:
    path = tmp_path / "lastfm.txt"
    path.write_text(TRIPLES)
    with pytest.raises(
        DataError, match=r"every line has 3 numbers, and users such as 1 .*--columns"
    ):
        read(path, Columns())
    assert pairs_of(read(path, Columns(positions=(1, 2)))) == spelt([(1, 51), (1, 52), (2, 51)])
    least = Columns(positions=(1, 2, 3), minimum_rating=1000)
    assert pairs_of(read(path, least)) == spelt([(1, 51), (1, 52)])
    assert len(read(path, Columns(), "lightgcn").lines) == 6
    path.write_text("1 51 13883\n2 52 11690\n")
    with pytest.warns(DataWarning, match="every line has 3 numbers; it is read as a user and 2"):
        assert len(read(path, Columns()).lines) == 4


@settings(max_examples=25)
@given(pairs=NUMBER_PAIRS, stars=st.sampled_from(["4", "3.5"]))
@pytest.mark.parametrize("name", ["ratings.dat", "ratings.dat.gz"])
def test_ratings_of_larger_movielens_need_no_word(
    folder: Path, name: str, pairs: list[Pair], stars: str
) -> None:
    """MovieLens 1M and 10M: `1::1193::5::978300760`."""
    text = "".join(f"{user}::{item}::{stars}::{9 + n}\n" for n, (user, item) in enumerate(pairs))
    data = text.encode()
    (folder / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    rows = read(folder / name, Columns(minimum_rating=3.5))
    assert pairs_of(rows) == spelt(pairs)
    assert rows.times is not None and rows.times.tolist() == [9.0 + n for n in range(len(pairs))]
    with pytest.raises(DataError, match="no interactions rated 5 or more"):
        read(folder / name, Columns(minimum_rating=5))


@pytest.mark.parametrize(
    ("name", "first"), [("a.tsv", "1\t51\t13883"), ("a.csv", "1,51"), ("a.dat", "1::51::3.5")]
)
def test_numbers_in_place_of_a_header_are_told_from_names(
    tmp_path: Path, name: str, first: str
) -> None:
    (tmp_path / name).write_text(f"{first}\n{first}\n")
    with pytest.raises(DataError, match=r"line 1: found the numbers 1, 51.*--columns 1,2,3"):
        read(tmp_path / name, Columns())


@pytest.mark.parametrize("text", ["1 2\n1 3\n", "1 2 3\n", "1 2 3\n2 4\n", "1 2 3\n2 4 5\n7\n"])
def test_lists_of_items_are_still_read_without_a_word(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(tmp_path / "a.txt", Columns())


@settings(max_examples=25)
@given(pairs=NUMBER_PAIRS)
@pytest.mark.parametrize(
    ("name", "between"),
    [
        ("a.txt", " "), ("a.txt", "\t"), ("ratings.dat", "::"), ("a.dat", ";"), ("a.csv", ","),
        ("a.tsv", "\t"), ("a.data", "|"), ("a.csv.gz", ","), ("a.TXT.GZ", "\t"),
    ],
)  # fmt: skip
def test_files_without_a_header(folder: Path, name: str, between: str, pairs: list[Pair]) -> None:
    text = "".join(f"{item}{between}4{between}{user}{between}9\n" for user, item in pairs)
    data = gzip.compress(text.encode()) if name.lower().endswith("gz") else text.encode()
    (folder / name).write_bytes(data)
    rows = read(folder / name, Columns(positions=(3, 1, 2, 4), minimum_rating=4))
    assert pairs_of(rows) == spelt(pairs)
    assert rows.times is not None and rows.times.tolist() == [9.0] * len(pairs)
    with pytest.raises(DataError, match="no interactions rated 5 or more"):
        read(folder / name, Columns(positions=(3, 1, 2), minimum_rating=5))


@settings(max_examples=25)
@given(pairs=NUMBER_PAIRS)
@pytest.mark.parametrize(
    ("name", "write"),
    [("a.txt", lightgcn), ("u.data", movielens), ("a.inter", recbole)],
)
def test_compressed_files(
    folder: Path, name: str, write: Callable[[list[Pair]], str], pairs: list[Pair]
) -> None:
    path = folder / f"{name}.gz"
    path.write_bytes(gzip.compress(write(pairs).encode()))
    assert pairs_of(read(path, Columns())) == spelt(pairs)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DataError, match="the compressed file is damaged"):
        read(path, Columns())


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("a.csv", "1,2\n", Columns(positions=(1, 3)), "found 2 fields, expected a column 3"),
        ("a.csv", "1,2\n", Columns(positions=(1, 2), minimum_rating=1), "not which column has"),
        ("a.csv", "u,i\n1,2\n3,4\n", Columns(positions=(1, 2)), "'u', 'i' above .*a header"),
        ("a.csv", "userId,film\na,b\n", Columns(positions=(1, 2)), "'userId', 'film', .*a header"),
        ("a.csv", "x,who\na,b\n", Columns(user="who", positions=(1, 2)), "which looks like a hea"),
        ("a.inter", "1\t2\n", Columns(positions=(1, 2)), "the format recbole, whose columns are"),
        ("a.csv", "1,2,x\n", Columns(positions=(1, 2, 0, 3)), "column '3' has 'x'; expected a n"),
        ("a.csv", "1,2,x\n", Columns(positions=(1, 2, 3), minimum_rating=1), "'3' has 'x'; expec"),
        ("a.csv", "user_id,item_id\n1,2\n", Columns(time="t"), "unknown column 't'"),
        ("a.txt", "1 2\n", Columns(time="t"), "no times"),
    ],
)
def test_positions_that_do_not_fit(
    tmp_path: Path, name: str, text: str, columns: Columns, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read(tmp_path / name, columns)


@pytest.mark.parametrize(
    "columns",
    [Columns(user="item_id"), Columns(time="user_id"), Columns(rating="item_id", minimum_rating=1)],
)
def test_a_column_has_one_meaning(tmp_path: Path, columns: Columns) -> None:
    (tmp_path / "a.csv").write_text("user_id,item_id\n1,2\n")
    with pytest.raises(DataError, match=r"the column '(user|item)_id' was given twice"):
        read(tmp_path / "a.csv", columns)


@pytest.mark.parametrize("least", [math.nan, math.inf, -math.inf])
def test_a_minimum_rating_is_finite(least: float) -> None:
    with pytest.raises(DataError, match="expected a finite number"):
        Columns(minimum_rating=least)


@pytest.mark.parametrize("positions", [(1,), (0, 1), (1, 1), (1, 2, 2), (1, 2, 3, 4, 5), (-1, 2)])
def test_positions_that_make_no_sense(positions: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="are not usable"):
        Columns(positions=positions)


def test_times_are_numbers_or_dates(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("user_id,item_id,t\n1,2,1.5\n1,3,1970-01-02\n1,4,1970-01-01T01:00:00+01:00\n")
    times = read(path, Columns(time="t")).times
    assert times is not None and times.tolist() == [1.5, 86400.0, 0.0]
