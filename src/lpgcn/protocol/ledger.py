"""The traffic of a run, in bytes of serialised messages, by stage, direction and role."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from lpgcn.protocol.messages import Phase

Int64 = npt.NDArray[np.int64]
Direction = Literal["up", "down"]
Role = Literal["convolution", "ordinary"]

STAGES = {
    "initialise": (
        Phase.KEYS, Phase.SHARE_KEY, Phase.LIST, Phase.CATALOGUE, Phase.PLAN, Phase.VERIFY,
        Phase.ANSWERS,
    ),
    "forward": (Phase.BUILD, Phase.FORWARD, Phase.FINAL),
    "loss": (Phase.LOSS,),
    "backward": (Phase.BACKWARD, Phase.UPDATE, Phase.UPDATE_BUILT),
    "measure": (Phase.RANK, Phase.SUM),
}  # fmt: skip
_STAGE_OF = {phase: stage for stage, phases in STAGES.items() for phase in phases}


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the ledger."""

    stage: str
    direction: Direction
    role: Role
    messages: int
    bytes: int


class Ledger:
    """Adds up messages. Which clients are convolution-clients is known once there is a plan."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, Direction, Role], list[int]] = defaultdict(lambda: [0, 0])
        self._convolution: npt.NDArray[np.bool_] | None = None
        self._measuring = False

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """A forward pass in here serves a measurement, not a training step."""
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False

    def roles(self, convolution: npt.NDArray[np.bool_]) -> None:
        self._convolution = convolution

    def add(self, phase: Phase, direction: Direction, clients: Int64, sizes: Int64) -> None:
        """One message for each of the clients, of these sizes."""
        convolution = (
            np.zeros(len(clients), dtype=np.bool_)
            if self._convolution is None
            else self._convolution[clients]
        )
        roles: Mapping[Role, npt.NDArray[np.bool_]] = {
            "convolution": convolution,
            "ordinary": ~convolution,
        }
        stage = "measure" if self._measuring else _STAGE_OF[phase]
        for role, chosen in roles.items():
            if chosen.any():
                count = self._counts[stage, direction, role]
                count[0] += int(chosen.sum())
                count[1] += int(sizes[chosen].sum())

    def lines(self) -> list[Traffic]:
        return [
            Traffic(stage=stage, direction=direction, role=role, messages=count[0], bytes=count[1])
            for (stage, direction, role), count in sorted(self._counts.items())
        ]

    def bytes(self, direction: Direction, *stages: str) -> int:
        return sum(
            count[1]
            for (stage, its_direction, _), count in self._counts.items()
            if its_direction == direction and stage in stages
        )
