"""Lines of fields, with a header or without."""

from __future__ import annotations

import csv
import io
import math
from array import array
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Final, Literal

import numpy as np

from lpgcn.data.errors import DataError
from lpgcn.data.ids import Ids
from lpgcn.data.rows import Codes, Columns, Places, Rows, bad_cell
from lpgcn.data.times import A_TIME, seconds

Record = tuple[int, list[str]]
_DELIMITERS: Final = ("::", "\t", ",", ";", "|")
"""Those that a `text` file may have, and blanks if it has none of them."""
_NAMES: Final = ("user_id", "item_id", "userid", "itemid")
"""What nobody has as an id."""
_A_HEADER: Final = (
    "which looks like a header; leave the positions of the columns out and name the columns, or "
    "remove the line"
)


def read_records(
    where: str,
    text: str,
    columns: Columns,
    delimiter: str | None,
    *,
    is_quoted: bool = True,
    is_typed: bool = False,
) -> Rows:
    """The interactions of lines of fields; the first is the header, unless positions are given.

    Without a delimiter, the first line tells it. A typed header has a colon and a type after each
    name.
    """
    if delimiter is None:
        first = text.lstrip().partition("\n")[0]
        delimiter = next((one for one in _DELIMITERS if one in first), " ")
    records = _records(where, text, delimiter, is_quoted=is_quoted)
    line, first_record = next(records)
    place = f"{where}, line {line}"
    _check_delimiter(place, first_record, delimiter)
    if columns.positions:
        _check_no_names(place, first_record, columns)
        places = columns.positions_in(place, len(first_record))
        rows = _read(where, columns, places, chain([(line, first_record)], records))
        _check_no_header(rows, line)
        return rows
    header = [name.partition(":")[0] for name in first_record] if is_typed else first_record
    rows = _read(where, columns, columns.places(place, header), records)
    return replace(rows, maybe_times=columns.maybe_times(header))


def _read(where: str, columns: Columns, places: Places, records: Iterator[Record]) -> Rows:
    users, items, lines, times = array("q"), array("q"), array("q"), array("d")
    user_name, item_name, rating_name, time_name = columns.names()
    user_codes, item_codes = Codes(where, user_name), Codes(where, item_name)
    for line, record in records:
        user, item = record[places.user], record[places.item]
        user_codes.check(line, user)
        item_codes.check(line, item)
        if places.rating is not None and columns.minimum_rating is not None:
            cell = record[places.rating]
            rating = _number(cell)
            if rating is None:
                raise bad_cell(where, line, rating_name, cell, "a number")
            if rating < columns.minimum_rating:
                continue
        if places.time is not None:
            time = seconds(record[places.time])
            if time is None:
                raise bad_cell(where, line, time_name, record[places.time], A_TIME)
            times.append(time)
        users.append(user_codes.code(line, user))
        items.append(item_codes.code(line, item))
        lines.append(line)
    return Rows(
        where,
        user_codes.column(users),
        item_codes.column(items),
        np.array(lines, dtype=np.int64),
        np.array(times, dtype=np.float64) if places.time is not None else None,
    )


def _check_delimiter(place: str, first_record: list[str], delimiter: str) -> None:
    """A user and an item are two fields: a line of one has something else between them."""
    other = next((one for one in _DELIMITERS if one in first_record[0]), None)
    if len(first_record) == 1 and other is not None:
        raise DataError(
            f"{place}: found one field with {other!r} in it; expected fields with {delimiter!r} "
            f"between them; if {other!r} is between them, say --format text (in Python "
            "format='text')"
        )


def _check_no_names(place: str, first_record: list[str], columns: Columns) -> None:
    """Names of columns where positions say that there is no header."""
    names = {columns.user.lower(), columns.item.lower(), *_NAMES}
    if any(cell.lower() in names for cell in first_record):
        found = ", ".join(map(repr, first_record))
        raise DataError(f"{place}: found {found}, {_A_HEADER}")


def _check_no_header(rows: Rows, first_line: int) -> None:
    """A header that was read as an interaction would be a user and an item that nobody knows."""
    if rows.lines.size < 2 or rows.lines[0] != first_line:
        return
    columns = (rows.users, rows.items)
    if all(
        not column.ids.are_numbers
        and column.codes[0] not in column.codes[1:]
        and Ids.of(
            name for code, name in enumerate(column.ids) if code != column.codes[0]
        ).are_numbers
        for column in columns
    ):
        found = ", ".join(repr(column.ids[int(column.codes[0])]) for column in columns)
        raise DataError(
            f"{rows.where}, line {first_line}: found {found} above numbers, {_A_HEADER}"
        )


def _records(where: str, text: str, delimiter: str, *, is_quoted: bool) -> Iterator[Record]:
    """Each line's number and fields without blanks around them; all have as many as the first."""
    width = None
    for line, record in _lines(where, text, delimiter, is_quoted=is_quoted):
        if not record:
            continue
        width = width or len(record)
        if len(record) != width:
            raise DataError(
                f"{where}, line {line}: found {len(record)} fields; expected {width} "
                f"as in the first line, with {delimiter!r} between them; mend the line"
            )
        yield line, [cell.strip() for cell in record]


def _lines(where: str, text: str, delimiter: str, *, is_quoted: bool) -> Iterator[Record]:
    if delimiter in ("::", " "):
        # The csv module knows delimiters of one character only, and not several of them as one.
        between = None if delimiter == " " else delimiter
        for line, fields in enumerate(text.split("\n"), 1):
            yield line, fields.split(between) if fields.strip() else []
        return
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if is_quoted else csv.QUOTE_NONE
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quoting=quoting)
    try:
        for record in reader:
            yield reader.line_num, record
    except csv.Error as error:
        raise DataError(
            f"{where}, line {reader.line_num}: {error}; is a quotation mark missing?"
        ) from error


def _number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
