"""What the training loop asks of a way to run: one interface for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from lpgcn.config import Config
from lpgcn.data import Interactions, Split
from lpgcn.evaluation import Evaluation
from lpgcn.model.kernels import Floats
from lpgcn.runtime.traffic import TrafficSummary

Part = Literal["valid", "test"]
Tables = dict[str, npt.NDArray[Any]]
"""Parameters or optimiser state, by name."""


@dataclass(frozen=True)
class Vectors:
    """The final embeddings e_u and e_i: all that a recommendation needs."""

    users: Floats
    items: Floats


class Engine(Protocol):
    """A model in training. Same configuration, same data: the same bits from every engine."""

    @property
    def steps_per_epoch(self) -> int: ...

    def step(self, epoch: int, step: int, learning_rate: float) -> None: ...

    def take_loss(self) -> float:
        """The mean loss of a sample since the last call, an epoch ago."""
        ...

    def measure(self, part: Part) -> Evaluation: ...

    def vectors(self) -> Vectors:
        """The final vectors of the last measurement, for the saved model."""
        ...

    def parameters(self) -> Tables: ...

    def set_parameters(self, parameters: Mapping[str, npt.NDArray[Any]]) -> None: ...

    def state(self) -> Tables: ...

    def restore(self, state: Mapping[str, npt.NDArray[Any]]) -> None: ...

    def traffic(self) -> TrafficSummary | None:
        """What was sent, where there are parties that send."""
        ...

    def close(self) -> None:
        """End whatever the engine started."""
        ...


def masked_items(split: Split, config: Config, part: Part) -> Interactions:
    """The items that a ranking leaves out: the training items, on request the validation items."""
    if part == "valid" or config.mask == "train":
        return split.train
    return Interactions.from_pairs(
        np.concatenate((split.train.users, split.valid.users)),
        np.concatenate((split.train.items, split.valid.items)),
        split.n_users,
        split.n_items,
    )
