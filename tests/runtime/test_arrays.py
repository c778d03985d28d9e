"""Arrays survive their bytes, however they lie in memory."""

from __future__ import annotations

import numpy as np
import pytest
from safetensors.numpy import load

from lpgcn.runtime.arrays import packed, pieces

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


def test_pieces_are_the_same_file() -> None:
    arrays = {
        "small": np.arange(3, dtype=np.uint8),
        "turned": TABLE.T,
        "wide": np.arange(5),
        "none": TABLE[:0].astype(np.float64),
    }
    found = load(b"".join(pieces(arrays)))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)
