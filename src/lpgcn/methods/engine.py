"""A learner as an engine: what the training loop drives."""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Final

import numpy as np
from safetensors.numpy import load

from lpgcn.checkpoints import Checkpoints, InMemory
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import Evaluation, Scorer, evaluate
from lpgcn.methods.method import Learner, MakeLearner
from lpgcn.runtime.arrays import packed
from lpgcn.runtime.engines.engine import (
    Inspector,
    Part,
    RunInterruptedError,
    Tables,
    masked_items,
)
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.traffic import TrafficSummary

_KEPT: Final = "kept:"
_COUNTS: Final = "counts:"
"""The sum of losses and the number of samples since the last report, and of steps in all."""


class Fitting:
    """An `Engine` for any `Learner`."""

    def __init__(
        self,
        learner: MakeLearner,
        split: Split,
        config: Config,
        machine: Machine,
        *,
        checkpoints: Checkpoints | None = None,
        within: AbstractContextManager[None] | None = None,
    ) -> None:
        """The learner is made, and learns, `within` this."""
        self._make, self._split, self._config = learner, split, config
        self._ranker = machine.ranker
        self._checkpoints = InMemory() if checkpoints is None else checkpoints
        with ExitStack() as stack:
            stack.enter_context(within or nullcontext())
            self._learner: Learner = learner()
            self._within = stack.pop_all()
        self._kept: Tables = {}
        self._scorer: Scorer | None = None
        self._counts = np.zeros(3)

    def begin(self) -> None:
        """There is nobody to agree with."""

    def approach(self, epoch: int, step: int) -> None:
        """The members do not change."""

    @property
    def steps_per_epoch(self) -> int:
        return self._learner.steps_per_epoch

    def step(self, epoch: int, step: int, learning_rate: float) -> None:
        losses = self._learner.step(epoch, step, learning_rate)
        self._counts += (losses.total, losses.samples, 1)
        self._scorer = None

    def take_loss(self) -> float:
        total, samples, steps = self._counts.tolist()
        self._counts = np.array([0.0, 0.0, steps])
        return total / max(1.0, samples)

    def measure(self, part: Part) -> Evaluation:
        masked = masked_items(self._split, self._config, part).by_user
        heldout = self._split.parts[part].by_user
        return evaluate(self.scorer(), masked, heldout, self._config.cutoffs, self._ranker)

    def keep(self) -> None:
        self._kept = self._learner.state()

    def go_back(self) -> None:
        if self._kept:
            self._learner.restore(self._kept)
            self._scorer = None

    def checkpoint(self, number: int, epoch: int, step: int) -> None:
        arrays = {
            **self._learner.state(),
            **{f"{_KEPT}{name}": table for name, table in self._kept.items()},
            _COUNTS: self._counts,
        }
        self._checkpoints.write(number, packed(arrays))

    def resume(self, number: int) -> bool:
        self._scorer = None
        if number == 0:
            self._learner, self._kept, self._counts = self._make(), {}, np.zeros(3)
            return False
        found = load(self._checkpoints.read(number))
        self._counts = found.pop(_COUNTS)
        self._kept = {
            name.removeprefix(_KEPT): found.pop(name)
            for name in list(found)
            if name.startswith(_KEPT)
        }
        self._learner.restore(found)
        return False

    def recover(self, error: RunInterruptedError) -> list[int]:
        raise error

    def renew(self) -> bool:
        return False

    def traffic(self) -> TrafficSummary | None:
        traffic = self._learner.traffic()
        return None if traffic is None else traffic.summary(int(self._counts[2]))

    def inspector(self) -> Inspector:
        return self

    def scorer(self) -> Scorer:
        if self._scorer is None:
            self._scorer = self._learner.scorer()
        return self._scorer

    def state(self) -> Tables:
        return self._learner.state()

    def close(self) -> None:
        """What the learner was made within ends."""
        self._within.close()
