"""A backbone of your own: e^(l+1) = e^(l) + ReLU(m^(l) W_l), and e = e^(L).

PYTHONPATH=docs/examples lpgcn verify demo --model residual:Residual
PYTHONPATH=docs/examples lpgcn train ml-100k --model residual:Residual --mode federated
"""

import numpy as np

from lpgcn.model.backbones import LastLayer, LayerGradient


class Residual(LastLayer):
    """m^(l) is the scaled sum of the neighbours' vectors, as LightGCN has it."""

    def weights(self):
        return {f"W{layer}": (self.dim, self.dim) for layer in range(self.layers)}

    def layer(self, number, vectors, messages, weights):
        return vectors + np.maximum(weights.times(messages, f"W{number}"), 0)

    def layer_gradient(self, number, vectors, messages, result, gradient, weights):
        name = f"W{number}"
        mapped = weights.times(messages, name)
        of_mapped = np.where(mapped > 0, gradient, 0)
        return LayerGradient(
            vectors=gradient,
            messages=weights.back(of_mapped, name),
            weights={name: (messages, of_mapped)},
        )
