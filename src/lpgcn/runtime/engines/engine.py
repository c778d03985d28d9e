"""What the training loop asks of a way to run: one interface for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import numpy.typing as npt

from lpgcn.config import Config
from lpgcn.data import Interactions, Split
from lpgcn.errors import LpgcnError
from lpgcn.evaluation import Evaluation, Scorer

if TYPE_CHECKING:
    # A client has vectors, too, but nothing of the server's.
    from lpgcn.runtime.traffic import TrafficSummary

Part = Literal["valid", "test"]
EPOCHS_A_LOSS: Final = 10
"""Where nothing is validated and an epoch is one step, whose loss alone is not worth a round."""
Tables = dict[str, npt.NDArray[Any]]
"""Parameters or optimiser state, by name."""


class RunInterruptedError(LpgcnError):
    """A step cannot be finished, but the run can go on from a checkpoint."""


class Inspector(Protocol):
    """The one door through which an experiment looks into all parties at once.

    A network does not have it: there the state of a client never leaves its device.
    """

    def scorer(self) -> Scorer:
        """What the last measurement looked at, for the saved model."""
        ...

    def state(self) -> Tables:
        """Every parameter with its Adam state, and what was kept as the best so far."""
        ...


class Engine(Protocol):
    """A model in training. Same configuration, same data: the same bits from every engine.

    What belongs to the model stays where it is: the loop only says when to keep it, to go back to
    what was kept, to write a checkpoint, and to go on from one.
    """

    def begin(self) -> None:
        """At the first step; a federation's parties make their keys and their plan."""
        ...

    def approach(self, epoch: int, step: int) -> None:
        """This step comes next, if the epoch is that long: who follows a log enters its term."""
        ...

    @property
    def steps_per_epoch(self) -> int: ...

    def step(self, epoch: int, step: int, learning_rate: float) -> None: ...

    def take_loss(self) -> float:
        """The mean loss of a sample since the last call, an epoch ago."""
        ...

    def measure(self, part: Part) -> Evaluation: ...

    def keep(self) -> None:
        """The present parameters are the best so far."""
        ...

    def go_back(self) -> None:
        """To the parameters that were kept last."""
        ...

    def checkpoint(self, number: int, epoch: int, step: int) -> None:
        """Everything that the next step depends on, step `step` of epoch `epoch`, is durable where
        it belongs; numbers rise."""
        ...

    def resume(self, number: int) -> bool:
        """Go on from a checkpoint: 0 is the beginning. True if somebody is missing now: then a term
        has begun, and the next checkpoint is due."""
        ...

    def recover(self, error: RunInterruptedError) -> list[int]:
        """Wait until the run can go on, and say from which checkpoints; an engine whose parties do
        not come back raises what it was given."""
        ...

    def renew(self) -> bool:
        """Right after a checkpoint: let in who waits. Then a term has begun, and the next
        checkpoint is due."""
        ...

    def traffic(self) -> TrafficSummary | None:
        """What was sent, where there are parties that send."""
        ...

    def inspector(self) -> Inspector | None:
        """None where parties are out of sight."""
        ...

    def close(self) -> None:
        """End whatever the engine started."""
        ...


def masked_items(split: Split, config: Config, part: Part) -> Interactions:
    """The items that a ranking leaves out: the training items, on request the validation items."""
    if part == "valid" or config.mask == "train":
        return split.train
    return split.train.merged(split.valid)
