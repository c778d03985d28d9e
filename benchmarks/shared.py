"""A machine that is shared: how much slower a run gets beside another job, and what a ledger costs.

    LPGCN_DATA=… python benchmarks/shared.py [--rounds 3] [--datasets demo gowalla]

First `lpgcn train demo`, centralised, five epochs: alone, and beside one other job of two busy
threads, which this script starts and ends. On two processors a fair share makes a run that keeps
both busy twice as long. Then the steps of `simulated`, which counts every message of a federation,
beside those of `centralized`, in turns.

Others may use the machine, too. So a run beside the job counts with its median, one alone with its
best, which makes the ratio larger, and of steps the ratio of medians and that of the best must both
be below the target.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lpgcn.config import Config
from lpgcn.data import load
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.engines.simulated import Simulated
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.memory import keep_freed_memory
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs.training import train

EPOCHS = 5
SLOWER, LEDGER = 4.0, 1.3
BUSY = """
import hashlib, sys, threading
block = bytes(1 << 22)
def work():
    while True:
        hashlib.sha256(block)
for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
print("busy", flush=True)
sys.stdin.read()
"""
"""Hashing lets go of Python's lock, so both threads are busy. The end of its input ends it."""


@contextmanager
def another_job() -> Iterator[None]:
    job = subprocess.Popen(
        [sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert job.stdin is not None and job.stdout is not None
    try:
        assert job.stdout.readline() == b"busy\n"
        yield
    finally:
        job.stdin.close()
        job.wait()
        job.stdout.close()


def seconds_of_a_run(folder: Path) -> float:
    start = time.perf_counter()
    train("demo", Config(epochs=EPOCHS), out=folder, overwrite=True, threads=2)
    return time.perf_counter() - start


def beside_another_job(rounds: int) -> tuple[float, float]:
    """The seconds of the best run alone, and of the median one beside the other job."""
    alone, beside = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        seconds_of_a_run(folder)
        for _ in range(rounds):
            alone.append(seconds_of_a_run(folder))
            with another_job():
                beside.append(seconds_of_a_run(folder))
    return min(alone), statistics.median(beside)


def simulated_beside_centralized(
    dataset: str, planner: str, steps: int
) -> dict[str, tuple[float, float]]:
    """The median and the best seconds of a step of each; the first, which compiles, is left out."""
    split, machine = load(dataset), Machine.with_threads(2)
    config = Config().changed(planner=planner)
    engines = {
        "simulated": Simulated(split, config, planner_for(split, config), machine),
        "centralized": Centralized(split, config, machine),
    }
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for number in range(steps + 1):
        for name, engine in engines.items():
            start = time.perf_counter()
            engine.step(*divmod(number, engine.steps_per_epoch), config.lr)
            seconds[name].append(time.perf_counter() - start)
    return {name: (statistics.median(times[1:]), min(times[1:])) for name, times in seconds.items()}


def verdict(ratio: float, most: float) -> str:
    return f"ratio {ratio:.2f}, at most {most}: {'reached' if ratio <= most else 'NOT reached'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--datasets", nargs="*", default=["demo", "gowalla"])
    parser.add_argument("--planner", default="auto", help="of simulated")
    arguments = parser.parse_args()
    keep_freed_memory()
    alone, beside = beside_another_job(arguments.rounds)
    print(
        f"train demo, {EPOCHS} epochs, 2 threads: alone {alone:.2f} s, beside two busy threads "
        f"{beside:.2f} s; {verdict(beside / alone, SLOWER)}",
        flush=True,
    )
    for dataset in arguments.datasets:
        found = simulated_beside_centralized(dataset, arguments.planner, arguments.steps)
        for name, (median, best) in found.items():
            print(f"{dataset}, a step {name}: median {1e3 * median:.1f} ms, best {1e3 * best:.1f}")
        ratios = [
            ours / theirs
            for ours, theirs in zip(found["simulated"], found["centralized"], strict=True)
        ]
        print(
            f"{dataset}, simulated / centralized: median {ratios[0]:.2f}, best {ratios[1]:.2f}; "
            f"{verdict(max(ratios), LEDGER)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
