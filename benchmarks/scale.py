"""Step time and peak memory as the graph grows, and ten million interactions of a million users.

    python benchmarks/scale.py [--steps 5] [--edges 500000]

Graphs of 1, 2, 4 and 8 times the edges, users and items: only the size changes, not the batch
size. Each size runs in a process of its own, whose peak memory is what the kernel says. The last
is the big one: 10 million interactions of 1 million users.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import time
from dataclasses import dataclass

import numpy as np

from lpgcn.config import Config
from lpgcn.data import Ids, Interactions, Split
from lpgcn.random import Purpose, uniform
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.memory import keep_freed_memory

FACTORS = (1, 2, 4, 8)
EDGES_OF_A_USER, USERS_OF_AN_ITEM = 10, 10
"""Mean |I_u|, and how many users there are for each item."""
BATCH_SIZE = 2048
TOLERANCE = 0.25


@dataclass(frozen=True)
class Size:
    edges: int

    @property
    def users(self) -> int:
        return self.edges // EDGES_OF_A_USER

    @property
    def items(self) -> int:
        return self.users // USERS_OF_AN_ITEM


@dataclass(frozen=True)
class Figures:
    interactions: int
    seconds_to_build: float
    seconds_a_step: float
    peak_bytes: int


def synthetic(size: Size) -> Split:
    """Every user draws EDGES_OF_A_USER items, item i with density ∝ i^-½; a few draws coincide."""
    users = np.arange(size.users)
    drawn = uniform(0, Purpose.DEMO_DATA, users, count=EDGES_OF_A_USER)
    items = (drawn**2 * size.items).astype(np.int64)
    train = Interactions.from_pairs(
        np.repeat(users, EDGES_OF_A_USER), items.reshape(-1), size.users, size.items
    )
    none = Interactions.from_pairs([], [], size.users, size.items)
    return Split("synthetic", train, none, none, Ids(users), Ids(np.arange(size.items)))


def run(size: Size, steps: int) -> Figures:
    """The median of a few steps; the first, in which the process gets its memory, is left out."""
    keep_freed_memory()
    split = synthetic(size)
    config = Config(model="lightgcn", layers=3, dim=64, batch_size=BATCH_SIZE)
    start = time.perf_counter()
    engine = Centralized(split, config, Machine.with_threads(2))
    built = time.perf_counter() - start
    seconds = []
    for number in range(steps + 1):
        start = time.perf_counter()
        engine.step(0, number % engine.steps_per_epoch, config.lr)
        seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Figures(len(split.train), built, statistics.median(seconds[1:]), peak)


def in_own_process(size: Size, steps: int) -> Figures:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(run, (size, steps))


def row(name: str, size: Size, figures: Figures, base: Figures) -> str:
    per_edge = figures.seconds_a_step / figures.interactions
    relative = per_edge / (base.seconds_a_step / base.interactions)
    return (
        f"{name:<5}{figures.interactions:>12,}{size.users:>11,}{size.items:>9,}"
        f"{figures.seconds_to_build:>9.1f}{1000 * figures.seconds_a_step:>10.0f}"
        f"{1e9 * per_edge:>9.1f}{relative:>10.2f}{figures.peak_bytes / 2**30:>10.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--edges", type=int, default=500_000, help="edges of the smallest graph")
    parser.add_argument("--big-edges", type=int, default=10_000_000)
    arguments = parser.parse_args()
    print(f"LightGCN, d=64, L=3, batch {BATCH_SIZE}, 2 threads")
    print(
        f"{'':<5}{'edges':>12}{'users':>11}{'items':>9}{'build s':>9}{'step ms':>10}"
        f"{'ns/edge':>9}{'relative':>10}{'peak GiB':>10}"
    )
    measured: list[Figures] = []
    for factor in FACTORS:
        size = Size(factor * arguments.edges)
        measured.append(in_own_process(size, arguments.steps))
        print(row(f"{factor}x", size, measured[-1], measured[0]), flush=True)
    cost = [figures.seconds_a_step / figures.interactions for figures in measured]
    worst = max(abs(one / cost[0] - 1) for one in cost)
    verdict = "linear" if worst <= TOLERANCE else "NOT linear"
    print(f"time per edge within {worst:.0%} of 1x: {verdict} within {TOLERANCE:.0%}", flush=True)
    big = Size(arguments.big_edges)
    print(row("big", big, in_own_process(big, arguments.steps), measured[0]))


if __name__ == "__main__":
    main()
