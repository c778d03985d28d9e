"""y_ui = e_u · e_i (Eq. 4): the kind that has vectors, and is ranked fast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Int64
from lpgcn.evaluation.scorers.scorer import Arrays, rows_of
from lpgcn.model.kernels import Floats
from lpgcn.ragged import Ragged


@dataclass(frozen=True)
class Vectors:
    """The final embeddings e_u and e_i: all that a recommendation needs. See `Scorer`.

    A score with a bias of the item is one, too: one more column, of ones at the users.
    """

    kind: ClassVar[str] = "vectors"
    users: Floats
    items: Floats

    @property
    def n_users(self) -> int:
        return len(self.users)

    @property
    def n_items(self) -> int:
        return len(self.items)

    def scores(self, users: Int64) -> Floats:
        found: Floats = np.matmul(self.users[users], self.items.T)
        return found

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"users": self.users, "items": self.items}

    @classmethod
    def from_arrays(cls, arrays: Arrays, seen: Ragged) -> Self:
        return cls(rows_of(arrays, "users"), rows_of(arrays, "items"))
