"""Readers: one file of interactions to rows, in the formats that people of this field have.

| format     | file                | line                                                  |
|------------|---------------------|-------------------------------------------------------|
| `lightgcn` | `*.txt`             | `user item item …`, whole numbers                     |
| `movielens`| `*.data`            | `user item rating timestamp`, or with `::` between    |
| `recbole`  | `*.inter`           | a header `user_id:token item_id:token …`, tabs        |
| `csv`      | `*.csv`             | a header, commas                                      |
| `tsv`      | `*.tsv`             | a header, tabs                                        |
| `text`     | `*.dat`             | a header; tabs, `::`, commas, semicolons or blanks;   |
|            |                     | `1::2::3::4` without one is `movielens`               |
| `parquet`  | `*.parquet`, `*.pq` | named columns (needs the extra `lpgcn[parquet]`)      |

With `Columns.positions` a csv, tsv or text file has no header, and `*.txt` and `*.data` are `text`.
Every format but Parquet may be compressed: `ratings.csv.gz`.
"""

from __future__ import annotations

import codecs
import gzip
import re
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.data.errors import DataError, DataWarning
from lpgcn.data.parquet import read_parquet
from lpgcn.data.records import read_records
from lpgcn.data.rows import Column, Columns, Rows, check_not_empty

_NOT_A_NUMBER: Final = re.compile(rb"[^0-9 \t\n]|[0-9]{19}")
_RATINGS: Final = re.compile(rb"\d+::\d+::\d+(\.\d+)?::\d+\s*(\n|$)")
"""The first line of `ratings.dat` in MovieLens 1M and 10M."""
_A_LINE: Final = 1 << 10
_GZIP: Final = b"\x1f\x8b"
_FEW: Final = range(3, 6)
"""Fields of a line that may as well be user, item, rating, time: see `_check_adjacency`."""


def read(path: Path, columns: Columns, format: str | None = None) -> Rows:
    """The interactions of one file, its format told by the end of its name unless it is given."""
    known = format or _known_by_name(path, columns)
    if known not in _READERS:
        found = f"unknown format {known!r}" if known else f"no format goes with {path.name!r}"
        raise DataError(
            f"{path}: {found}; say which it is: {', '.join(_READERS)} "
            f"(recognised by {', '.join(_FORMAT_OF_SUFFIX)})"
        )
    if columns.positions and known not in _HEADERLESS:
        raise DataError(
            f"{path}: positions of columns were given for the format {known}, whose columns are "
            f"known; leave them out, or give the format {' or '.join(_HEADERLESS)}"
        )
    rows = _READERS[known](path, columns)
    if known == "lightgcn" and format is None:
        _check_adjacency(rows)
    check_not_empty(rows, columns)
    return rows


def _known_by_name(path: Path, columns: Columns) -> str | None:
    """What the end of a name tells, and for ml-1m's `ratings.dat` the first line."""
    suffix = Path(uncompressed_name(path)).suffix.lower()
    if columns.positions and suffix in (".txt", ".data"):
        return "text"
    if suffix == ".dat" and not columns.positions and _RATINGS.match(_beginning(path)):
        return "movielens"
    return _FORMAT_OF_SUFFIX.get(suffix)


def uncompressed_name(path: Path) -> str:
    """`ratings.csv` of `ratings.csv.gz`."""
    return path.stem if path.suffix.lower() == ".gz" else path.name


def dataset_name(path: Path) -> str:
    """`ratings` of `ratings.csv.gz`: what a file of one's own is called if nobody says."""
    return Path(uncompressed_name(path)).stem


def _beginning(path: Path) -> bytes:
    """Enough for the first line; what cannot be read is the reader's to say."""
    try:
        with path.open("rb") as file:
            compressed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            content = gzip.GzipFile(fileobj=file) if compressed else file
            return content.read(_A_LINE).removeprefix(codecs.BOM_UTF8)
    except (OSError, EOFError, zlib.error):
        return b""


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        data = (gzip.decompress(data) if data.startswith(_GZIP) else data).removeprefix(
            codecs.BOM_UTF8
        )
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path}: the compressed file is damaged ({error}); fetch it anew") from (
            error
        )
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    if b"\0" in data:
        raise DataError(f"{path}: this is not a text file; give its format if its name misleads")
    if not data.strip():
        raise DataError(f"{path}: the file is empty; expected one line per user or interaction")
    return data


