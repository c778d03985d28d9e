"""Recommendations to many, as files: CSV, JSON lines, or Parquet (extra `lpgcn[parquet]`)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, BinaryIO, Final, Literal, Protocol

import msgspec
import numpy as np

from lpgcn.data import Ids
from lpgcn.errors import LpgcnError
from lpgcn.runtime.runs.recommendations import Recommendations

FileFormat = Literal["csv", "jsonl", "parquet"]
_COLUMNS: Final = ("user", "rank", "item", "score")


class RecommendationFileError(LpgcnError):
    """A file of recommendations that cannot be written."""


class Sink(Protocol):
    """Takes recommendations, some users at a time."""

    def __call__(self, found: Recommendations) -> None: ...


def check_format(kind: FileFormat) -> None:
    if kind == "parquet" and find_spec("pyarrow") is None:
        raise RecommendationFileError(
            "Parquet needs pyarrow, which is not installed; run `pip install 'lpgcn[parquet]'`, or "
            "choose --format csv or jsonl"
        )


@contextmanager
def sink(kind: FileFormat, file: BinaryIO, user_ids: Ids, item_ids: Ids) -> Iterator[Sink]:
    """Writes to an open file: a row for each user and item, or a line of JSON for each user."""
    check_format(kind)
    if kind == "parquet":
        with _parquet(file, user_ids, item_ids) as write:
            yield write
    elif kind == "csv":
        file.write(_lines([_COLUMNS]))
        yield lambda found: _write(file, _lines(_rows(found)))
    else:
        yield lambda found: _write(file, b"".join(_objects(found)))


def _write(file: BinaryIO, content: bytes) -> None:
    file.write(content)


def _rows(found: Recommendations) -> Iterator[tuple[Any, ...]]:
    columns = (found.users, found.ranks, found.items, found.scores)
    return zip(*(column.tolist() for column in columns), strict=True)


def _lines(rows: Any) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _objects(found: Recommendations) -> Iterator[bytes]:
    """{"user": …, "items": [{"item": …, "score": …}, …]}, a user a line."""
    begins = np.flatnonzero(found.ranks == 1).tolist()
    for first, last in zip(begins, [*begins[1:], len(found)], strict=True):
        pairs = zip(
            found.items[first:last].tolist(), found.scores[first:last].tolist(), strict=True
        )
        items = [{"item": item, "score": score} for item, score in pairs]
        user = found.users[first].item()
        yield msgspec.json.encode({"user": user, "items": items}) + b"\n"


@contextmanager
def _parquet(file: BinaryIO, user_ids: Ids, item_ids: Ids) -> Iterator[Sink]:
    import pyarrow
    import pyarrow.parquet

    def kind(ids: Ids) -> Any:
        return pyarrow.int64() if ids.are_numbers else pyarrow.string()

    kinds = (kind(user_ids), pyarrow.int32(), kind(item_ids), pyarrow.float64())
    schema = pyarrow.schema(list(zip(_COLUMNS, kinds, strict=True)))
    with pyarrow.parquet.ParquetWriter(file, schema) as writer:

        def write(found: Recommendations) -> None:
            columns = (found.users, found.ranks, found.items, found.scores)
            arrays = [
                pyarrow.array(column.tolist() if column.dtype.kind == "U" else column, type=one)
                for column, one in zip(columns, kinds, strict=True)
            ]
            writer.write_table(pyarrow.table(arrays, schema=schema))

        yield write
