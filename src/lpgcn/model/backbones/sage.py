"""GraphSAGE with the mean aggregator (Hamilton, Ying & Leskovec, "Inductive representation learning
on large graphs", NIPS 2017, Algorithm 1), on whole neighbourhoods.

    e^(l+1) = σ_l(W_l · CONCAT(e^(l), m^(l)))      m_n = Σ_{j ∈ N_n} e_j / |N_n|      e = e^(L)

CONCAT is two matrices, of the node itself and of its neighbours. σ_l is ReLU, and no σ in the last
layer, as in the authors' program. Vectors are not normalised: recommendations rank by products.
"""

from __future__ import annotations

import numpy as np

from lpgcn.array_types import Float64
from lpgcn.model.backbones.backbone import LastLayer, LayerGradient
from lpgcn.model.weights import Shape, Weights


class GraphSAGE(LastLayer):
    """m^(l) is the mean of the neighbours."""

    summary = "GraphSAGE with means of the neighbours (Hamilton et al., 2017)"
    aggregation = "mean"

    def weights(self) -> dict[str, Shape]:
        shape = (self.dim, self.dim)
        return {
            f"{name}{number}": shape for number in range(self.layers) for name in ("own", "near")
        }

    def layer(self, number: int, vectors: Float64, messages: Float64, weights: Weights) -> Float64:
        mapped = weights.times(vectors, f"own{number}") + weights.times(messages, f"near{number}")
        return mapped if number == self.layers - 1 else np.maximum(mapped, 0)

    def layer_gradient(
        self,
        number: int,
        vectors: Float64,
        messages: Float64,
        result: Float64,
        gradient: Float64,
        weights: Weights,
    ) -> LayerGradient:
        if number < self.layers - 1:
            gradient = np.where(result > 0, gradient, 0)
        own, near = f"own{number}", f"near{number}"
        return LayerGradient(
            weights.back(gradient, own),
            weights.back(gradient, near),
            {own: (vectors, gradient), near: (messages, gradient)},
        )
