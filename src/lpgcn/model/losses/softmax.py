"""Softmax against pools of negatives, on cosines (sampled softmax; Wu et al., TOIS 2024).

    Loss = Σ_{(u,i)} −ln x_ui / (x_ui + z_u)     z_u = w Σ_j x_uj     x_ui = exp(cos(e_u, e_i) / τ)

with (u, i) over all interactions and j over a pool that many users share, but for the user's own
items. The derivatives by the cosines, and by the vectors, of length ‖e‖ and direction ê, are

    s_ui = −z_u·f_ui/τ     s_uj = w·x_uj·Σ_i f_ui/τ     f_ui = 1 / (x_ui + z_u)
    G_u = Σ_i s_ui ê_i + Σ_j s_uj ê_j     G_i = Σ_u s_ui ê_u     ∂Loss/∂e = (G − (G·ê)ê) / ‖e‖

so that only directions are told to others, and what comes back for an item is a sum over users.

Directions are rounded to whole numbers q of length S, slopes to multiples of 2^-16. For float32, S
is so small that |q·q'| ≤ 2^24 by Cauchy and Schwarz: every partial sum of it is a whole number that
a float32 holds, and a matrix product is exact in any order, by any BLAS. So are, in float64, the
sums of x, of which each is a multiple of 2^-40, and the products of slopes with directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from lpgcn.array_types import Float64, Int64
from lpgcn.config import Config
from lpgcn.model.backbones import backbone_of
from lpgcn.model.grid import Grid, GridError
from lpgcn.model.kernels import USERS_AT_ONCE, Floats, Kernels, Lookup, Pooled
from lpgcn.model.losses.exponential import exponential
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.ragged import Ragged

SLOPES: Final = Grid(16, np.int64)
"""The grid of s, and of sums of s·q."""
_EXACT: Final = 2.0**53
_DIGIT_BITS: Final = 13


@dataclass(frozen=True)
class Directions:
    """Where some vectors point, as whole numbers, and how long the vectors are."""

    rows: Floats
    lengths: Float64


@dataclass(frozen=True)
class PoolGradients:
    """What some users' positives and their pool say."""

    coefficient: Floats
    """s_ui of every positive."""
    loss: Float64
    """Of every positive."""
    users: Int64
    """Σ_j s_uj q_j of every user, in steps of the slopes."""
    answers: Int64
    """Σ_u s_uj q_u for every item of the pool that is answered."""


