"""y_ui = e_u · e_i^(c), c the cluster of u: every cluster of users has item vectors of its own."""

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
class ClusteredVectors:
    """See `Scorer`."""

    kind: ClassVar[str] = "clustered-vectors"
    users: Floats
    cluster: Int64
    """Of every user."""
    items: Floats
    """One table for each cluster: (clusters, items, d)."""

    @property
    def n_users(self) -> int:
        return len(self.users)

    @property
    def n_items(self) -> int:
        return int(self.items.shape[1])

    def scores(self, users: Int64) -> Floats:
        found = np.empty((len(users), self.n_items), dtype=self.items.dtype)
        for cluster in np.unique(self.cluster[users]).tolist():
            own = np.flatnonzero(self.cluster[users] == cluster)
            found[own] = self.users[users[own]] @ self.items[cluster].T
        return found

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {"users": self.users, "cluster": self.cluster, "items": self.items}

    @classmethod
    def from_arrays(cls, arrays: Arrays, seen: Ragged) -> Self:
        cluster: Int64 = arrays["cluster"]
        return cls(rows_of(arrays, "users"), cluster, rows_of(arrays, "items"))
