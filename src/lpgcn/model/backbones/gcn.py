"""GCN (Kipf & Welling, "Semi-supervised classification with graph convolutional networks", ICLR
2017, Eqs. 2 and 9), on embeddings in place of features.

With the renormalised adjacency Â = D̃^-½ (A + I) D̃^-½, D̃ = D + I,

    E^(l+1) = σ_l(Â E^(l) W_l)      σ_l = ReLU, and no σ in the last layer      e = e^(L)
"""

from __future__ import annotations

import numpy as np

from lpgcn.array_types import Float64
from lpgcn.model.backbones.backbone import LastLayer, LayerGradient
from lpgcn.model.weights import Shape, Weights


class GCN(LastLayer):
    """m^(l) is (Â E^(l))_n, the node itself included."""

    summary = "GCN, with maps and ReLU (Kipf & Welling, 2017)"
    self_loop = True

    def weights(self) -> dict[str, Shape]:
        return {f"W{number}": (self.dim, self.dim) for number in range(self.layers)}

    def layer(self, number: int, vectors: Float64, messages: Float64, weights: Weights) -> Float64:
        mapped = weights.times(messages, f"W{number}")
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
        name = f"W{number}"
        return LayerGradient(
            np.zeros_like(vectors),
            weights.back(gradient, name),
            {name: (messages, gradient)},
        )
