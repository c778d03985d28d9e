"""What a file or a table of interactions says, before anything is merged or indexed."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Float64, Int64
from lpgcn.data.errors import DataError
from lpgcn.data.ids import Ids

_IS_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?")
LONGEST_ID: Final = 512
"""In characters: all ids take as much memory as the longest."""
_MAY_BE_TIME: Final = re.compile(r"time|date|^ts$|^when$", re.IGNORECASE)


@dataclass(frozen=True)
class Places:
    """Where a line has what, from 0; None for what is not read."""

    user: int
    item: int
    rating: int | None
    time: int | None


@dataclass(frozen=True)
class Columns:
    """The named columns to read, and the least rating that counts as an interaction, if any."""

    user: str = "user_id"
    item: str = "item_id"
    rating: str = "rating"
    minimum_rating: float | None = None
    time: str | None = None
    positions: tuple[int, ...] = ()
    """Without a header, or in a data frame: which fields, from 1, are user, item, rating and time.
    0 or none for a rating or a time that there is not. Names have no meaning then."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.minimum_rating or 0):
            raise DataError(
                f"the minimum rating is {self.minimum_rating}; expected a finite number, such as 4"
            )
        given = [position for position in self.positions if position]
        if self.positions and not (
            2 <= len(self.positions) <= 4
            and min(self.positions[:2]) > 0
            and min(self.positions) >= 0
            and len({*given}) == len(given)
        ):
            raise DataError(
                f"the columns {','.join(map(str, self.positions))} are not usable: give the "
                "positions, from 1, of user, item and, if there are any, rating and time, such as "
                "1,2 or 1,2,3 or 1,2,0,4"
            )

    def places(self, where: str, header: Sequence[str]) -> Places:
        """Where a header has the user, the item and, if they are used, the rating and the time."""
        rated = None if self.minimum_rating is None else _place(where, header, self.rating)
        timed = None if self.time is None else _place(where, header, self.time)
        user, item = (_place(where, header, name) for name in (self.user, self.item))
        used = [place for place in (user, item, rated, timed) if place is not None]
        if again := [header[place] for place in used if used.count(place) > 1]:
            raise DataError(
                f"{where}: the column {again[0]!r} was given twice; expected one each for user, "
                f"item and, if they are used, rating and time; the columns are {', '.join(header)}"
            )
        return Places(user, item, rated, timed)

    def maybe_times(self, header: Sequence[str]) -> tuple[str, ...]:
        """Columns that nobody named, and whose names are those of times."""
        named = {self.user, self.item, self.rating}
        return tuple(name for name in header if _MAY_BE_TIME.search(name) and name not in named)

    def positions_in(self, where: str, width: int) -> Places:
        """The places that the positions say, in lines of so many fields."""
        if max(self.positions) > width:
            raise DataError(
                f"{where}: found {width} fields, expected a column {max(self.positions)}; check "
                "the positions of the columns"
            )
        user, item, rating, time = (*self.positions, 0, 0)[:4]
        if self.minimum_rating is not None and not rating:
            raise DataError(
                f"{where}: a minimum rating was given, but not which column has the rating; add "
                "its position to those of user and item, such as 1,2,3"
            )
        rated = rating - 1 if self.minimum_rating is not None else None
        return Places(user - 1, item - 1, rated, time - 1 if time else None)

    def names(self) -> tuple[str, str, str, str]:
        """What user, item, rating and time are called in messages."""
        if self.positions:
            user, item, rating, time = map(str, (*self.positions, 0, 0)[:4])
            return user, item, rating, time
        return self.user, self.item, self.rating, self.time or ""


