"""y_ui = Σ_{j ∈ I_u} S_ji: items similar to those that a user has."""

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
class DenseSimilarity:
    """All pairs of items have a similarity. See `Scorer`."""

    kind: ClassVar[str] = "dense-similarity"
    seen: Ragged
    """I_u of every user."""
    similarity: Floats
    """Row j has S_ji for all i."""

    @property
    def n_users(self) -> int:
        return len(self.seen)

    @property
    def n_items(self) -> int:
        return len(self.similarity)

    def scores(self, users: Int64) -> Floats:
        found = np.zeros((len(users), self.n_items), dtype=self.similarity.dtype)
        for row, user in enumerate(users.tolist()):
            np.sum(self.similarity[self.seen[user]], axis=0, out=found[row])
        return found

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"similarity": self.similarity}

    @classmethod
    def from_arrays(cls, arrays: Arrays, seen: Ragged) -> Self:
        return cls(seen, rows_of(arrays, "similarity"))


@dataclass(frozen=True)
class SparseSimilarity:
    """Most pairs of items have none. See `Scorer`."""

    kind: ClassVar[str] = "sparse-similarity"
    seen: Ragged
    """I_u of every user."""
    similar: Ragged
    """Row j has the items i with a similarity S_ji."""
    similarity: Floats
    """For every entry of `similar`."""

    @property
    def n_users(self) -> int:
        return len(self.seen)

    @property
    def n_items(self) -> int:
        return len(self.similar)

    def scores(self, users: Int64) -> Floats:
        """Added up in float64, in the order of the user's items."""
        own = self.seen.only(users)
        every = Ragged(self.similar.offsets, np.arange(len(self.similar.values)))
        entries = every.only(own.values)
        rows = own.rows[entries.rows]
        keys = rows * self.n_items + self.similar.values[entries.values]
        flat = np.bincount(keys, self.similarity[entries.values], len(users) * self.n_items)
        return flat.astype(np.float64, copy=False).reshape(len(users), self.n_items)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "similar_offsets": self.similar.offsets,
            "similar_items": self.similar.values,
            "similarity": self.similarity,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, seen: Ragged) -> Self:
        similar = Ragged(arrays["similar_offsets"], arrays["similar_items"])
        return cls(seen, similar, rows_of(arrays, "similarity"))
