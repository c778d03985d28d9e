"""Readers: one file of interactions to rows, in the formats that people of this field have.

| format     | file                | line                                                  |
|------------|---------------------|-------------------------------------------------------|
| `lightgcn` | `*.txt`             | `user item item …`, whole numbers                     |
| `movielens`| `*.data`            | `user item rating timestamp`, whole numbers           |
| `recbole`  | `*.inter`           | a header `user_id:token item_id:token …`, tabs        |
| `csv`      | `*.csv`             | a header, commas                                      |
| `tsv`      | `*.tsv`             | a header, tabs                                        |
| `parquet`  | `*.parquet`, `*.pq` | named columns (needs the extra `lpgcn[parquet]`)      |
"""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
from array import array
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from lpgcn.data.errors import DataError
from lpgcn.data.parquet import read_parquet
from lpgcn.data.rows import Column, Columns, Rows, bad_cell

Int64 = npt.NDArray[np.int64]

_NOT_A_NUMBER: Final = re.compile(rb"[^0-9 \t\n]|[0-9]{19}")

Record = tuple[int, list[str]]


def read(path: Path, columns: Columns, format: str | None = None) -> Rows:
    """The interactions of one file, its format told by the end of its name unless it is given."""
    if format is None:
        format = _FORMAT_OF_SUFFIX.get(path.suffix.lower())
    if format not in _READERS:
        found = f"unknown format {format!r}" if format else f"no format goes with {path.name!r}"
        raise DataError(
            f"{path}: {found}; say which it is: {', '.join(_READERS)} "
            f"(recognised by {', '.join(_FORMAT_OF_SUFFIX)})"
        )
    rows = _READERS[format](path, columns)
    if not rows.lines.size:
        least = columns.minimum_rating
        rated = "" if least is None else f" rated {least} or more"
        raise DataError(f"{path}: the file has no interactions{rated}; is it the right file?")
    return rows


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    if b"\0" in data:
        raise DataError(f"{path}: this is not a text file; give its format if its name misleads")
    if not data.strip():
        raise DataError(f"{path}: the file is empty; expected one line per user or interaction")
    return data


def _whole_numbers(path: Path, expected: str) -> tuple[Int64, Int64]:
    """Every number of a file of whole numbers, and the line that each is on, from 1."""
    data = _bytes(path).replace(b"\r\n", b"\n")
    if bad := _NOT_A_NUMBER.search(data):
        line = data.count(b"\n", 0, bad.start()) + 1
        start = max(data.rfind(blank, 0, bad.start()) for blank in (b" ", b"\t", b"\n")) + 1
        word = re.split(rb"[ \t\n]", data[start:], maxsplit=1)[0].decode(errors="replace")
        raise DataError(
            f"{path}, line {line}: found {word[:40]!r}; expected {expected} in whole numbers from "
            "0 up; mend the line, or give the format if the file has another one"
        )
    text = np.frombuffer(data, dtype=np.uint8)
    is_digit = text >= ord("0")
    starts = np.flatnonzero(is_digit & ~np.concatenate(([False], is_digit[:-1])))
    newlines = np.flatnonzero(text == ord("\n"))
    return np.fromstring(data, dtype=np.int64, sep=" "), np.searchsorted(newlines, starts) + 1


def _read_lightgcn(path: Path, columns: Columns) -> Rows:
    """`user item item …`: the text files of LightGCN's public code. A user may have many lines."""
    if columns.minimum_rating is not None:
        raise DataError(f"{path}: this format has no ratings; leave the minimum rating out")
    number, line = _whole_numbers(path, "`user item item …`")
    is_user = np.concatenate(([True], line[1:] != line[:-1]))
    user = number[is_user][np.cumsum(is_user) - 1]
    is_alone = is_user & np.concatenate((is_user[1:], [True]))
    alone = dict(zip(line[is_alone].tolist(), number[is_alone].tolist(), strict=True))
    return Rows(
        path,
        Column.of_numbers(user[~is_user]),
        Column.of_numbers(number[~is_user]),
        line[~is_user],
        alone,
    )


