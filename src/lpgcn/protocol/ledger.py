"""The traffic of a run, in bytes of serialised messages: by stage, direction and role in a ledger,
and for every client in a tally."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import msgspec
import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Bits, Int64
from lpgcn.protocol.phases import PHASES, Phase
from lpgcn.protocol.wire.fields import Round

Direction = Literal["up", "down"]
Role = Literal["convolution", "ordinary"]


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the ledger."""

    stage: str
    direction: Direction
    role: Role
    messages: int
    bytes: int


class Ledger:
    """Adds up messages. Which clients are convolution-clients is known once there is a plan: what
    came `before` it goes on in another ledger."""

    def __init__(self, convolution: Bits, before: Iterable[Traffic] = ()) -> None:
        self._counts: dict[tuple[str, Direction, Role], list[int]] = defaultdict(lambda: [0, 0])
        for line in before:
            self._counts[line.stage, line.direction, line.role] = [line.messages, line.bytes]
        self._convolution, self._measuring = convolution, False

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """A forward pass in here serves a measurement, not a training step."""
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False

    def add(self, phase: Phase, direction: Direction, clients: Int64, sizes: Int64) -> None:
        """One message for each of the clients, of these sizes."""
        convolution = self._convolution[clients]
        owners, owned_bytes = int(np.count_nonzero(convolution)), int(sizes[convolution].sum())
        stage = "measure" if self._measuring else PHASES[phase].stage
        roles: tuple[tuple[Role, int, int], ...] = (
            ("convolution", owners, owned_bytes),
            ("ordinary", len(clients) - owners, int(sizes.sum()) - owned_bytes),
        )
        for role, messages, size in roles:
            if messages:
                count = self._counts[stage, direction, role]
                count[0] += messages
                count[1] += size

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


@dataclass(frozen=True, eq=False)
class Tally:
    """Rounds, and what they carry for every client. Tallies are added up, and multiplied where the
    same rounds come again."""

    rounds: float
    up: npt.NDArray[np.float64]
    down: npt.NDArray[np.float64]
    slowest: float
    """Σ_rounds (max_u down_u + max_u up_u): bytes that every round has to wait for."""

    @classmethod
    def of(cls, rounds: Sequence[Round], n_clients: int) -> Tally:
        up, down, slowest = np.zeros(n_clients), np.zeros(n_clients), 0
        for one in rounds:
            up[one.called] += one.sizes_up
            down[one.called] += one.sizes_down
            slowest += int(one.sizes_down.max(initial=0)) + int(one.sizes_up.max(initial=0))
        return cls(len(rounds), up, down, slowest)

    def __add__(self, other: Tally) -> Tally:
        up, down = self.up + other.up, self.down + other.down
        return Tally(self.rounds + other.rounds, up, down, self.slowest + other.slowest)

    def __mul__(self, times: float) -> Tally:
        up, down = self.up * times, self.down * times
        return Tally(self.rounds * times, up, down, self.slowest * times)
