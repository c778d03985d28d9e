"""Rows of a table shared out to threads that wait without spinning.

Threads that spin at barriers are fast alone and hopeless beside another job, which takes the
processor that one of them waits for. These sleep, and take small parts as they come, so that
whoever is held up does less.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import pairwise

import numpy as np
import numpy.typing as npt

PARTS_A_THREAD = 4


class Threads:
    """A number of threads, of which the caller is one."""

    def __init__(self, count: int | None = None) -> None:
        self.count = count or len(os.sched_getaffinity(0))
        self._pool = ThreadPoolExecutor(self.count - 1) if self.count > 1 else None

    def each(self, work: Callable[[int, int], object], bounds: list[int]) -> None:
        """work(first, last) for each two bounds that follow one another."""
        parts = list(pairwise(bounds))
        # All of them take from this one iterator, which gives a part to one of them only.
        left = iter(parts)

        def take() -> None:
            for first, last in left:
                work(first, last)

        if self._pool is None or len(parts) < 2:
            take()
            return
        helpers = [self._pool.submit(take) for _ in range(min(self.count, len(parts)) - 1)]
        try:
            take()
        finally:
            # Nobody may still write into a result that the caller has given up.
            wait(helpers)
        for helper in helpers:
            helper.result()

    def bounds(self, offsets: npt.NDArray[np.int64], least: int) -> list[int]:
        """Parts of about equal numbers of entries, each of `least` entries or more."""
        rows, entries = len(offsets) - 1, int(offsets[-1])
        cuts = np.searchsorted(offsets, self.even_bounds(entries, least)[1:-1])
        return sorted({0, rows, *cuts.tolist()})

    def even_bounds(self, rows: int, least: int) -> list[int]:
        """Parts of equal numbers of rows, each of `least` rows or more."""
        parts = max(1, min(self.count * PARTS_A_THREAD, rows // max(1, least)))
        return [rows * part // parts for part in range(parts + 1)]
