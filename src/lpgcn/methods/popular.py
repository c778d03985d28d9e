"""Most popular: y_ui = |U_i|, the same for everybody. The floor under every comparison."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import Vectors
from lpgcn.methods.method import IN_ONE_GO, Losses, Method
from lpgcn.methods.traffic import RoundTraffic
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.machine import Machine


class Popular:
    """See `Learner`: one step that counts."""

    steps_per_epoch = 1

    def __init__(self, split: Split) -> None:
        self._n_users = split.n_users
        self._degrees = split.train.item_degrees.astype(np.float64)

    def step(self, epoch: int, step: int, learning_rate: float) -> Losses:
        return Losses(0.0, self._n_users)

    def scorer(self) -> Vectors:
        return Vectors(np.ones((self._n_users, 1)), self._degrees[:, None])

    def state(self) -> Tables:
        return {"degrees": self._degrees.copy()}

    def restore(self, state: Tables) -> None:
        self._degrees = np.array(state["degrees"])

    def traffic(self) -> RoundTraffic | None:
        return None


def fit(split: Split, config: Config, options: Any, machine: Machine) -> Popular:
    return Popular(split)


POPULAR: Final = Method(
    name="popular",
    summary="most popular items, the same for everybody",
    fit=fit,
    protects="Nothing: whoever counts has seen all interactions. (A secure sum of one bit an item "
    "and client would do the same and hide them all.)",
    defaults=IN_ONE_GO,
)
