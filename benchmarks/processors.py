"""What else ran while something was timed."""

from __future__ import annotations

import os
from pathlib import Path


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
