"""Whether a backbone's derivatives are those of autograd: beside the finite differences of
`checking`, for all numbers and to the last few bits, where torch is installed.

`layer` and `readout` are written with NumPy. They are given arrays whose operations are torch's,

    ∂⟨g, f(x)⟩ / ∂x      by autograd      =      the vector-Jacobian product that the backbone gives
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from lpgcn.array_types import Float64
from lpgcn.errors import LpgcnError
from lpgcn.model.backbones import Backbone
from lpgcn.model.backbones.checking import Trial
from lpgcn.model.kernels import Kernels
from lpgcn.model.weights import Weights

if TYPE_CHECKING:
    import torch

_TOLERANCE: Final = 1e-9
"""Of a number, by the largest of its matrix."""
_NAMES: Final = {"power": "pow", "where": "where", "concatenate": "cat", "zeros_like": "zeros_like"}
"""What torch calls it, where that is not NumPy's name of an operation."""


class UnknownToAutogradError(LpgcnError):
    """An operation that torch has under no name known here."""

    def __init__(self, operation: str) -> None:
        super().__init__(
            f"autograd cannot follow {operation}; expected operations of numbers, np.where and "
            "np.concatenate: finite differences alone were looked at"
        )


class Traced(NDArrayOperatorsMixin):
    """A table for NumPy's operations, a tensor for torch's."""

    dtype = np.dtype(np.float64)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, which: Any) -> Traced:
        return Traced(self.tensor[which])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnknownToAutogradError(name)

    def astype(self, kind: Any) -> Traced:
        return self

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Traced:
        if method != "__call__":
            raise UnknownToAutogradError(f"{ufunc.__name__}.{method}")
        return _called(_NAMES.get(ufunc.__name__, ufunc.__name__), inputs, options)

    def __array_function__(self, function: Any, types: Any, given: Any, options: Any) -> Traced:
        name = function.__name__
        if name not in _NAMES:
            raise UnknownToAutogradError(name)
        if name == "concatenate":
            return _called(_NAMES[name], (list(map(_tensor, given[0])), *given[1:]), options)
        return _called(_NAMES[name], given, options)


def _tensor(value: Any) -> Any:
    import torch

    if isinstance(value, Traced):
        return value.tensor
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


def _called(name: str, given: Sequence[Any], options: Mapping[str, Any]) -> Traced:
    """With numbers as tensors, which `maximum` and `where` ask for."""
    import torch

    operation = getattr(torch, name, None)
    if operation is None or options.keys() - {"axis"}:
        raise UnknownToAutogradError(f"{name} {sorted(options)}")
    numbers = [float(one) if type(one) is int and name != "cat" else one for one in given]
    return Traced(operation(*map(_tensor, numbers), **options))


class _Products:
    """The one kernel that `Weights.times` asks for."""

    def products(self, rows: Traced, matrix: Traced) -> Traced:
        return Traced(rows.tensor @ matrix.tensor)


def differences(backbone: Backbone, kernels: Kernels) -> list[str]:
    """Where the backbone's products and autograd's differ, in words; nothing, if all is well."""
    trial = Trial(backbone)
    return [*_layers(backbone, kernels, trial), *_readout(backbone, trial)]


def _layers(backbone: Backbone, kernels: Kernels, trial: Trial) -> Iterator[str]:
    weights = Weights(trial.matrices, kernels)
    for number in range(backbone.layers):
        result = backbone.layer(number, trial.vectors, trial.messages, weights)
        gradient = trial.draw(*result.shape)
        found = backbone.layer_gradient(
            number, trial.vectors, trial.messages, result, gradient, weights
        )
        outer = {name: left.T @ right for name, (left, right) in found.weights.items()}
        given: dict[str, Float64 | None] = {
            "vectors": found.vectors,
            "messages": found.messages,
        }
        given |= {f"weights[{name!r}]": outer.get(name) for name in trial.matrices}
        at = {"vectors": trial.vectors, "messages": trial.messages}
        at |= {f"weights[{name!r}]": matrix for name, matrix in trial.matrices.items()}

        def call(leaves: Sequence[Any], number: int = number) -> Any:
            vectors, messages, *matrices = leaves
            named: Any = dict(zip(trial.matrices, matrices, strict=True))
            products: Any = _Products()
            return backbone.layer(number, vectors, messages, Weights(named, products))

        expected = _by_autograd(call, list(at.values()), gradient)
        for (name, one), other in zip(given.items(), expected, strict=True):
            yield from _compared(f"layer_gradient({number}, …).{name}", one, other)


def _readout(backbone: Backbone, trial: Trial) -> Iterator[str]:
    layers = [trial.draw(*trial.vectors.shape) for _ in range(backbone.layers + 1)]
    gradient = trial.draw(len(trial.vectors), backbone.final_dim)
    for number, expected in enumerate(_by_autograd(backbone.readout, layers, gradient)):
        given = backbone.readout_gradient(number, gradient)
        yield from _compared(f"readout_gradient({number}, …)", given, expected)


def _by_autograd(
    call: Callable[[Any], Any], at: Sequence[Float64], gradient: Float64
) -> list[Float64]:
    """∂⟨g, call(x)⟩/∂x of every x; zero for what `call` does not use."""
    import torch

    leaves = [torch.tensor(one).requires_grad_() for one in at]
    total = (call([Traced(leaf) for leaf in leaves]).tensor * torch.tensor(gradient)).sum()
    found = torch.autograd.grad(total, leaves, allow_unused=True)
    return [
        np.zeros(where.shape) if one is None else one.numpy()
        for one, where in zip(found, at, strict=True)
    ]


def _compared(what: str, given: Float64 | None, expected: Float64) -> Iterator[str]:
    found = np.zeros(expected.shape) if given is None else given
    off = np.abs(found - expected)
    if not off.max() <= _TOLERANCE * max(1.0, float(np.abs(expected).max())):
        row, column = np.unravel_index(np.argmax(off), off.shape)
        yield (
            f"{what}[{row}, {column}] is {found[row, column]:.9g}, and autograd says "
            f"{expected[row, column]:.9g}; {np.count_nonzero(off > _TOLERANCE)} of {off.size} "
            "numbers differ"
        )
