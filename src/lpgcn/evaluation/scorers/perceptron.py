"""y_ui = h · φ(e_u, e_i): a multi-layer perceptron on a user's and an item's vector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Int64
from lpgcn.evaluation.scorers.scorer import Arrays, blocks, rows_of
from lpgcn.model.kernels import Floats
from lpgcn.ragged import Ragged

_PAIRS_AT_ONCE = 1 << 15
"""Products of fewer rows would wait for BLAS's threads more than they compute."""


@dataclass(frozen=True)
class Perceptron:
    """x^(0) = [e_u, e_i], x^(l+1) = ReLU(x^(l) W_l + b_l), y_ui = x^(L)·h: NCF's. See `Scorer`.

    The first map is a sum of one over the user's and one over the item's vector, so each of the two
    is computed once, and only the layers behind it for every pair.
    """

    kind: ClassVar[str] = "perceptron"
    users: Floats
    items: Floats
    weights: tuple[Floats, ...]
    """W_l, from x^(l) to x^(l+1)."""
    biases: tuple[Floats, ...]
    output: Floats
    """h."""

    @property
    def n_users(self) -> int:
        return len(self.users)

    @property
    def n_items(self) -> int:
        return len(self.items)

    def scores(self, users: Int64) -> Floats:
        d = self.users.shape[1]
        of_users = self.users[users] @ self.weights[0][:d] + self.biases[0]
        of_items = self.items @ self.weights[0][d:]
        found = np.empty((len(users), self.n_items), dtype=self.items.dtype)
        for rows in blocks(np.arange(len(users)), self.n_items, 8 * _PAIRS_AT_ONCE):
            for first in range(0, self.n_items, _PAIRS_AT_ONCE):
                part = slice(first, first + _PAIRS_AT_ONCE)
                hidden = np.maximum(of_users[rows, None] + of_items[part], 0)
                pairs = self._behind(hidden.reshape(-1, hidden.shape[2]))
                found[rows, part] = pairs.reshape(hidden.shape[:2])
        return found

    def _behind(self, hidden: Floats) -> Floats:
        for weight, bias in zip(self.weights[1:], self.biases[1:], strict=True):
            hidden = np.maximum(hidden @ weight + bias, 0)
        result: Floats = hidden @ self.output
        return result

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        layers = {f"weight_{layer}": weight for layer, weight in enumerate(self.weights)}
        biases = {f"bias_{layer}": bias for layer, bias in enumerate(self.biases)}
        return {
            "users": self.users,
            "items": self.items,
            "output": self.output,
            **layers,
            **biases,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, seen: Ragged) -> Self:
        layers = range(sum(name.startswith("weight_") for name in arrays))
        return cls(
            rows_of(arrays, "users"),
            rows_of(arrays, "items"),
            tuple(rows_of(arrays, f"weight_{layer}") for layer in layers),
            tuple(rows_of(arrays, f"bias_{layer}") for layer in layers),
            rows_of(arrays, "output"),
        )
