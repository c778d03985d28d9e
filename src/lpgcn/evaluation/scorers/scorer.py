"""What a trained model is to everything that ranks, measures or recommends: scores of all items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Int64
from lpgcn.model.kernels import Floats
from lpgcn.ragged import Ragged

Arrays = Mapping[str, npt.NDArray[Any]]


class Scorer(Protocol):
    """Users to scores of all items. The kinds are few, and `KINDS` has them all: a saved model says
    which one it is and brings its arrays, so that no code of the method that trained it, and none
    of what that needed, is needed to use it."""

    kind: ClassVar[str]

    @property
    def n_users(self) -> int: ...

    @property
    def n_items(self) -> int: ...

    def scores(self, users: Int64) -> Floats:
        """y_ui for some users and all items, in an array that the caller may change."""
        ...

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All that it consists of, but for what each user has in training."""
        ...

    @classmethod
    def from_arrays(cls, arrays: Arrays, seen: Ragged) -> Self:
        """The same again; `seen` has what each user has in training."""
        ...


def blocks(users: Int64, n_items: int, buffer_bytes: int = 1 << 26) -> list[Int64]:
    """The users in parts whose scores of all items fit a buffer, one by one if they must."""
    at_once = max(1, buffer_bytes // (8 * max(1, n_items)))
    return [users[first : first + at_once] for first in range(0, len(users), at_once)]


def rows_of(arrays: Arrays, name: str) -> Floats:
    found: Floats = np.asarray(arrays[name])
    return found
