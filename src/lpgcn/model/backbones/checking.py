"""Whether a backbone is what it says: for those who write their own (`lpgcn verify --model`).

The vector-Jacobian products are compared with central differences along random directions,

    ⟨g, (f(x + hδ) − f(x − hδ)) / 2h⟩ = ⟨g·∂f/∂x, δ⟩

and rows in a table, by the compiled kernels, with rows alone, by NumPy, bit by bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from inspect import getfile
from traceback import extract_tb
from typing import Any, Final

import numpy as np

from lpgcn.array_types import Float64
from lpgcn.model.backbones.backbone import Backbone, LayerGradient
from lpgcn.model.kernels import Kernels
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.weights import MAPS, Weights
from lpgcn.random import Purpose, uniform

_STEP: Final = 2.0**-20
_TOLERANCE: Final = 1e-4
"""Of a derivative, by the size of what it is made of; a wrong one is off by about as much."""
_NODES: Final = 37


def problems(backbone: Backbone, kernels: Kernels) -> list[str]:
    """What is wrong, in words; nothing, if all is well."""
    found: list[str] = []
    try:
        found.extend(_Check(backbone, kernels).findings())
    except Exception as error:  # noqa: BLE001 - of code that is not ours, and told to its author
        frames = extract_tb(error.__traceback__)
        own = [one for one in frames if one.filename == getfile(type(backbone))]
        last = (own or frames)[-1]
        found.append(
            f"{type(error).__name__}: {error}; in {last.name}, {last.filename}, line {last.lineno}"
        )
    return found


class Trial:
    """Where a backbone is tried: numbers between −1 and 1, the same in every check."""

    def __init__(self, backbone: Backbone) -> None:
        self._drawn = 0
        self.vectors, self.messages = (self.draw(_NODES, backbone.dim) for _ in range(2))
        self.matrices = {name: self.draw(*shape) for name, shape in backbone.weights().items()}

    def draw(self, rows: int, columns: int) -> Float64:
        """Not to be written to: a backbone gets arrays that others use, too."""
        self._drawn += 1
        drawn = 2 * uniform(self._drawn, Purpose.DENSE_WEIGHT, np.arange(rows), count=columns) - 1
        drawn.setflags(write=False)
        return drawn


class _Check:
    def __init__(self, backbone: Backbone, kernels: Kernels) -> None:
        self._backbone, self._kernels, trial = backbone, kernels, Trial(backbone)
        self._vectors, self._messages = trial.vectors, trial.messages
        self._matrices, self._draw = trial.matrices, trial.draw

    def findings(self) -> Iterator[str]:
        backbone = self._backbone
        taken = {*backbone.tables, *MAPS.values()}
        if clash := sorted(self._matrices.keys() & taken):
            yield (
                f"weights() has {clash[0]!r}, which is the name of a table or of the map of "
                "features; choose another name"
            )
            return
        results = []
        for number in range(backbone.layers):
            found = self._layer(number, self._vectors, self._messages, self._matrices)
            expected = (_NODES, backbone.dim)
            if np.shape(found) != expected or found.dtype != np.float64:
                yield (
                    f"layer({number}, …) gives {getattr(found, 'dtype', type(found))} of shape "
                    f"{np.shape(found)}; expected float64 of shape {expected}, a row for a node"
                )
                return
            if not np.isfinite(found).all():
                yield f"layer({number}, …) gives {found[~np.isfinite(found)][0]}; expected numbers"
                return
            results.append(found)
            yield from self._derivatives(number, found)
        final = backbone.readout([self._vectors, *results])
        if final.shape != (_NODES, backbone.final_dim):
            yield (
                f"readout gives shape {final.shape}, but final_dim is {backbone.final_dim}; "
                f"expected {(_NODES, backbone.final_dim)}"
            )
            return
        yield from self._readout([self._vectors, *results])
        yield from self._rows_alone()

    def _layer(self, number: int, vectors: Any, messages: Any, matrices: Any) -> Any:
        weights = Weights(matrices, self._kernels)
        return self._backbone.layer(number, vectors, messages, weights)

    def _pulled(self, number: int, result: Float64, gradient: Float64) -> LayerGradient:
        weights = Weights(self._matrices, self._kernels)
        return self._backbone.layer_gradient(
            number, self._vectors, self._messages, result, gradient, weights
        )

    def _derivatives(self, number: int, result: Float64) -> Iterator[str]:
        gradient = self._draw(*result.shape)
        found, v, m, w = (
            self._pulled(number, result, gradient),
            self._vectors,
            self._messages,
            self._matrices,
        )
        where = f"layer_gradient({number}, …)"
        if not isinstance(found, LayerGradient):
            yield f"{where} gives a {type(found).__name__}; expected a LayerGradient"
            return
        if strange := sorted(found.weights.keys() - w.keys()):
            yield f"{where}.weights has {strange[0]!r}, which is not in weights(): {sorted(w)}"
        for name, pulled, at, call in (
            ("vectors", found.vectors, v, lambda x: self._layer(number, x, m, w)),
            ("messages", found.messages, m, lambda x: self._layer(number, v, x, w)),
        ):
            yield from self._compared(f"{where}.{name}", pulled, at, call, gradient)
        for name, matrix in w.items():
            left, right = found.weights.get(name, (np.zeros((1, 1)),) * 2)
            pulled = left.T @ right if name in found.weights else np.zeros(matrix.shape)
            yield from self._compared(
                f"{where}.weights[{name!r}]", pulled, matrix,
                partial(self._with_matrix, number, name), gradient,
            )  # fmt: skip

    def _with_matrix(self, number: int, name: str, matrix: Float64) -> Any:
        matrices = {**self._matrices, name: matrix}
        return self._layer(number, self._vectors, self._messages, matrices)

    def _compared(
        self, what: str, pulled: Float64, at: Float64, call: Callable[[Any], Any], gradient: Float64
    ) -> Iterator[str]:
        if np.shape(pulled) != at.shape:
            yield f"{what} has shape {np.shape(pulled)}, expected {at.shape}"
            return
        along = self._draw(*at.shape)
        change = (call(at + _STEP * along) - call(at - _STEP * along)) / (2 * _STEP)
        expected, given = float((gradient * change).sum()), float((pulled * along).sum())
        size = float(np.abs(gradient * change).sum()) + float(np.abs(pulled * along).sum())
        if not abs(expected - given) <= _TOLERANCE * size:
            yield (
                f"{what} is no derivative of {what.split('_')[0]}: along a random direction it "
                f"says {given:.6g}, and finite differences say {expected:.6g}"
            )

    def _readout(self, layers: Sequence[Float64]) -> Iterator[str]:
        gradient = self._draw(_NODES, self._backbone.final_dim)
        for number, at in enumerate(layers):
            pulled = self._backbone.readout_gradient(number, gradient)

            def call(x: Float64, number: int = number) -> Float64:
                changed = [*layers[:number], x, *layers[number + 1 :]]
                return self._backbone.readout(changed)

            yield from self._compared(
                f"readout_gradient({number}, …)",
                np.zeros(at.shape) if pulled is None else pulled,
                at,
                call,
                gradient,
            )

    def _rows_alone(self) -> Iterator[str]:
        """By NumPy and one by one, as a client computes them."""
        for number in range(self._backbone.layers):
            table = self._all(number, np.arange(_NODES), self._kernels)
            rows = [self._all(number, np.array([row]), Plain()) for row in range(_NODES)]
            for name, whole in table.items():
                if whole.tobytes() != np.concatenate([one[name] for one in rows]).tobytes():
                    yield (
                        f"{name} of layer {number}: a row alone has other bits than in a table; "
                        "use additions, products, comparisons and square roots of NumPy, and "
                        "`weights.times` for matrices: tanh, exp, @ and sums depend on the shape"
                    )

    def _all(self, number: int, rows: Any, kernels: Kernels) -> dict[str, Float64]:
        weights, backbone = Weights(self._matrices, kernels), self._backbone
        v, m = self._vectors[rows], self._messages[rows]
        result = backbone.layer(number, v, m, weights)
        pulled = backbone.layer_gradient(number, v, m, result, v - m, weights)
        sides = {
            f"layer_gradient.weights[{name!r}]": np.concatenate(pair, axis=1)
            for name, pair in pulled.weights.items()
        }
        return {
            "layer": result,
            "layer_gradient.vectors": pulled.vectors,
            "layer_gradient.messages": pulled.messages,
            "readout": backbone.readout([v] * backbone.layers + [result]),
            **sides,
        }
