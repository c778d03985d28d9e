"""Arrays by name, as the bytes of a safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save


def packed(
    arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> bytes:
    # safetensors takes the memory behind any array for that of a C-ordered one.
    ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(ordered, metadata=dict(metadata) if metadata else None)
