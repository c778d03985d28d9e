"""A model that is computed from the data, not trained: the same steps give the same model."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from lpgcn.evaluation import Scorer
from lpgcn.methods.method import Losses
from lpgcn.methods.traffic import RoundTraffic
from lpgcn.runtime.engines.engine import Tables


class Computed(ABC):
    """A `Learner` whose steps are parts of one computation.

    A checkpoint only counts them: a model of gigabytes is neither written nor held twice, and one
    that is missing is computed again.
    """

    def __init__(self, steps: int) -> None:
        self.steps_per_epoch = steps
        self._wanted = self._done = 0

    @abstractmethod
    def begin(self) -> None:
        """Before the first part, and whenever it is to be computed anew."""

    @abstractmethod
    def part(self, number: int) -> None:
        """One after the other."""

    @abstractmethod
    def computed(self) -> Scorer:
        """After the last part."""

    def step(self, epoch: int, step: int, learning_rate: float) -> Losses:
        self._wanted = max(self._wanted, step + 1)
        self._catch_up()
        return Losses(0.0, 1)

    def _catch_up(self) -> None:
        while self._done < self._wanted:
            if self._done == 0:
                self.begin()
            self.part(self._done)
            self._done += 1

    def scorer(self) -> Scorer:
        self._wanted = self.steps_per_epoch
        self._catch_up()
        return self.computed()

    def state(self) -> Tables:
        return {"parts": np.array([self._wanted])}

    def restore(self, state: Tables) -> None:
        self._wanted = int(state["parts"][0])
        if self._wanted < self._done:
            self._done = 0

    def traffic(self) -> RoundTraffic | None:
        return None
