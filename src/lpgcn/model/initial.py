"""Initial embeddings, a row at a time or all at once, with the same bits."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from lpgcn.random import Purpose, bits


def embedding_rows(
    seed: int,
    purpose: Purpose,
    rows: npt.NDArray[np.int64],
    *,
    table_rows: int,
    dim: int,
    deviation: float | None,
    dtype: torch.dtype,
) -> Tensor:
    """Uniform in (−b, b): b = √(6 / (table_rows + dim)), as Xavier, or √3·deviation if given."""
    bound = math.sqrt(6 / (table_rows + dim)) if deviation is None else math.sqrt(3) * deviation
    # 24 bits fit a float32 mantissa, so both precisions start from the same numbers.
    unit = (bits(seed, purpose, rows, 0, 0, dim) >> 8) * 2.0**-23 - 1.0
    return torch.from_numpy((unit * bound).astype(np.float32)).to(dtype)
