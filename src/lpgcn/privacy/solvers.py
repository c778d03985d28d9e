"""Small linear programmes of the attacks, in NumPy."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lpgcn.privacy.compiled import descended

Float64 = npt.NDArray[np.float64]

_SWEEPS: Final = 400
_REWEIGHTED: Final = 60


def non_negative(dictionary: Float64, target: Float64, ridge: float = 1e-6) -> Float64:
    """argmin_{c ≥ 0} ‖Dᵀc − t‖² + ridge·tr·‖c‖², by coordinate descent; D has a row a candidate."""
    gram = dictionary @ dictionary.T
    mean = float(np.trace(gram)) / max(len(gram), 1)
    gram[np.diag_indices(len(gram))] += max(ridge * mean, 1e-300)
    found: Float64 = descended(gram, dictionary @ target, _SWEEPS)
    return found


def least_squares(dictionary: Float64, targets: Float64, ridge: float = 1e-3) -> Float64:
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
    if scale == 0:
        return np.zeros(len(dictionary))
    goal, epsilon = target / scale, 1.0
    found = np.linalg.lstsq(dictionary.T, goal, rcond=None)[0]
    for _ in range(_REWEIGHTED):
        weight = (found**2 + epsilon**2) ** 0.75
        weighted = dictionary * weight[:, None]
        system = dictionary.T @ weighted
        system[np.diag_indices(len(system))] += 1e-13 * float(np.trace(system)) / len(system)
        found = weighted @ np.linalg.solve(system, goal)
        epsilon = max(epsilon * 0.7, 1e-8)
    return np.asarray(found * scale, dtype=np.float64)