@dataclass(frozen=True)
class Softmax:
    """The loss with its settings."""

    temperature: float
    weight: float
    """w: how many negatives each one of the pool stands for."""
    dtype: str
    dim: int

    @classmethod
    def of(cls, config: Config) -> Softmax:
        dim = backbone_of(config).final_dim
        return cls(config.temperature, config.negative_weight, config.dtype, dim)

    @property
    def number(self) -> np.dtype[np.signedinteger]:
        """One number of a direction as it travels."""
        return np.dtype("<i2" if self.dtype == "float32" else "<i4")

    @property
    def _largest(self) -> int:
        """No direction is longer, rounded as it is."""
        return 1 << (12 if self.dtype == "float32" else 16)

    @property
    def radius(self) -> int:
        """S. Rounding makes a vector longer by up to ½√d."""
        return self._largest - math.ceil(math.sqrt(self.dim) / 2)

    def directions(self, vectors: Floats, kernels: Kernels) -> Directions:
        """q = rint(S·e/‖e‖); what has no length has no direction."""
        own = np.arange(len(vectors))
        lengths = np.sqrt(kernels.dots(vectors, vectors, own, own))
        factor = _over(np.full(len(vectors), float(self.radius)), lengths)
        whole, _ = kernels.rounded(vectors, factor, np.int32)
        return Directions(whole.astype(self.dtype), lengths)

    def are_directions(self, rows: Floats) -> bool:
        """Whether no row is longer than a direction can be."""
        wide = rows.astype(np.float64)
        return bool((np.einsum("ij,ij->i", wide, wide) <= self._largest**2).all())

    @property
    def _lookup(self) -> Lookup:
        """e^(−n/(S²τ))."""
        scale = self.radius * self.radius * self.temperature
        return _lookup(self._largest, scale)

    def gradients(
        self, positives: Ragged, users: Floats, items: Floats, pool: Floats, own: Ragged,
        answered: int, kernels: Kernels,
    ) -> PoolGradients:  # fmt: skip
        """Of users who share a pool. All vectors are directions; positives are rows of `items`,
        `own` for each user the rows of the pool that are its items; the first `answered` rows of
        the pool are answered."""
        rows, slope = positives.rows, SLOPES.steps / self.temperature
        products = kernels.dots(users, items, rows, positives.values).astype(self.dtype)
        positive = kernels.exponentials(products[:, None], self._lookup)[:, 0]
        settings = Pooled(self._lookup, self.weight, slope, answered)
        found = kernels.compare(users, pool, own, positives.offsets, positive, settings)
        slopes = found.z[rows] * found.f * -slope
        self._check(np.bincount(rows, -slopes, len(users)).astype(np.float64, copy=False))
        coefficient = (np.rint(slopes) * SLOPES.unit).astype(self.dtype)
        return PoolGradients(coefficient, -np.log(positive * found.f), found.sums, found.answers)

    def _check(self, slopes: Float64) -> None:
        """The slopes of a user's pool add up to those of its positives, and so many users at a time
        are added up in float64: no partial sum is larger than that of those who have most."""
        most = np.sort(slopes)[-USERS_AT_ONCE:]
        largest = 2 * float(most.sum()) * self._largest
        if not largest < _EXACT:
            raise GridError(
                f"the slopes of a pool may add up to {largest * SLOPES.unit / self._largest:.6g}, "
                f"expected less than {_EXACT * SLOPES.unit / self._largest:.6g}; raise the "
                "temperature, or choose --dtype float32, whose directions are coarser"
            )

    def tangent_gradient(
        self,
        sums: Int64 | Float64,
        in_samples: Float64,
        at: Directions,
        grid: Grid,
        kernels: Kernels,
    ) -> LossGradient:
        """(G − (G·ê)ê) / ‖e‖ of all nodes of a kind, from the sums of slopes times directions."""
        unit = np.full(len(sums), grid.steps / (SLOPES.steps * self.radius))
        numbers, largest = kernels.tangents(
            sums.astype(np.float64), at.rows, _over(unit, at.lengths)
        )
        grid.check_sums(largest, 1, "the gradient of the loss, last layer")
        return LossGradient(np.arange(len(sums)), numbers, in_samples)


@lru_cache(maxsize=2)
def _lookup(largest: int, scale: float) -> Lookup:
    """e^(−n/scale) for each digit of n up to 2·largest², the first for the lowest.

    It is read-only and kept: all clients of a host look it up.
    """
    digits = -(-2 * largest.bit_length() // _DIGIT_BITS)
    numbers = np.arange(1 << _DIGIT_BITS, dtype=np.float64)
    powers = [numbers * (-(2.0 ** (_DIGIT_BITS * k)) / scale) for k in range(digits)]
    tables = exponential(np.stack(powers))
    tables.flags.writeable = False
    return Lookup(float(largest**2), tables)


def columns(positives: Ragged, pool: Int64, n_items: int) -> Ragged:
    """For each user the rows of a pool that are its own items."""
    row = np.full(n_items, -1)
    row[pool] = np.arange(len(pool))
    found = row[positives.values]
    return Ragged(positives.offsets, found).where(found >= 0)


def _over(numbers: Float64, by: Float64) -> Float64:
    """Quotients, and 0 where there is nothing to divide by."""
    return np.divide(numbers, by, out=np.zeros_like(numbers), where=by > 0)
