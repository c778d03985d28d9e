"""The reader of Parquet files, with the extra `lpgcn[parquet]`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpgcn.data.errors import DataError
from lpgcn.data.rows import Codes, Column, Columns, Rows, bad_cell


def read_parquet(path: Path, columns: Columns) -> Rows:
    """Named columns of a Parquet file; a line is a row, counted from 1."""
    where = str(path)
    with _opened(path) as file:
        header: list[str] = file.schema_arrow.names
        places = columns.places(where, header)
        used = (places.user, places.item, places.rating, places.time)
        names = [header[place] for place in used if place is not None]
        table = file.read(names)
        read = {name: table[name].combine_chunks() for name in names}
    users, items = (_ids(where, name, read[name]) for name in (columns.user, columns.item))
    times = None if columns.time is None else _times(where, columns.time, read[columns.time])
    lines, maybe_times = np.arange(1, table.num_rows + 1), columns.maybe_times(header)
    rows = Rows(where, users, items, lines, times, maybe_times=maybe_times)
    if columns.minimum_rating is None:
        return rows
    ratings = _numbers(where, columns.rating, read[columns.rating])
    return rows.take(np.flatnonzero(ratings >= columns.minimum_rating))


def read_columns(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All columns as they are; what is missing is None, or no number."""
    with _opened(path) as file:
        table = file.read()
        return {name: table[name].to_numpy() for name in table.column_names}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(
            f"{path}: reading Parquet needs pyarrow; install it: pip install 'lpgcn[parquet]'"
        ) from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            yield file
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({error}); check the file") from error


def _times(where: str, name: str, column: Any) -> npt.NDArray[np.float64]:
    """Numbers as they are, dates and times in seconds."""
    import pyarrow
    import pyarrow.types

    if pyarrow.types.is_timestamp(column.type) or pyarrow.types.is_date(column.type):
        micros = column.cast(pyarrow.timestamp("us")).cast(pyarrow.int64())
        return _numbers(where, name, micros).astype(np.float64) / 1e6
    return _numbers(where, name, column).astype(np.float64)


def _check_present(where: str, name: str, column: Any) -> None:
    if column.null_count:
        line = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]) + 1
        raise bad_cell(where, line, name, None, "a value")


def _numbers(where: str, name: str, column: Any) -> npt.NDArray[Any]:
    """A numeric column, its values present and finite."""
    _check_present(where, name, column)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "iuf":
        raise DataError(f"{where}: column {name!r} has type {column.type}; expected numbers")
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        raise bad_cell(where, int(bad[0]) + 1, name, values[bad[0]].item(), "a number")
    return values


def _ids(where: str, name: str, column: Any) -> Column:
    """Ids as whole numbers, also where they are stored as 7.0, or as strings."""
    import pyarrow.types

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type):
        return Column.of_whole_numbers(where, name, _numbers(where, name, column))
    if not (pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)):
        raise DataError(
            f"{where}: column {name!r} has type {column.type}; expected whole numbers or strings"
        )
    _check_present(where, name, column)
    encoded = column.dictionary_encode()
    rows, names = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    lines, codes = np.unique(rows, return_index=True)[1] + 1, Codes(where, name)
    found = [codes.code(line, one) for line, one in zip(lines.tolist(), names, strict=True)]
    return codes.column(np.array(found, dtype=np.int64)[rows])