def _read_movielens(path: Path, columns: Columns) -> Rows:
    """`user item rating timestamp`: u.data of MovieLens 100K."""
    expected = "`user item rating timestamp`"
    number, line = _whole_numbers(path, expected)
    lines, counts = np.unique(line, return_counts=True)
    if (wrong := np.flatnonzero(counts != 4)).size:
        raise DataError(
            f"{path}, line {lines[wrong[0]]}: found {counts[wrong[0]]} numbers; expected "
            f"{expected}; mend the line, or give the format if the file has another one"
        )
    user, item, rating, _ = number.reshape(-1, 4).T
    kept = np.full(user.size, True)
    if columns.minimum_rating is not None:
        kept = rating >= columns.minimum_rating
    return Rows(path, Column.of_numbers(user[kept]), Column.of_numbers(item[kept]), lines[kept])


def _read_recbole(path: Path, columns: Columns) -> Rows:
    """Atomic files of RecBole: tabs, no quotes, and a type after each name in the header."""
    records = _records(path, delimiter="\t", quoting=csv.QUOTE_NONE)
    line, header = next(records)
    untyped = [name.partition(":")[0] for name in header]
    return _read_records(path, columns, chain([(line, untyped)], records))


def _read_csv(path: Path, columns: Columns) -> Rows:
    return _read_records(path, columns, _records(path, delimiter=","))


def _read_tsv(path: Path, columns: Columns) -> Rows:
    return _read_records(path, columns, _records(path, delimiter="\t"))


def _read_records(path: Path, columns: Columns, records: Iterator[Record]) -> Rows:
    """The interactions of records, the first of which is the header."""
    line, header = next(records)
    user_at, item_at, *rating_at = columns.places(f"{path}, line {line}", header)
    user_codes: dict[str, int] = {}
    item_codes: dict[str, int] = {}
    users, items, lines = array("q"), array("q"), array("q")
    for line, record in records:
        user, item = record[user_at], record[item_at]
        for name, cell in ((columns.user, user), (columns.item, item)):
            if not cell or cell.lower() == "nan":
                raise bad_cell(path, line, name, cell, "an id")
        if columns.minimum_rating is not None:
            rating = _rating(path, line, columns.rating, record[rating_at[0]])
            if rating < columns.minimum_rating:
                continue
        users.append(user_codes.setdefault(user, len(user_codes)))
        items.append(item_codes.setdefault(item, len(item_codes)))
        lines.append(line)
    return Rows(
        path,
        Column.of_names(users, list(user_codes)),
        Column.of_names(items, list(item_codes)),
        np.array(lines, dtype=np.int64),
    )


def _records(
    path: Path, *, delimiter: str, quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
) -> Iterator[Record]:
    """Each line's number and fields without blanks around them; all have as many as the first."""
    text = io.StringIO(_text(path), newline="")
    reader = csv.reader(text, delimiter=delimiter, quoting=quoting)
    width = None
    try:
        for record in reader:
            if not record:
                continue
            width = width or len(record)
            if len(record) != width:
                raise DataError(
                    f"{path}, line {reader.line_num}: found {len(record)} fields; expected {width} "
                    f"as in the header, with {delimiter!r} between them; mend the line"
                )
            yield reader.line_num, [cell.strip() for cell in record]
    except csv.Error as error:
        raise DataError(
            f"{path}, line {reader.line_num}: {error}; is a quotation mark missing?"
        ) from error


def _text(path: Path) -> str:
    data = _bytes(path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: this is not UTF-8 text; convert the file to UTF-8"
        ) from error


def _rating(path: Path, line: int, column: str, cell: str) -> float:
    try:
        rating = float(cell)
    except ValueError:
        rating = math.nan
    if not math.isfinite(rating):
        raise bad_cell(path, line, column, cell, "a number")
    return rating


_READERS: Final[dict[str, Callable[[Path, Columns], Rows]]] = {
    "lightgcn": _read_lightgcn,
    "movielens": _read_movielens,
    "recbole": _read_recbole,
    "csv": _read_csv,
    "tsv": _read_tsv,
    "parquet": read_parquet,
}
_FORMAT_OF_SUFFIX: Final = {
    ".txt": "lightgcn",
    ".data": "movielens",
    ".inter": "recbole",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
}
