"""What a plan is asked for, and the errors when it cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from lpgcn.config import PlannerName
from lpgcn.errors import LpgcnError

Progress = Callable[[str, float], None]
"""Called with what is being done and the share of the planner's work that is done, 0 to 1."""


class PlanError(LpgcnError):
    """No plan can be made from these options."""


class ImpossibleLimitError(PlanError):
    """A limit that no plan, or none that the planner found, can keep; `token` is in the way."""

    def __init__(self, message: str, token: int) -> None:
        super().__init__(message)
        self.token = token


class PartitionerError(PlanError):
    """Mt-KaHyPar failed; another planner may not."""


class Draw(IntEnum):
    """The step under which lpgcn.random draws for a plan, one per decision."""

    CLIENT_ORDER = 0
    OWNER = 1
    UNLISTED_OWNER = 2
    EXTRA_CANDIDATES = 3
    PART_OWNER = 4
    PARTITIONER = 5


@dataclass(frozen=True)
class PlanOptions:
    """A planner and its limits; None means no limit.

    `max_load` bounds |N_ũ| of every convolution-client; "auto" is the load of the heaviest client
    in the paper's own plan, `cover` without limits. `convolution_clients` bounds k. The planners
    whose owners list their items choose among so many candidates, which is the paper's sweep of k
    in RQ5; `partition` without a `max_load` makes so many parts.
    """

    planner: PlannerName = "auto"
    max_load: int | Literal["auto"] | None = "auto"
    max_items_per_client: int | None = None
    never_convolve: frozenset[int] = frozenset()
    convolution_clients: int | None = None

    def __post_init__(self) -> None:
        for name in ("max_load", "max_items_per_client", "convolution_clients"):
            value = getattr(self, name)
            lowest = 0 if name == "max_load" else 1
            if isinstance(value, int) and value < lowest:
                raise PlanError(f"{name} is {value}; it must be at least {lowest}")
