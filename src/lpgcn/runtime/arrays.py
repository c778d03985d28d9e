"""Arrays by name, as a safetensors file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

_KINDS: Final = {"f": "F", "i": "I", "u": "U"}
_ALIGNMENT: Final = 8


def packed(
    arrays: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str] | None = None
) -> bytes:
    # safetensors takes the memory behind any array for that of a C-ordered one.
    ordered = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    return save(ordered, metadata=dict(metadata) if metadata else None)


def pieces(arrays: Mapping[str, npt.NDArray[Any]]) -> Iterator[bytes | memoryview]:
    """The file of floats and integers piece by piece, where `packed` would hold an array of
    gigabytes three times: the length of the header, the header, and the arrays as they are."""
    header, end = {}, 0
    # Wide numbers first, so that all begin where such numbers may.
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    for name in order:
        array, begin = arrays[name], end
        end += array.nbytes
        kind = f"{_KINDS[array.dtype.kind]}{8 * array.itemsize}"
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [begin, end]}
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % _ALIGNMENT)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in order:
        yield np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data
