"""What a backbone is: all that tells one model of the family from another.

With m_n what the exchange delivers to node n, the scaled sum of its neighbours' vectors,

    e^(l+1) = f_l(e^(l), m^(l); Θ_l)        e = readout(e^(0), …, e^(L))

Backward is local. The vector-Jacobian product of f_l gives the gradient of the node's own e^(l),
that of m^(l), which is what the node pushes, and that of Θ_l, which is added up over all nodes.
Nothing else in the house asks for a backbone by its name.

Rows are nodes, and every row must come out as it would alone: element by element with NumPy, and
dense maps by `Weights`. All numbers are float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from lpgcn.array_types import Float64
from lpgcn.config import Config, ConfigError
from lpgcn.model.weights import MAPS, Shape, Weights, ordered
from lpgcn.random import Purpose

NodeKind = Literal["users", "items"]


@dataclass(frozen=True)
class Table:
    """Parameters with one row for every node of a kind, held by whoever owns the node."""

    kind: NodeKind
    purpose: Purpose


BUILDING: Final = "item_users"
"""W, the item vectors that users are built from."""
_ITEMS: Final = Table("items", Purpose.ITEM_EMBEDDING)
WITH_USERS: Final[Mapping[str, Table]] = {
    "items": _ITEMS,
    "users": Table("users", Purpose.USER_EMBEDDING),
}
"""e_i^(0) and e_u^(0) are parameters."""
BUILT_USERS: Final[Mapping[str, Table]] = {
    "items": _ITEMS,
    BUILDING: Table("items", Purpose.ITEM_USER_EMBEDDING),
}
"""e_u^(0) = |I_u|^-½ Σ_{i ∈ I_u} W_i (Eq. 6): a half exchange at each end of a step."""


@dataclass(frozen=True)
class LayerGradient:
    """The vector-Jacobian product of f_l, for the gradient of its result."""

    vectors: Float64
    """Of e^(l)."""
    messages: Float64
    """Of m^(l)."""
    weights: Mapping[str, tuple[Float64, Float64]] = field(default_factory=dict)
    """For each matrix that f_l used (left, right): its gradient is Σ_n left_n ⊗ right_n."""


class Backbone(ABC):
    """A model, with the sizes of one configuration."""

    summary: str = ""
    """Name, authors and year, for `lpgcn models`; in its place the first line of the docstring."""
    tables: Mapping[str, Table] = WITH_USERS
    aggregation: Literal["symmetric", "mean"] = "symmetric"
    """symmetric: m_n = Σ_j e_j / √(|N_n||N_j|); mean: m_n = Σ_j e_j / |N_n|."""
    self_loop: bool = False
    """Every node is a neighbour of its own: degrees are one more, and j = n is in the sum."""
    takes_layer_weights: bool = False

    def __init__(self, config: Config) -> None:
        self.dim, self.layers, self.layer_weights = config.dim, config.layers, config.layer_weights
        self._features = {"users": config.user_feature_dim, "items": config.item_feature_dim}
        if self.layer_weights is not None and not self.takes_layer_weights:
            raise ConfigError(
                f"layer-weights are given, but the readout of {config.model} has none; leave them "
                "out, or choose a model whose final vectors are Σ_l α_l e^(l)"
            )

    @property
    def builds_users(self) -> bool:
        return BUILDING in self.tables

    def held(self, kind: NodeKind) -> dict[str, Table]:
        """The tables of the nodes of one kind."""
        return {name: table for name, table in self.tables.items() if table.kind == kind}

    def weights(self) -> dict[str, Shape]:
        """The matrices Θ of its layers."""
        return {}

    def shared(self) -> dict[str, Shape]:
        """All matrices of which every party has a copy: those of the layers, and those that map
        features to e^(0)."""
        maps = {MAPS[kind]: (count, self.dim) for kind, count in self._features.items() if count}
        return ordered({**self.weights(), **maps})

    @abstractmethod
    def layer(self, number: int, vectors: Float64, messages: Float64, weights: Weights) -> Float64:
        """e^(l+1) = f_l(e^(l), m^(l); Θ_l), of l = `number` from 0 to L − 1."""

    @abstractmethod
    def layer_gradient(
        self,
        number: int,
        vectors: Float64,
        messages: Float64,
        result: Float64,
        gradient: Float64,
        weights: Weights,
    ) -> LayerGradient:
        """For the gradient of `result`, which is what `layer` gave."""

    @property
    def final_dim(self) -> int:
        """The size of a final vector."""
        return self.dim

    @abstractmethod
    def readout(self, layers: Sequence[Float64]) -> Float64:
        """The final vectors, from e^(0), …, e^(L)."""

    @abstractmethod
    def readout_gradient(self, number: int, gradient: Float64) -> Float64 | None:
        """Of e^(l), from that of the final vectors; None if e^(l) is not in the readout."""


class LastLayer(Backbone):
    """e = e^(L)."""

    def readout(self, layers: Sequence[Float64]) -> Float64:
        return layers[-1]

    def readout_gradient(self, number: int, gradient: Float64) -> Float64 | None:
        return gradient if number == self.layers else None


class Concatenated(Backbone):
    """e = e^(0) ‖ … ‖ e^(L), of (L + 1)·d numbers."""

    @property
    def final_dim(self) -> int:
        return (self.layers + 1) * self.dim

    def readout(self, layers: Sequence[Float64]) -> Float64:
        return np.concatenate(layers, axis=1)

    def readout_gradient(self, number: int, gradient: Float64) -> Float64 | None:
        return gradient[:, number * self.dim : (number + 1) * self.dim]


class Linear(Backbone):
    """e^(l+1) = m^(l), and e = Σ_l α_l e^(l) (Eqs. 1–3); α_l = 1/(L + 1) if nothing else is said.

    A layer passes on what arrives, so that a pass never leaves the grid (see `propagation`).
    """

    takes_layer_weights = True

    @property
    def readout_weights(self) -> tuple[tuple[float, ...], float]:
        """α_l but for a common factor, and that factor."""
        if self.layer_weights is None:
            return (1.0,) * (self.layers + 1), 1 / (self.layers + 1)
        return self.layer_weights, 1.0

    def layer_weight(self, number: int) -> float:
        """α_l."""
        weights, factor = self.readout_weights
        return weights[number] * factor

    def layer(self, number: int, vectors: Float64, messages: Float64, weights: Weights) -> Float64:
        return messages

    def layer_gradient(
        self,
        number: int,
        vectors: Float64,
        messages: Float64,
        result: Float64,
        gradient: Float64,
        weights: Weights,
    ) -> LayerGradient:
        return LayerGradient(np.zeros_like(gradient), gradient)

    def readout(self, layers: Sequence[Float64]) -> Float64:
        weights, factor = self.readout_weights
        total = layers[-1] * weights[-1]
        for vectors, weight in zip(layers[:-1], weights, strict=False):
            total = total + weight * vectors
        return total * factor

    def readout_gradient(self, number: int, gradient: Float64) -> Float64 | None:
        return self.layer_weight(number) * gradient
