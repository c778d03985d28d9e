"""The reader of Parquet files, with the extra `lpgcn[parquet]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lpgcn.data.errors import DataError
from lpgcn.data.rows import Column, Columns, Rows, bad_cell


def read_parquet(path: Path, columns: Columns) -> Rows:
    """Named columns of a Parquet file; a line is a row, counted from 1."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise DataError(
            f"{path}: reading Parquet needs pyarrow; install it: pip install 'lpgcn[parquet]'"
        ) from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            header: list[str] = file.schema_arrow.names
            names = [header[place] for place in columns.places(str(path), header)]
            table = file.read(names)
            user, item, *rest = (table[name].combine_chunks() for name in names)
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path}: cannot be read as Parquet ({error}); check the file") from error
    lines = np.arange(1, len(user) + 1)
    users, items = _ids(path, columns.user, user), _ids(path, columns.item, item)
    if not rest:
        return Rows(path, users, items, lines)
    kept = np.flatnonzero(_numbers(path, columns.rating, rest[0]) >= columns.minimum_rating)
    return Rows(path, users.take(kept), items.take(kept), lines[kept])


def _check_present(path: Path, name: str, column: Any) -> None:
    if column.null_count:
        line = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]) + 1
        raise bad_cell(path, line, name, None, "a value")


def _numbers(path: Path, name: str, column: Any) -> npt.NDArray[Any]:
    """A numeric column, its values present and finite."""
    _check_present(path, name, column)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind not in "iuf":
        raise DataError(f"{path}: column {name!r} has type {column.type}; expected numbers")
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        raise bad_cell(path, int(bad[0]) + 1, name, values[bad[0]].item(), "a number")
    return values


def _ids(path: Path, name: str, column: Any) -> Column:
    """Ids as whole numbers, also where they are stored as 7.0, or as strings."""
    import pyarrow.types

    if pyarrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pyarrow.types.is_integer(column.type) or pyarrow.types.is_floating(column.type):
        values = _numbers(path, name, column)
        with np.errstate(invalid="ignore"):
            whole = values.astype(np.int64)
        if (bad := np.flatnonzero(whole != values)).size:
            raise bad_cell(path, int(bad[0]) + 1, name, values[bad[0]].item(), "a whole number")
        return Column.of_numbers(whole)
    if not (pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type)):
        raise DataError(
            f"{path}: column {name!r} has type {column.type}; expected whole numbers or strings"
        )
    _check_present(path, name, column)
    encoded = column.dictionary_encode()
    codes, names = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
    for code, one in enumerate(names):
        if not one.strip() or "\0" in one:
            raise bad_cell(path, int(np.argmax(codes == code)) + 1, name, one, "an id")
    return Column.of_names(codes, names)
