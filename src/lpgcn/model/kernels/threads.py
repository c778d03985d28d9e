"""Rows of a table shared out to threads that wait without spinning.

Threads that spin at barriers are fast alone and hopeless beside another job, which takes the
processor that one of them waits for. These sleep, and take small parts as they come, so that
whoever is held up does less.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from queue import SimpleQueue
from threading import Thread

import numpy as np
import numpy.typing as npt

PARTS_A_THREAD = 4
Task = tuple[Callable[[], None], "SimpleQueue[BaseException | None]"]


def _processors() -> int:
    """Those that this process may use, where the system says so."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _serve(tasks: SimpleQueue[Task | None]) -> None:
    """Do what comes, and say how it ended."""
    while (task := tasks.get()) is not None:
        work, done = task
        try:
            work()
        except BaseException as failure:  # noqa: BLE001 -- it is raised where it was asked for.
            done.put(failure)
        else:
            done.put(None)
        # What the caller has given up is not kept until the next task.
        del task, work, done


class Threads:
    """A number of threads, of which the caller is one. The others are started when needed, sleep
    on a queue, and end with this object."""

    def __init__(self, count: int | None = None) -> None:
        self._started = 0
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self.count = count or _processors()

    def __del__(self) -> None:
        for _ in range(self._started):
            self._tasks.put(None)

    def each(self, work: Callable[[int, int], object], bounds: list[int]) -> None:
        """work(first, last) for each two bounds that follow one another."""
        # All of them take from this one iterator, which gives a part to one of them only.
        left = pairwise(bounds)

        def take() -> None:
            for first, last in left:
                work(first, last)

        helpers = min(self.count, len(bounds) - 1) - 1
        done: SimpleQueue[BaseException | None] = SimpleQueue()
        while self._started < helpers:
            Thread(target=_serve, args=(self._tasks,), daemon=True).start()
            self._started += 1
        for _ in range(helpers):
            self._tasks.put((take, done))
        try:
            take()
        finally:
            # Nobody may still write into a result that the caller has given up.
            failures = [done.get() for _ in range(helpers)]
        for failure in failures:
            if failure is not None:
                raise failure

    def bounds(self, offsets: npt.NDArray[np.int64], least: int) -> list[int]:
        """Parts of about equal numbers of entries, each of `least` entries or more."""
        rows, entries = len(offsets) - 1, int(offsets[-1])
        cuts = np.searchsorted(offsets, self.even_bounds(entries, least)[1:-1])
        return sorted({0, rows, *cuts.tolist()})

    def even_bounds(self, rows: int, least: int) -> list[int]:
        """Parts of equal numbers of rows, each of `least` rows or more."""
        parts = max(1, min(self.count * PARTS_A_THREAD, rows // max(1, least)))
        return [rows * part // parts for part in range(parts + 1)]
