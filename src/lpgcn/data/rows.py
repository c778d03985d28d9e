"""What a file of interactions says, before anything is merged or indexed."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lpgcn.data.errors import DataError
from lpgcn.data.ids import Ids

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Columns:
    """The named columns to read, and the least rating that counts as an interaction, if any."""

    user: str = "user_id"
    item: str = "item_id"
    rating: str = "rating"
    minimum_rating: float | None = None

    def places(self, where: str, header: Sequence[str]) -> list[int]:
        """Where a header has the user, the item and, if it is used, the rating."""
        names = [self.user, self.item]
        if self.minimum_rating is not None:
            names.append(self.rating)
        for name in names:
            if header.count(name) > 1:
                raise DataError(f"{where}: there are two columns {name!r}; rename one of them")
            if name not in header:
                near = difflib.get_close_matches(name, header, n=1)
                meant = f" (did you mean {near[0]!r}?)" if near else ""
                raise DataError(
                    f"{where}: unknown column {name!r}{meant}; the columns are "
                    f"{', '.join(header)}; say which hold the user, the item and the rating"
                )
        return [header.index(name) for name in names]


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

    def take(self, rows: Int64) -> Column:
        """These rows only, and only the ids that they have."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        return Column(codes.astype(np.int64), Ids(self.ids.values[used]))


@dataclass(frozen=True, eq=False)
class Rows:
    """Row r is a user and an item, from line lines[r] of the file."""

    path: Path
    users: Column
    items: Column
    lines: Int64
    users_alone: dict[int, int] = field(default_factory=dict)
    """Lines that name a user and no item, in a format that can: line to user."""


def bad_cell(path: Path, line: int, column: str, cell: object, expected: str) -> DataError:
    """The error for a value that is missing or of another kind."""
    return DataError(
        f"{path}, line {line}: column {column!r} has {cell!r}; expected {expected}; "
        "mend it, or remove the line"
    )