def _text(path: Path) -> str:
    data = _bytes(path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: this is not UTF-8 text; convert the file to UTF-8"
        ) from error


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
    if columns.time is not None:
        raise DataError(f"{path}: this format has no times; leave the time column out")
    number, line = _whole_numbers(path, "`user item item …`")
    is_user = np.concatenate(([True], line[1:] != line[:-1]))
    user = number[is_user][np.cumsum(is_user) - 1]
    is_alone = is_user & np.concatenate((is_user[1:], [True]))
    alone = dict(zip(line[is_alone].tolist(), number[is_alone].tolist(), strict=True))
    return Rows(
        str(path),
        Column.of_numbers(user[~is_user]),
        Column.of_numbers(number[~is_user]),
        line[~is_user],
        users_alone=alone,
    )


def _check_adjacency(rows: Rows) -> None:
    """Lines of `user item count` must not be read as `user item item`.

    Where every line has the same few fields, nothing but the users tells them apart: in lists of
    items a user has one line, in lines of pairs about as many as items.
    """
    lines, first, n_items = np.unique(rows.lines, return_index=True, return_counts=True)
    fields = int(n_items[0]) + 1 if lines.size else 0
    if rows.users_alone or lines.size < 2 or fields not in _FEW or (n_items + 1 != fields).any():
        return
    found = f"{rows.where}: every line has {fields} numbers"
    advice = (
        "if they are user, item and a rating or count, say so with --columns 1,2,3 (in Python "
        "Columns(positions=(1, 2, 3))); if they are a user and its items, with --format lightgcn"
    )
    if len(rows.users.ids) < lines.size:
        again = rows.users.codes[first]
        user = rows.users.ids[int(np.flatnonzero(np.bincount(again) > 1)[0])]
        raise DataError(f"{found}, and users such as {user} have several lines; {advice}")
    warnings.warn(
        f"{found}; it is read as a user and {fields - 1} items a line: {advice}",
        DataWarning,
        stacklevel=4,
    )


def _read_movielens(path: Path, columns: Columns) -> Rows:
    """`user item rating timestamp`: u.data of MovieLens 100K, ratings.dat of 1M and 10M."""
    expected = "`user item rating timestamp`"
    if _RATINGS.match(_beginning(path)):
        known = Columns(minimum_rating=columns.minimum_rating, positions=(1, 2, 3, 4))
        return read_records(str(path), _text(path), known, "::")
    number, line = _whole_numbers(path, expected)
    lines, counts = np.unique(line, return_counts=True)
    if (wrong := np.flatnonzero(counts != 4)).size:
        raise DataError(
            f"{path}, line {lines[wrong[0]]}: found {counts[wrong[0]]} numbers; expected "
            f"{expected}; mend the line, or give the format if the file has another one"
        )
    user, item, rating, time = number.reshape(-1, 4).T
    users, items = Column.of_numbers(user), Column.of_numbers(item)
    rows = Rows(str(path), users, items, lines, time.astype(np.float64))
    if columns.minimum_rating is None:
        return rows
    return rows.take(np.flatnonzero(rating >= columns.minimum_rating))


def _reader(delimiter: str | None, *, is_quoted: bool = True, is_typed: bool = False) -> Reader:
    """A reader of lines of fields; see `read_records`."""

    def read(path: Path, columns: Columns) -> Rows:
        return read_records(
            str(path), _text(path), columns, delimiter, is_quoted=is_quoted, is_typed=is_typed
        )

    return read


Reader = Callable[[Path, Columns], Rows]
_READERS: Final[dict[str, Reader]] = {
    "lightgcn": _read_lightgcn,
    "movielens": _read_movielens,
    # Atomic files of RecBole have no quotes, and a type after each name in the header.
    "recbole": _reader("\t", is_quoted=False, is_typed=True),
    "csv": _reader(","),
    "tsv": _reader("\t"),
    "text": _reader(None),
    "parquet": read_parquet,
}
_HEADERLESS: Final = ("csv", "tsv", "text")
_FORMAT_OF_SUFFIX: Final = {
    ".txt": "lightgcn",
    ".data": "movielens",
    ".inter": "recbole",
    ".csv": "csv",
    ".tsv": "tsv",
    ".dat": "text",
    ".parquet": "parquet",
    ".pq": "parquet",
}
