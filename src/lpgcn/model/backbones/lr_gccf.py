"""LR-GCCF (Chen et al., "Revisiting graph based collaborative filtering: a linear residual graph
convolutional network approach", AAAI 2020).

    E^(l+1) = S E^(l) W_l      S = D̃^-½ (A + I) D̃^-½, D̃ = D + I      e = e^(0) ‖ … ‖ e^(L)

There is no σ. The residual r̂^(l+1) = r̂^(l) + ⟨e_u^(l+1), e_i^(l+1)⟩ of the predicted preference is
the product of concatenated vectors.
"""

from __future__ import annotations

import numpy as np

from lpgcn.array_types import Float64
from lpgcn.model.backbones.backbone import Concatenated, LayerGradient
from lpgcn.model.weights import Shape, Weights


class LRGCCF(Concatenated):
    """m^(l) is (S E^(l))_n, the node itself included."""

    summary = "LR-GCCF, with maps, no nonlinearity, layers side by side (Chen et al., 2020)"
    self_loop = True

    def weights(self) -> dict[str, Shape]:
        return {f"W{number}": (self.dim, self.dim) for number in range(self.layers)}

    def layer(self, number: int, vectors: Float64, messages: Float64, weights: Weights) -> Float64:
        return weights.times(messages, f"W{number}")

    def layer_gradient(
        self,
        number: int,
        vectors: Float64,
        messages: Float64,
        result: Float64,
        gradient: Float64,
        weights: Weights,
    ) -> LayerGradient:
        name = f"W{number}"
        return LayerGradient(
            np.zeros_like(vectors),
            weights.back(gradient, name),
            {name: (messages, gradient)},
        )
