"""Between NumPy, where parameters and their Adam state are, and torch, which differentiates.

The Adam is the one of our own models, with gradients that come from torch as they are. Products of
matrices have the bits that torch gives them: those of another number of threads or of another
processor may differ in the last place, the same machine gives the same again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.config import Config
from lpgcn.model.adam import Adam, Gradient, restore_states, states
from lpgcn.model.kernels import Floats
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, bits
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.machine import Machine

if TYPE_CHECKING:
    import torch


class Leaf(NamedTuple):
    """Some rows of a table, or all, where a graph of autograd begins."""

    tensor: torch.Tensor
    rows: Int64 | None


class Parameters:
    """Tables by name, each row with its Adam state."""

    def __init__(self, tables: Mapping[str, Floats], machine: Machine) -> None:
        self._adam = {name: Adam(table, machine.kernels) for name, table in tables.items()}
        # Rows outside a leaf have a gradient of zero; these tables are zero between steps.
        self._gradients: dict[str, Floats] = {}

    def __getitem__(self, name: str) -> Floats:
        return self._adam[name].parameter

    def leaves(self, rows: Mapping[str, Int64 | None]) -> dict[str, Leaf]:
        """Copies of these rows of these tables; of all rows for None. What torch allocates is
        aligned alike every time, on which the bits of its products may depend."""
        import torch

        return {
            name: Leaf(
                torch.tensor(self[name] if chosen is None else self[name][chosen]).requires_grad_(),
                chosen,
            )
            for name, chosen in rows.items()
        }

    def step(
        self,
        loss: torch.Tensor,
        leaves: Mapping[str, Leaf],
        learning_rate: float,
        local: Collection[str] = (),
    ) -> None:
        """Adam with the gradients of a loss by its leaves.

        All rows of a table step; of a `local` one, whose rows are clients' own, those of its leaf.
        """
        for (name, leaf), gradient in zip(leaves.items(), gradients(loss, leaves), strict=True):
            self.step_with(name, gradient, leaf.rows, learning_rate, own=name in local)

    def step_with(
        self, name: str, gradient: Floats, rows: Int64 | None, learning_rate: float, *, own: bool
    ) -> None:
        """With a gradient for some rows, of all rows or of these alone."""
        adam = self._adam[name]
        whole = gradient
        if rows is not None:
            whole = self._gradients.setdefault(name, np.zeros_like(adam.parameter))
            whole[rows] = gradient
        count = len(adam.parameter)
        given = Gradient(whole, np.ones(count), np.zeros(count))
        adam.step(given, learning_rate, rows if own else None)
        if rows is not None:
            whole[rows] = 0

    def state(self) -> Tables:
        return states(self._adam)

    def restore(self, state: Tables) -> None:
        restore_states(self._adam, state)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Torch has so many threads, and then as many as before.

    Threads that spin take thirty times the processor's time where other jobs run beside. Torch asks
    once, when it is imported, so that `OMP_WAIT_POLICY` stays set if the process had none.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def gradients(loss: torch.Tensor, leaves: Mapping[str, Leaf]) -> list[Floats]:
    """Of each leaf in turn."""
    from torch.autograd import grad

    return [found.numpy() for found in grad(loss, [leaf.tensor for leaf in leaves.values()])]


def weighted_sums(table: torch.Tensor, segments: Ragged, weights: Float64) -> torch.Tensor:
    """Σ weight · table[entry] over the entries of each segment."""
    import torch
    from torch.nn.functional import embedding_bag

    return embedding_bag(
        torch.from_numpy(segments.values),
        table,
        torch.from_numpy(segments.offsets[:-1]),
        mode="sum",
        per_sample_weights=torch.from_numpy(weights).to(table.dtype),
    )


def xavier(config: Config, purpose: Purpose, shape: tuple[int, int], matrix: int = 0) -> Floats:
    """Uniform in (−b, b), b = √(6 / (rows + columns)) (Glorot and Bengio, 2010)."""
    unit = (bits(config.seed, purpose, np.arange(shape[0]), matrix, 0, shape[1]) >> 8) * 2.0**-23
    return ((unit - 1.0) * math.sqrt(6 / sum(shape))).astype(np.float32).astype(config.dtype)
