"""Systems of linear equations that attacks solve: by non-negative, small or few coefficients."""

from __future__ import annotations

from typing import Final

import numpy as np

from lpgcn.array_types import Float64
from lpgcn.privacy.compiled import descended

_SWEEPS: Final = 1000
_BETWEEN: Final = 8
"""A sweep over all candidates, then so many less one over those that are not zero."""
_REWEIGHTED: Final = 60
_PRUNED: Final = 15
_KEPT: Final = 4
"""After so many rounds only so many coefficients for each equation go on, the largest."""


def non_negative(dictionary: Float64, target: Float64, ridge: float = 1e-6) -> Float64:
    """argmin_{c ≥ 0} ‖Dᵀc − t‖² + ridge·‖D‖²/n·‖c‖², by coordinate descent; D has a row for each of
    n candidates. With more equations than candidates, ‖Dᵀc − t‖² = ‖Rc − Qᵀt‖² + const, Dᵀ = QR."""
    if not len(dictionary):
        return np.zeros(0)
    mean = float(np.vdot(dictionary, dictionary)) / len(dictionary)
    if dictionary.shape[1] > len(dictionary):
        orthogonal, triangle = np.linalg.qr(dictionary.T)
        dictionary, target = triangle.T, orthogonal.T @ target
    found: Float64 = descended(
        np.ascontiguousarray(dictionary), target, max(ridge * mean, 1e-300), _SWEEPS, _BETWEEN
    )
    return found


def least_squares(dictionary: Float64, targets: Float64, ridge: float) -> Float64:
    """argmin_C ‖CD − T‖² + ridge·tr·‖C‖², a row of C for each row of T."""
    gram = dictionary @ dictionary.T
    gram[np.diag_indices(len(gram))] += ridge * float(np.trace(gram)) / max(len(gram), 1)
    return np.asarray(np.linalg.solve(gram, dictionary @ targets.T).T, dtype=np.float64)


def sparsest(dictionary: Float64, target: Float64) -> Float64:
    """argmin ‖c‖₁ with Dᵀc = t, by iteratively reweighted least squares (Daubechies et al. 2010)
    with weights that tend to those of ‖c‖_½, which finds sparser ones.

        c ← W D (Dᵀ W D)⁻¹ t,  W = diag((c² + ε²)^¾),  ε falling
    """
    scale = float(np.abs(target).max())
    full = np.zeros(len(dictionary))
    if scale == 0:
        return full
    goal, epsilon, kept = target / scale, 1.0, np.arange(len(dictionary))
    found = np.linalg.lstsq(dictionary.T, goal, rcond=None)[0]
    for number in range(_REWEIGHTED):
        if number == _PRUNED:
            largest = np.argsort(-np.abs(found), kind="stable")[: _KEPT * len(target)]
            dictionary, found, kept = dictionary[largest], found[largest], kept[largest]
        weight = (found**2 + epsilon**2) ** 0.75
        weighted = dictionary * weight[:, None]
        system = dictionary.T @ weighted
        system[np.diag_indices(len(system))] += 1e-13 * float(np.trace(system)) / len(system)
        found = weighted @ np.linalg.solve(system, goal)
        epsilon = max(epsilon * 0.7, 1e-8)
    full[kept] = found * scale
    return full
