"""EASE^R: a linear map from all items to each, which never sees the item itself (Steck, 2019).

    min_B ‖X − XB‖² + λ‖B‖²  with diag B = 0:      P = (XᵀX + λI)^-1,   B = I − P·diag(1 / diag P)

    y_ui = Σ_{j ∈ I_u} B_ji

The inverse is made in place, of the lower triangle only, by sweeping blocks of the diagonal (the
sweep operator of Goodnight, 1979). To sweep the block k of a symmetric matrix A, with D = A_kk^-1,

    A_ij ← A_ij − A_ik D A_kj        A_ik ← A_ik D        A_kk ← −D

and when all are swept, A is minus its inverse. That is n³ operations, almost all in products of
matrices, and as memory the matrix and a few panels of it. There is nothing random in it.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
import numpy as np
from msgspec import Meta

from lpgcn.config import Config
from lpgcn.data import Interactions, Split
from lpgcn.evaluation.scorers import DenseSimilarity
from lpgcn.methods.computed import Computed
from lpgcn.methods.method import IN_ONE_GO, Method, MethodError
from lpgcn.model.kernels import Floats
from lpgcn.model.kernels.threads import Threads
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.memory import available_memory

BLOCK: Final = 1 << 9
_PANELS: Final = 4
"""Of BLOCK columns: A_ik and A_ik·D, and both as products take them."""


class NotEnoughMemoryError(MethodError):
    """A matrix that this machine has no room for."""


class EaseOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    regularisation: Annotated[float, Meta(gt=0, description="λ, on every entry of B.")] = 200.0


class Ease(Computed):
    """See `Learner`: a part sweeps one block."""

    def __init__(
        self, train: Interactions, regularisation: float, dtype: str, threads: Threads
    ) -> None:
        check_memory(train.n_items, np.dtype(dtype).itemsize, available_memory())
        self._bounds = [*range(0, train.n_items, BLOCK), train.n_items]
        super().__init__(len(self._bounds) - 1)
        self._train, self._threads = train, threads
        self._regularisation, self._dtype = regularisation, np.dtype(dtype)
        self._matrix: Floats = np.empty((0, 0), dtype=dtype)

    def begin(self) -> None:
        from lpgcn.methods.co_occurrence import fill_lower

        n, items_of, users_of = self._train.n_items, self._train.by_user, self._train.by_item
        # What there was is given back first.
        self._matrix = np.empty((0, 0), dtype=self._dtype)
        self._matrix = np.zeros((n, n), dtype=self._dtype)
        self._threads.each(
            lambda first, last: fill_lower(
                first, last, users_of.offsets, users_of.values, items_of.offsets, items_of.values,
                self._matrix,
            ),
            self._threads.even_bounds(n, 16),
        )  # fmt: skip
        self._matrix.reshape(-1)[:: n + 1] += self._regularisation

    def part(self, number: int) -> None:
        sweep(self._matrix, self._bounds, number, self._threads)
        if number == self.steps_per_epoch - 1:
            to_weights(self._matrix, self._bounds)

    def computed(self) -> DenseSimilarity:
        return DenseSimilarity(self._train.by_user, self._matrix)


def check_memory(n_items: int, itemsize: int, available: int | None) -> None:
    needed = (n_items + _PANELS * BLOCK) * n_items * itemsize
    if available is not None and needed > available:
        advice = "choose --dtype float32, which needs half of it, or " if itemsize == 8 else ""
        raise NotEnoughMemoryError(
            f"EASE of {n_items:,} items needs {needed / 1e9:.1f} GB of memory for their matrix, "
            f"found {available / 1e9:.1f} GB available; {advice}leave rare items out of the data "
            "(--k-core), or take a larger machine"
        )


def sweep(matrix: Floats, bounds: list[int], number: int, threads: Threads) -> None:
    """The block between two bounds, in the lower triangle; what is far above the diagonal is
    neither looked at nor changed."""
    from lpgcn.methods.products import subtract_product

    first, last = bounds[number : number + 2]
    pivot = _symmetric(matrix[first:last, first:last].astype(np.float64))
    inverse = np.linalg.inv(pivot).astype(matrix.dtype)
    panel = np.zeros((len(matrix), last - first), dtype=matrix.dtype)
    panel[:first], panel[last:] = matrix[first:last, :first].T, matrix[last:, first:last]
    mapped = np.zeros_like(panel)
    subtract_product(mapped, panel, -inverse, threads)
    subtract_product(matrix, mapped, panel, threads, lower=True)
    matrix[first:last, :first], matrix[last:, first:last] = mapped[:first].T, mapped[last:]
    matrix[first:last, first:last] = -inverse


def _symmetric(block: Any) -> Any:
    """From its lower triangle."""
    lower = np.tril(block)
    return lower + np.tril(block, -1).T


def to_weights(matrix: Floats, bounds: list[int]) -> None:
    """From −P below the diagonal to B: B_ij = −P_ij / P_jj, and 0 on it."""
    diagonal = -np.diagonal(matrix).copy()
    for row in range(len(bounds) - 1):
        begin, end = bounds[row : row + 2]
        matrix[begin:end, begin:end] = _symmetric(matrix[begin:end, begin:end])
        matrix[:begin, begin:end] = matrix[begin:end, :begin].T
    for row in range(len(bounds) - 1):
        matrix[bounds[row] : bounds[row + 1]] /= diagonal
    np.fill_diagonal(matrix, 0)


def fit(split: Split, config: Config, options: EaseOptions, machine: Machine) -> Ease:
    return Ease(split.train, options.regularisation, config.dtype, machine.threads)


EASE: Final = Method(
    name="ease",
    summary="EASE^R, a linear auto-encoder in closed form (Steck, 2019)",
    fit=fit,
    protects="Nothing: a data centre has all interactions. Its model is a function of how many "
    "users have two items in common, and gives these numbers away.",
    options=EaseOptions,
    grid={"regularisation": (50.0, 100.0, 250.0, 500.0, 1000.0)},
    uses=frozenset({"dtype"}),
    defaults={**IN_ONE_GO, "dtype": "float64"},
)
