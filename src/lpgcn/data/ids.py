"""External ids: what users and items are called outside, in the order of their dense indices."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Int64
from lpgcn.data.errors import DataError

Values = npt.NDArray[Any]
"""Whole numbers (int64) or strings."""

_DIGITS: Final = re.compile(r"-?[0-9]{1,19}")
_CANDIDATES: Final = 10_000


@dataclass(frozen=True, eq=False)
class Ids:
    """Distinct ids in ascending order, all whole numbers or all strings; position is the index."""

    values: Values

    def __post_init__(self) -> None:
        if self.values.dtype.kind not in "iU" or bool((self.values[1:] <= self.values[:-1]).any()):
            raise ValueError("ids are distinct whole numbers or strings in ascending order")

    @classmethod
    def of(cls, ids: Iterable[int | str]) -> Ids:
        """The distinct ids among these; strings that all spell whole numbers become numbers."""
        texts = {str(one) for one in ids}
        if all(map(_spells_number, texts)):
            return cls(np.array(sorted(map(int, texts)), dtype=np.int64))
        return cls(np.array(sorted(texts), dtype=np.str_))

    @classmethod
    def union(cls, *parts: Ids) -> Ids:
        """Every id of any part; strings if some part has strings."""
        kind = np.int64 if all(part.are_numbers for part in parts) else np.str_
        return cls(np.unique(np.concatenate([part.values.astype(kind) for part in parts])))

    @property
    def are_numbers(self) -> bool:
        return self.values.dtype.kind == "i"

    def __len__(self) -> int:
        return self.values.size

    def __getitem__(self, index: int) -> int | str:
        one: int | str = self.values[index].item()
        return one

    def __iter__(self) -> Iterator[int | str]:
        return iter(self.values.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ids) and np.array_equal(self.values, other.values)

    def indices_in(self, whole: Ids) -> Int64:
        """For each of these ids its index among the ids of `whole`, which has them all."""
        values = self.values.astype(whole.values.dtype)
        return np.searchsorted(whole.values, values).astype(np.int64)

    def index_of(self, external: int | str | float, what: str = "id") -> int:
        """The dense index of an external id; `"7"` finds the number 7, as on a command line, and
        `" 7 "` and 7.0 as well, as readers take no blanks around ids and whole numbers as floats.

        `what` it is the id of is said where there is none.
        """
        is_whole = isinstance(external, float | np.floating) and float(external).is_integer()
        text = str(int(external)) if is_whole else str(external)
        spellings = [text, text.strip()]
        if self.are_numbers and not (spellings := list(filter(_spells_number, spellings))):
            raise DataError(
                f"unknown {what} {external!r}: the ids are whole numbers{self._range()}"
            )
        for spelling in spellings:
            wanted = int(spelling) if self.are_numbers else spelling
            index = int(np.searchsorted(self.values, np.array(wanted)))
            if index < len(self) and self[index] == wanted:
                return index
        raise DataError(f"unknown {what} {external!r}{self._hint(wanted, index)}")

    def indices_of(self, externals: Collection[int | str], what: str = "id") -> Int64:
        """What `index_of` says, for many."""
        wanted = np.array(list(externals))
        if wanted.dtype.kind == self.values.dtype.kind and len(self):
            found = np.searchsorted(self.values, wanted).clip(max=len(self) - 1)
            if bool((self.values[found] == wanted).all()):
                return found.astype(np.int64)
        return np.array([self.index_of(one, what) for one in externals], dtype=np.int64)

    def _range(self) -> str:
        return f" from {self[0]} to {self[-1]}" if len(self) else "; there are none"

    def _hint(self, wanted: int | str, index: int) -> str:
        """Ids that the asker may have meant; of very many, only those that sort near it."""
        if isinstance(wanted, int):
            near = self.values[max(0, index - 1) : index + 1].tolist()
            return f": the nearest are {near}; ids go{self._range()}"
        around = self.values[max(0, index - _CANDIDATES) : index + _CANDIDATES].tolist()
        by_lower_case = {one.lower(): one for one in around}
        near = difflib.get_close_matches(wanted.lower(), by_lower_case, n=3, cutoff=0.5)
        if near:
            return f": did you mean {', '.join(repr(by_lower_case[one]) for one in near)}?"
        return f": ids look like {', '.join(map(repr, around[:3]))}" if around else self._range()

    def encoded(self) -> bytes:
        """The ids as bytes, the same for the same ids and different for any others."""
        if self.are_numbers:
            return b"numbers" + self.values.astype("<i8").tobytes()
        texts = (one.encode() for one in self.values.tolist())
        return b"strings" + b"".join(b"%d:%b" % (len(text), text) for text in texts)


def _spells_number(text: str) -> bool:
    """Whether this is the usual spelling of a 64-bit whole number: 7, -7, but not 007 or 7.0."""
    if not _DIGITS.fullmatch(text):
        return False
    return -(2**63) <= int(text) < 2**63 and str(int(text)) == text
