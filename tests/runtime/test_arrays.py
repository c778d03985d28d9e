"""Arrays survive their bytes, however they lie in memory."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import load

from lpgcn.runtime.arrays import packed

TABLE = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize(
    "array",
    [TABLE, TABLE.T, TABLE[:, ::2], TABLE[::-1], TABLE[:0], np.array(7), np.arange(3) > 1],
    ids=["rows", "columns", "strided", "reversed", "empty", "scalar", "flags"],
)
def test_arrays_survive(array: np.ndarray) -> None:
    found = load(packed({"one": array, "other": TABLE}, {"about": "it"}))
    assert found["one"].dtype == array.dtype
    assert found["one"].shape == array.shape
    assert np.array_equal(found["one"], array)
    assert np.array_equal(found["other"], TABLE)
