"""A client's copy of the dense weights Θ: all copies have the same bits, and step together.

What this client's nodes add to the gradients goes to the server as its part of a sum over
everybody, under masks that cancel; the sum comes back to all. One of them adds a veil, from a key
that the server does not have, and all take it away from the sum. (If everybody added it, n of them
would be over the sum, whose last bits are no secret where n is even.)
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.model.adam import STATE, Adam
from lpgcn.model.backbones import backbone_of
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.propagation import Backward
from lpgcn.model.weights import Weights, gradient_unit, initial_weights
from lpgcn.protocol.wire import reading


class SharedWeights:
    """The copy, with its Adam states."""

    def __init__(self, config: Config, seed: int, tables: dict[str, Adam] | None = None) -> None:
        """Without `tables` they are drawn, alike by everybody who knows the clients' seed."""
        self._config = config
        self._shapes = backbone_of(config).shared()
        self.tables = tables or initial_weights(self._shapes, seed, config, Plain())

    def weights(self) -> Weights:
        return Weights({name: adam.parameter for name, adam in self.tables.items()}, Plain())

    def part(self, passes: Iterable[Backward]) -> Int64:
        """What these nodes say, all numbers in a row."""
        total = np.zeros(sum(rows * columns for rows, columns in self._shapes.values()), np.int64)
        parts = self._named(total)
        for one in passes:
            for name, sums in one.weight_sums().items():
                parts[name] += sums
        return total

    def _named(self, numbers: Int64) -> dict[str, Int64]:
        """Numbers in a row as matrices, in the same memory."""
        sizes = [rows * columns for rows, columns in self._shapes.values()]
        parts = np.split(numbers, list(accumulate(sizes))[:-1])
        shapes = self._shapes.items()
        return {name: one.reshape(shape) for (name, shape), one in zip(shapes, parts, strict=True)}

    def read(self, field: bytes, veil: npt.NDArray[np.uint64]) -> dict[str, Int64]:
        """Sums over everybody, without what veils them."""
        reading.check_length(field, "sums", len(veil), reading.MASKED_BYTES)
        return self._named((np.frombuffer(field, dtype="<u8") - veil).view(np.int64))

    def step(self, sums: dict[str, Int64], rate: float, batch_size: int) -> None:
        tables, unit = self.tables, gradient_unit(self._config, batch_size)
        Adam.step_alike([tables[name] for name in sums], list(sums.values()), unit, rate)

    def state(self) -> list[bytes]:
        """For a checkpoint: what every Adam consists of, in the order of names."""
        states = (self.tables[name].state() for name in self._shapes)
        return [state[key].tobytes() for state in states for key in STATE]

    @classmethod
    def restored(cls, config: Config, content: list[bytes]) -> SharedWeights:
        """From the state in a checkpoint of this client's own."""
        return cls.read_copy(config, b"".join(content))

    @classmethod
    def read_copy(cls, config: Config, content: bytes) -> SharedWeights:
        """From a state, all of it in a row."""
        tables, kind = {}, np.dtype(config.dtype)
        shapes = backbone_of(config).shared().items()
        sizes = [
            8 * rows if key == "steps" else kind.itemsize * rows * columns
            for _, (rows, columns) in shapes
            for key in STATE
        ]
        parts = iter(reading.cut(content, sizes, "content"))
        for name, (rows, columns) in shapes:
            state = {
                key: np.frombuffer(next(parts), dtype=np.int64)
                if key == "steps"
                else np.frombuffer(next(parts), dtype=kind).reshape(rows, columns)
                for key in STATE
            }
            tables[name] = Adam.restored(state, Plain())
        return cls(config, 0, tables)
