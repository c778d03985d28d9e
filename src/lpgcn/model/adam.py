"""Adam on the rows that one owner holds (Kingma & Ba, 2015), dense: all that are there step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Float64, Int64
from lpgcn.model.kernels import BETA1, BETA2, Floats, Integers, Kernels

STATE: Final = ("parameter", "mean", "square", "steps", "kept")
"""What an Adam consists of, each with one entry for every row."""


@dataclass(frozen=True)
class Gradient:
    """∂Loss/∂θ = factor·integers + decay·θ: what arrived on the grid, and the regulariser."""

    integers: Integers | Floats
    """Numbers of any kind where autograd makes them."""
    factor: Float64
    """For each row: the step of the grid, the scaling of the node, and 1/B."""
    decay: Float64
    """For each row n·λ/B, of a node in n samples."""


class Adam:
    """θ ← θ − γ·m̂ / (√v̂ + ε), with m and v the decaying means of the gradient and its square.

    Every row has its own count of steps t, and so the bits that it would have alone, whenever its
    owner joined. `Kernels.adam` has the one order of its operations.
    """

    def __init__(self, parameter: Floats, kernels: Kernels) -> None:
        self.parameter = np.ascontiguousarray(parameter)
        self._mean, self._square = np.zeros_like(parameter), np.zeros_like(parameter)
        self._steps = np.zeros(len(parameter), dtype=np.int64)
        self._even = True
        # None while they are the present ones: a copy is made when a step is about to change them.
        self._kept: Floats | None = None
        self._kernels = kernels

    @classmethod
    def restored(cls, state: Mapping[str, npt.NDArray[Any]], kernels: Kernels) -> Adam:
        """With the rows, the precision and all else of a `state`."""
        made = cls(state["parameter"], kernels)
        made.restore(state)
        return made

    def step(self, gradient: Gradient, learning_rate: float, rows: Int64 | None = None) -> None:
        """Of all rows, or of some, ascending; the gradient has all rows of the table either way."""
        if self._kept is None:
            self._kept = self.parameter.copy()
        every = rows is None or len(rows) == len(self._steps)
        if every and self._even and len(self._steps):
            tables = (self.parameter, self._mean, self._square)
            self._run(tables, gradient, learning_rate, int(self._steps[0]) + 1)
            self._steps += 1
            return
        stepped = np.arange(len(self._steps)) if rows is None else rows
        counts = self._steps[stepped]
        for count in np.unique(counts).tolist():
            self._step_some(gradient, learning_rate, stepped[counts == count], count + 1)
        self._even = _all_equal(self._steps)

    @staticmethod
    def step_alike(
        tables: Sequence[Adam], integers: Sequence[Integers], factor: float, learning_rate: float
    ) -> None:
        """Of tables whose numbers have one factor, no decay and one count of steps: as one row of
        numbers, which for a few small tables takes half the time of one after the other."""
        (count,) = {int(one) for adam in tables for one in adam._steps[:1]}
        assert all(adam._even for adam in tables), "all rows have made the same steps"
        parts = [(adam.parameter, adam._mean, adam._square) for adam in tables]
        for adam in tables:
            if adam._kept is None:
                adam._kept = adam.parameter.copy()
        joined = tuple(_in_a_row(part) for part in zip(*parts, strict=True))
        gradient = Gradient(_in_a_row(integers), np.array([factor]), np.zeros(1))
        tables[0]._run(joined, gradient, learning_rate, count + 1)
        ends = np.cumsum([adam.parameter.size for adam in tables])[:-1]
        for row, whole in zip(joined, zip(*parts, strict=True), strict=True):
            for table, part in zip(whole, np.split(row[0], ends), strict=True):
                table[:] = part.reshape(table.shape)
        for adam in tables:
            adam._steps += 1

    def _step_some(self, gradient: Gradient, learning_rate: float, rows: Int64, count: int) -> None:
        """Rows with the same count, gathered and put back."""
        tables = (self.parameter, self._mean, self._square)
        gathered = tuple(table.take(rows, axis=0) for table in tables)
        chosen = Gradient(
            gradient.integers.take(rows, axis=0), gradient.factor[rows], gradient.decay[rows]
        )
        self._run(gathered, chosen, learning_rate, count)
        for table, part in zip(tables, gathered, strict=True):
            table[rows] = part
        self._steps[rows] = count

    def _run(
        self, tables: tuple[Floats, ...], gradient: Gradient, learning_rate: float, count: int
    ) -> None:
        parameter, mean, square = tables
        self._kernels.adam(
            parameter,
            mean,
            square,
            gradient.integers,
            gradient.factor,
            gradient.decay,
            learning_rate / (1 - _power(BETA1, count)),
            1 / math.sqrt(1 - _power(BETA2, count)),
        )

    def keep(self, rows: Int64 | None = None) -> None:
        """The present parameters, of all rows or of some, are the best so far."""
        if rows is None:
            self._kept = None
        elif self._kept is not None:
            self._kept[rows] = self.parameter[rows]

    def go_back(self, rows: Int64 | None = None) -> None:
        """To the parameters that were kept last, the initial ones before; m, v and t stay."""
        if self._kept is None:
            return
        if rows is None:
            self.parameter, self._kept = self._kept, None
        else:
            self.parameter[rows] = self._kept[rows]

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything that the next step depends on and what was kept, as copies, row by row."""
        kept = self.parameter if self._kept is None else self._kept
        return {
            "parameter": self.parameter.copy(),
            "mean": self._mean.copy(),
            "square": self._square.copy(),
            "steps": self._steps.copy(),
            "kept": kept.copy(),
        }

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        kind = self.parameter.dtype
        self.parameter, self._mean, self._square, self._kept = (
            np.array(state[name], dtype=kind, order="C")
            for name in ("parameter", "mean", "square", "kept")
        )
        self._steps = np.array(state["steps"], dtype=np.int64)
        self._even = _all_equal(self._steps)


def _in_a_row(tables: Sequence[Any]) -> Any:
    """All their numbers."""
    return np.concatenate([table.reshape(-1) for table in tables])[None]


def states(tables: Mapping[str, Adam]) -> dict[str, npt.NDArray[Any]]:
    """Those of several tables, each under the table's name."""
    return {
        f"{name}.{key}": value
        for name, adam in tables.items()
        for key, value in adam.state().items()
    }


def restore_states(tables: Mapping[str, Adam], state: Mapping[str, npt.NDArray[Any]]) -> None:
    """What `states` gave."""
    for name, adam in tables.items():
        adam.restore({key: state[f"{name}.{key}"] for key in STATE})


def _all_equal(counts: Int64) -> bool:
    return bool((counts == counts[:1]).all())


def _power(base: float, exponent: int) -> float:
    """base^exponent by squaring: every C library has its own last bits of `pow`."""
    result = 1.0
    while exponent:
        if exponent & 1:
            result *= base
        base, exponent = base * base, exponent >> 1
    return result
