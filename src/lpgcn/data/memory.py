"""Interactions in memory: data frames, sparse matrices, arrays.

Neither pandas, polars nor SciPy is imported: whatever has named columns is a data frame, and
whatever has `tocoo` is a sparse matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from numbers import Integral, Real
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Float64
from lpgcn.data.assembly import assembled
from lpgcn.data.errors import DataError
from lpgcn.data.rows import Codes, Column, Columns, Places, Rows, bad_cell, check_not_empty
from lpgcn.data.split import Split
from lpgcn.data.splitting import Splitting
from lpgcn.data.times import A_TIME, seconds

Values = npt.NDArray[Any]
_AN_ID: Final = "a whole number (as a float, below 2^53) or a string"


def make_split(
    data: Any,
    *,
    name: str = "data",
    columns: Columns | None = None,
    splitting: Splitting | None = None,
) -> Split:
    """A split of interactions in memory, with the fingerprint of a file with the same ones.

    `data` is a pandas or polars data frame with named columns, or a list of dicts with such keys; a
    SciPy sparse matrix of users and items, whose numbers other than zero are interactions (and
    ratings), with row and column numbers as ids; a list of (user, item[, rating[, time]]), an array
    with as many columns, or a tuple of as many arrays; or a `Split`, which is given back. Ids are
    whole numbers or strings.
    """
    if isinstance(data, Split):
        if columns is not None or splitting is not None:
            raise DataError("found columns or a splitting for a split, which has its parts already")
        return data
    # A frame has its columns as attributes, and may well have one of this name.
    if hasattr(type(data), "collect"):
        raise DataError(
            f"found a {type(data).__name__}, which has not been computed; give data.collect()"
        )
    columns = columns or Columns()
    rows = _rows(data, columns)
    check_not_empty(rows, columns)
    return assembled(name, {"train": rows}, splitting or Splitting())


def _rows(data: Any, columns: Columns) -> Rows:
    names: Sequence[str]
    maybe_times: tuple[str, ...] = ()
    if hasattr(data, "tocoo"):
        where, names, values = "the matrix", ("row", "column", "value"), _of_matrix(data)
        places = Places(0, 1, None if columns.minimum_rating is None else 2, None)
    elif labels := _labels(data):
        where = "the data frame" if hasattr(data, "columns") else "the records"
        names = tuple(map(str, labels))
        at = columns.positions_in(where, len(names)) if columns.positions else None
        places, maybe_times = at or columns.places(where, names), columns.maybe_times(names)
        used = {place: _named(data, labels[place]) for place in _used(places)}
        values = [used.get(place, np.empty(0)) for place in range(len(labels))]
    else:
        where, values = "the arrays", _of_arrays(data)
        names = ("user", "item", "rating", "time")[: len(values)]
        standard = tuple(range(1, len(values) + 1))
        positions = Columns(
            positions=columns.positions or standard, minimum_rating=columns.minimum_rating
        )
        places = positions.positions_in(where, len(values))
    users, items = (
        column_of_ids(where, names[at], values[at]) for at in (places.user, places.item)
    )
    times = None if places.time is None else _times(where, names[places.time], values[places.time])
    lines = np.arange(1, len(users.codes) + 1)
    rows = Rows(where, users, items, lines, times, maybe_times=maybe_times)
    if places.rating is None:
        return rows
    ratings = column_of_numbers(where, names[places.rating], values[places.rating])
    return rows.take(np.flatnonzero(ratings >= columns.minimum_rating))


def _labels(data: Any) -> list[Any]:
    """Names of the columns of a data frame, or all keys of a list of records; else none."""
    if hasattr(data, "columns"):
        return list(data.columns)
    if isinstance(data, Sequence) and all(isinstance(record, Mapping) for record in data):
        return list(dict.fromkeys(key for record in data for key in record))
    return []


def _named(data: Any, label: Any) -> Values:
    if hasattr(data, "columns"):
        return np.asarray(data[label].to_numpy())
    return _array([record.get(label) for record in data])


def _used(places: Places) -> list[int]:
    all_of_them = (places.user, places.item, places.rating, places.time)
    return [place for place in all_of_them if place is not None]


def _of_matrix(matrix: Any) -> list[Values]:
    entries = matrix.tocoo()
    present = np.asarray(entries.data) != 0
    return [np.asarray(part)[present] for part in (entries.row, entries.col, entries.data)]


def _of_arrays(data: Any) -> list[Values]:
    """Two to four columns of equal length."""
    if isinstance(data, np.ndarray) and data.ndim == 2:
        values = list(data.T)
    elif isinstance(data, tuple):
        values = [np.asarray(column) for column in data]
    elif isinstance(data, Sequence) and not isinstance(data, str):
        values = _of_rows(data)
    else:
        values = []
    if not (2 <= len(values) <= 4 and all(column.ndim == 1 for column in values)):
        raise DataError(
            f"found {_described(data)} as data; expected a pandas or polars data frame, a SciPy "
            "sparse matrix, a list of (user, item[, rating[, time]]) or of dicts, an array with as "
            "many columns, a tuple of as many arrays, or a Split"
        )
    if len({len(column) for column in values}) > 1:
        lengths = ", ".join(str(len(column)) for column in values)
        raise DataError(f"found arrays of {lengths} entries; expected as many in each")
    return values


def _of_rows(rows: Sequence[Any]) -> list[Values]:
    """Columns of rows of as many fields each; none of what are no rows."""
    if any(isinstance(row, str | bytes) or not hasattr(row, "__len__") for row in rows):
        return []
    for place, row in enumerate(rows, 1):
        if isinstance(row, Set | Mapping):
            raise DataError(
                f"found a {type(row).__name__} as row {place}, which does not say what comes "
                "first; expected (user, item[, rating[, time]]) in every row, or dicts in all"
            )
    lengths = [len(row) for row in rows]
    if len({*lengths}) > 1:
        odd = next(place for place, length in enumerate(lengths) if length != lengths[0])
        raise DataError(
            f"found {lengths[0]} and, in row {odd + 1}, {lengths[odd]} fields; expected as many in "
            "each"
        )
    return [_array(column) for column in zip(*rows, strict=True)]


def _described(data: Any) -> str:
    """What somebody would recognise who gave it."""
    kind = type(data).__name__
    if isinstance(data, str) or not isinstance(data, Sequence):
        return kind
    if not data:
        return f"an empty {kind}"
    if (
        isinstance(data, tuple)
        or isinstance(data[0], str | bytes)
        or not hasattr(data[0], "__len__")
    ):
        return kind
    return f"rows of {len(data[0])} field{'' if len(data[0]) == 1 else 's'}"


def _array(values: Sequence[Any]) -> Values:
    """One value for each entry, whatever these are."""
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


def column_of_ids(where: str, name: str, values: Values) -> Column:
    """Whole numbers, also where they are stored as 7.0, or strings."""
    if values.dtype.kind in "iuf":
        return Column.of_whole_numbers(where, name, column_of_numbers(where, name, values))
    codes = Codes(where, name)
    found = np.empty(len(values), dtype=np.int64)
    for row, value in enumerate(values.tolist()):
        text = _spelled(value)
        if text is None:
            raise bad_cell(where, row + 1, name, value, _AN_ID)
        found[row] = codes.code(row + 1, text)
    return codes.column(found)


def _spelled(value: object) -> str | None:
    """As a file would spell an id."""
    if isinstance(value, str):
        return value
    if isinstance(value, Integral) and not isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return None


def column_of_numbers(where: str, name: str, values: Values) -> Values:
    """Present and finite."""
    if values.dtype.kind == "O" and all(isinstance(one, Real) for one in values.tolist()):
        values = values.astype(np.float64)
    if values.dtype.kind not in "iuf":
        raise DataError(f"{where}: column {name!r} has type {values.dtype}; expected numbers")
    if (bad := np.flatnonzero(~np.isfinite(values))).size:
        raise bad_cell(where, int(bad[0]) + 1, name, values[bad[0]].item(), "a number")
    return values


def _times(where: str, name: str, values: Values) -> Float64:
    """Numbers as they are, dates in seconds."""
    if values.dtype.kind == "M":
        if (bad := np.flatnonzero(np.isnat(values))).size:
            raise bad_cell(where, int(bad[0]) + 1, name, None, "a date")
        return values.astype("datetime64[us]").astype(np.int64) / 1e6
    if values.dtype.kind not in "OU":
        return column_of_numbers(where, name, values).astype(np.float64)
    times = np.empty(len(values))
    for row, value in enumerate(values.tolist()):
        found = seconds(value)
        if found is None:
            raise bad_cell(where, row + 1, name, value, A_TIME)
        times[row] = found
    return times