def _place(where: str, header: Sequence[str], name: str) -> int:
    if header.count(name) > 1:
        raise DataError(f"{where}: there are two columns {name!r}; rename one of them")
    if name not in header:
        near = difflib.get_close_matches(name, header, n=1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        if len(header) > 1 and all(map(_IS_NUMBER.fullmatch, header)):
            raise DataError(
                f"{where}: found the numbers {', '.join(header)}; expected the names of columns; "
                "if there are no names, say where user, item and, if there are any, rating and "
                "time are with --columns 1,2,3 (in Python Columns(positions=(1, 2, 3))); if these "
                "are names, with --user-column and --item-column (Columns(user=…, item=…))"
            )
        raise DataError(
            f"{where}: unknown column {name!r}{meant}; the columns are {', '.join(header)}; say "
            "which have the user and the item with --user-column and --item-column (in Python "
            "Columns(user=…, item=…)), a rating or a time that is used alike; or, if this is no "
            "header, where they are with --columns 1,2"
        )
    return header.index(name)


@dataclass(frozen=True, eq=False)
class Column:
    """Row r has the id ids[codes[r]]."""

    codes: Int64
    ids: Ids

    @classmethod
    def of_names(cls, codes: npt.ArrayLike, names: Sequence[str]) -> Column:
        """Row r has the id names[codes[r]]; names are distinct, in any order."""
        ids = Ids.of(names)
        place = np.searchsorted(ids.values, np.array(names, dtype=np.str_).astype(ids.values.dtype))
        return cls(place.astype(np.int64)[np.asarray(codes, dtype=np.int64)], ids)

    @classmethod
    def of_numbers(cls, numbers: Int64) -> Column:
        """Row r has the id numbers[r]."""
        values, codes = np.unique(numbers, return_inverse=True)
        return cls(codes.astype(np.int64), Ids(values))

    @classmethod
    def of_whole_numbers(cls, where: str, name: str, values: npt.NDArray[Any]) -> Column:
        """Row r has the id values[r], finite and of any type, also where that is 7.0."""
        is_float = values.dtype.kind == "f"
        if is_float and (bad := np.flatnonzero(values != np.floor(values))).size:
            at = int(bad[0])
            raise bad_cell(where, at + 1, name, values[at].item(), "a whole number")
        # From 2^53 on a float stands for several whole numbers: ids would be merged.
        most = 2 ** (np.finfo(values.dtype).nmant + 1) - 1 if is_float else 2**63 - 1
        if (large := np.flatnonzero(np.abs(values) > most)).size:
            at = int(large[0])
            advice = (
                f"above that {values.dtype} does not tell ids apart: give integers or strings"
                if is_float
                else "give larger ids as strings"
            )
            raise DataError(
                f"{where}, line {at + 1}: column {name!r} has {values[at].item()!r}; expected a "
                f"whole number of at most {most}; {advice}"
            )
        return cls.of_numbers(values.astype(np.int64))

    def take(self, rows: Int64) -> Column:
        """These rows only, and only the ids that they have."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        return Column(codes.astype(np.int64), Ids(self.ids.values[used]))


class Codes:
    """Numbers ids that are strings as they come; what an id is, is decided here for every reader.

    Blanks around an id do not belong to it.
    """

    def __init__(self, where: str, name: str) -> None:
        self._where, self._name = where, name
        self._codes: dict[str, int] = {}

    def check(self, line: int, cell: str) -> None:
        text = cell.strip()
        if text in self._codes:
            return
        if not text or text.lower() == "nan" or "\0" in text:
            raise bad_cell(self._where, line, self._name, cell, "an id")
        if any("\ud800" <= sign <= "\udfff" for sign in text):
            expected = "an id without halves of surrogate pairs, which are no characters"
            raise bad_cell(self._where, line, self._name, cell, expected)
        if len(text) > LONGEST_ID:
            expected = f"an id of at most {LONGEST_ID} characters, not {len(text)}"
            raise bad_cell(self._where, line, self._name, f"{text[:40]}…", expected)

    def code(self, line: int, cell: str) -> int:
        text = cell.strip()
        if text not in self._codes:
            self.check(line, cell)
            self._codes[text] = len(self._codes)
        return self._codes[text]

    def column(self, codes: npt.ArrayLike) -> Column:
        """Row r has the id that got the number codes[r]."""
        return Column.of_names(codes, list(self._codes))


@dataclass(frozen=True, eq=False)
class Rows:
    """Row r is a user and an item, from line lines[r], and at times[r] if that is known."""

    where: str
    """A path, or what else the rows come from."""
    users: Column
    items: Column
    lines: Int64
    times: Float64 | None = None
    users_alone: dict[int, int] = field(default_factory=dict)
    """Lines that name a user and no item, in a format that can: line to user."""
    maybe_times: tuple[str, ...] = ()
    """Columns that may have the times, where these are not known."""

    def take(self, rows: Int64) -> Rows:
        """These rows only."""
        times = None if self.times is None else self.times[rows]
        users, items = self.users.take(rows), self.items.take(rows)
        return replace(self, users=users, items=items, lines=self.lines[rows], times=times)


def check_not_empty(rows: Rows, columns: Columns) -> None:
    if not rows.lines.size:
        least = columns.minimum_rating
        rated = "" if least is None else f" rated {least} or more"
        raise DataError(f"{rows.where}: there are no interactions{rated}; is it the right data?")


def bad_cell(where: str, line: int, column: str, cell: object, expected: str) -> DataError:
    """The error for a value that is missing or of another kind."""
    return DataError(
        f"{where}, line {line}: column {column!r} has {cell!r}; expected {expected}; "
        "mend it, or remove the line"
    )
