"""NGCF (Wang et al., "Neural graph collaborative filtering", SIGIR 2019, Eqs. 3–9).

    e_u^(l+1) = LeakyReLU(W₁ e_u + Σ_{i ∈ I_u} p_ui (W₁ e_i + W₂ (e_i ⊙ e_u)))      items alike
              = LeakyReLU((e_u + m_u) W₁ + (e_u ⊙ m_u) W₂)      m_u = Σ_i p_ui e_i
    p_ui = 1/√(|I_u||U_i|)      e = e^(0) ‖ … ‖ e^(L)

because Σ_i p_ui (e_i ⊙ e_u) = m_u ⊙ e_u: one vector from each neighbour is enough. The slope of
LeakyReLU is 0.2, as in the authors' program; there is no drop-out.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lpgcn.array_types import Float64
from lpgcn.model.backbones.backbone import Concatenated, LayerGradient
from lpgcn.model.weights import Shape, Weights

SLOPE: Final = 0.2
"""Of LeakyReLU below zero."""


class NGCF(Concatenated):
    """W₁ is `sum`, of e + m; W₂ is `product`, of e ⊙ m."""

    summary = "NGCF, with maps of sums and products, LeakyReLU (Wang et al., 2019)"

    def weights(self) -> dict[str, Shape]:
        names, shape = ("sum", "product"), (self.dim, self.dim)
        return {f"{name}{number}": shape for number in range(self.layers) for name in names}

    def layer(self, number: int, vectors: Float64, messages: Float64, weights: Weights) -> Float64:
        mapped = weights.times(vectors + messages, f"sum{number}")
        mapped = mapped + weights.times(vectors * messages, f"product{number}")
        return np.where(mapped > 0, mapped, SLOPE * mapped)

    def layer_gradient(
        self,
        number: int,
        vectors: Float64,
        messages: Float64,
        result: Float64,
        gradient: Float64,
        weights: Weights,
    ) -> LayerGradient:
        gradient = np.where(result > 0, gradient, SLOPE * gradient)
        of_sum = weights.back(gradient, f"sum{number}")
        of_product = weights.back(gradient, f"product{number}")
        return LayerGradient(
            of_sum + of_product * messages,
            of_sum + of_product * vectors,
            {
                f"sum{number}": (vectors + messages, gradient),
                f"product{number}": (vectors * messages, gradient),
            },
        )
