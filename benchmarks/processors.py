"""Steps that are timed in turns, and what else ran meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from lpgcn.runtime.engines.engine import Engine

Name = TypeVar("Name")
Step = Callable[[int], object]
"""Makes the step of this number."""


class Others:
    """How much of the processors other processes have taken since this was made."""

    def __init__(self) -> None:
        self._before = self._now()

    def share(self) -> float:
        busy, own, total = (
            now - before for now, before in zip(self._now(), self._before, strict=True)
        )
        return max(0.0, busy - own) / total

    @staticmethod
    def _now() -> tuple[float, float, float]:
        """Seconds of all processors that were not idle, of this process, and all there were."""
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
        a_second = os.sysconf("SC_CLK_TCK")
        idle, total = sum(ticks[3:5]) / a_second, sum(ticks) / a_second
        return total - idle, sum(os.times()[:2]), total


def steps_of(engine: Engine) -> Step:
    return lambda number: engine.step(*divmod(number, engine.steps_per_epoch), 1e-3)


def seconds_in_turns(
    contenders: Mapping[Name, Step], rounds: int, counted: int, first: int = 0
) -> dict[Name, list[float]]:
    """Of so many steps of each in every round, in blocks that take turns."""
    seconds: dict[Name, list[float]] = {name: [] for name in contenders}
    for start in range(first, first + rounds * (counted + 1), counted + 1):
        for name, step in contenders.items():
            # The first step of a block is not counted: it finds the other's data in the caches.
            step(start)
            for number in range(start + 1, start + 1 + counted):
                began = time.perf_counter()
                step(number)
                seconds[name].append(time.perf_counter() - began)
    return seconds
