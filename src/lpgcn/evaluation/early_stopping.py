"""Stop when one value, validation Recall@20, has not risen for a number of epochs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from lpgcn.evaluation.errors import EvaluationError


@dataclass(frozen=True)
class EarlyStopping:
    """The best value so far and when it was seen.

    The fields are the whole state: `EarlyStopping(**dataclasses.asdict(stopping))` goes on exactly
    where `stopping` was, also through JSON.
    """

    patience: int
    """Epochs, not evaluations: evaluating less often does not lengthen the wait."""
    epoch: int = 0
    best_epoch: int = 0
    best_value: float | None = None

    def __post_init__(self) -> None:
        if self.patience < 1:
            raise EvaluationError(
                f"found a patience of {self.patience} epochs, expected at least 1"
            )

    def after(self, epoch: int, value: float) -> EarlyStopping:
        """The state after `value` was measured at the end of `epoch`; epochs count from 1."""
        if epoch <= self.epoch:
            raise EvaluationError(f"found epoch {epoch} after {self.epoch}, expected a later one")
        if value > (-math.inf if self.best_value is None else self.best_value):
            return replace(self, epoch=epoch, best_epoch=epoch, best_value=value)
        return replace(self, epoch=epoch)

    @property
    def improved(self) -> bool:
        """Whether the last value is the best one: the parameters are worth keeping."""
        return self.best_value is not None and self.best_epoch == self.epoch

    @property
    def exhausted(self) -> bool:
        """Whether `patience` epochs have passed since the best one: training is over."""
        return self.epoch - self.best_epoch >= self.patience
