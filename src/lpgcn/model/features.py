"""Initial vectors from features: e^(0) = table + features·Θ; a user that is built has no table, but
what it is built from in its place.

Θ is one more dense weight, of F rows and d columns, drawn as a table of F rows is: for features
of which one is 1 and all others are 0, its rows are what nodes of a kind have in common.
The regulariser is one of e^(0), as without features. So with g = ∂Loss/∂e^(0), the regulariser's
part included, a table has the gradient g, and Θ has Σ_n features_n ⊗ g_n over all nodes n.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lpgcn.array_types import Float64
from lpgcn.errors import LpgcnError
from lpgcn.model.weights import MAPS, Weights

_NUMBER: Final = np.dtype("<f8")


class FeatureError(LpgcnError):
    """Features that a model cannot use, or that are missing."""


@dataclass(frozen=True, eq=False)
class Features:
    """Of some nodes, a row each, and the name of Θ."""

    rows: Float64
    name: str

    @classmethod
    def of(cls, kind: str, rows: Float64 | None) -> Features | None:
        """Of nodes of a kind, if they have any."""
        return None if rows is None else cls(np.ascontiguousarray(rows), MAPS[kind])

    def mapped(self, weights: Weights) -> Float64:
        """features·Θ."""
        return weights.times(self.rows, self.name)


def packed(rows: Float64) -> bytes:
    """As a party keeps them."""
    return rows.astype(_NUMBER).tobytes()


def count_of(content: bytes) -> int:
    """How many numbers these are."""
    return len(content) // _NUMBER.itemsize


def unpacked(content: bytes, count: int, width: int, what: str) -> Float64 | None:
    """The features of so many nodes, of so many numbers each; None where the model has none."""
    if len(content) != _NUMBER.itemsize * count * width:
        raise FeatureError(
            f"found {len(content)} bytes of features of {what}; expected {width} numbers for each "
            f"of {count}, as the configuration says"
        )
    return np.frombuffer(content, dtype=_NUMBER).reshape(count, width) if width else None
