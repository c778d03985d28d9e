"""The dense weights Θ of a model: every party has a copy, and all copies have the same bits.

The gradient of a matrix is a sum over all nodes. Each node's part is a product of two vectors, of
which every number is rounded once to a multiple of 2^-(k + 8), where 2^-k is the float32 grid of
gradients for this size of batch. So the sum is one of integers, by anybody, in any order, under
masks; everybody makes the same step of Adam with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.config import Config
from lpgcn.model.adam import Adam, Gradient
from lpgcn.model.grid import Grid, GridError
from lpgcn.model.kernels import LARGEST_PART, Floats, Kernels
from lpgcn.random import Purpose, bits

Shape = tuple[int, int]
Sums = dict[str, Int64]
"""For each matrix what was added up, in steps of `gradient_grid`."""
MAPS: Final = {"users": "user_map", "items": "item_map"}
"""Which matrix maps the features of the nodes of a kind to e^(0): see `model.features`."""
_FINER: Final = 8


class Weights:
    """The matrices at one step."""

    def __init__(self, matrices: Mapping[str, Floats], kernels: Kernels) -> None:
        self._matrices = {name: one.astype(np.float64) for name, one in matrices.items()}
        self.kernels = kernels

    def times(self, rows: Float64, name: str) -> Float64:
        """rows · Θ, each number added up from the first column of the rows to the last."""
        return self.kernels.products(rows, self._matrices[name])

    def back(self, rows: Float64, name: str) -> Float64:
        """rows · Θᵀ, for the gradient of what `times` was given."""
        return self.kernels.products(rows, self._transposed[name])

    @cached_property
    def _transposed(self) -> dict[str, Float64]:
        return {name: np.ascontiguousarray(one.T) for name, one in self._matrices.items()}


def ordered(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """A backbone's own by name, so that features change nothing about them, then those of
    features."""
    return dict(sorted(shapes.items(), key=lambda one: (one[0] in MAPS.values(), one[0])))


def gradient_grid(config: Config) -> Grid:
    """For the numbers of a matrix's gradient, B times those of the mean loss."""
    return Grid(Grid.backward("float32", config.batch_size).exponent + _FINER, np.int64)


@dataclass(frozen=True)
class WeightSums:
    """Adds up the parts of some nodes; `nodes` is how many there are in the whole federation."""

    grid: Grid
    nodes: int
    kernels: Kernels

    def of(self, name: str, left: Float64, right: Float64) -> Int64:
        """Σ_n left_n ⊗ right_n over the rows."""
        sums, largest = self.kernels.outer_sums(left, right, self.grid.steps)
        limit = min(LARGEST_PART, 2**62 // max(1, self.nodes))
        if not largest < limit:
            raise GridError(
                f"the gradient of {name}: a node's part of {largest * self.grid.unit:.6g}, "
                f"expected less than {limit * self.grid.unit:.6g}; the training has diverged: "
                "lower the learning rate"
            )
        return sums


def initial_weights(
    shapes: Mapping[str, Shape], seed: int, config: Config, kernels: Kernels
) -> dict[str, Adam]:
    """Uniform in (−b, b), b = √(6 / (rows + columns)), as Xavier; each with its own Adam state."""
    made = {}
    for number, (name, (rows, columns)) in enumerate(ordered(shapes).items()):
        drawn = bits(seed, Purpose.DENSE_WEIGHT, np.arange(rows), number, 0, columns)
        unit = (drawn >> 8) * 2.0**-23 - 1.0
        bound = math.sqrt(6 / (rows + columns))
        made[name] = Adam((unit * bound).astype(np.float32).astype(config.dtype), kernels)
    return made


def gradient_unit(config: Config, batch_size: int) -> float:
    """What one step of a sum is in the gradient of the mean loss."""
    return gradient_grid(config).unit / batch_size


def weight_gradients(
    parts: Iterable[Mapping[str, Int64]], config: Config, batch_size: int
) -> dict[str, Gradient]:
    """Of the mean loss, from sums over some nodes each; weights have no regulariser."""
    total: Sums = {}
    for part in parts:
        for name, sums in part.items():
            total[name] = total[name] + sums if name in total else sums
    unit = gradient_unit(config, batch_size)
    return {
        name: Gradient(sums, np.full(len(sums), unit), np.zeros(len(sums)))
        for name, sums in total.items()
    }
