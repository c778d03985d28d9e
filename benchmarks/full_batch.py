"""A step of a full batch against pools, beside a step of 2,048 samples of BPR, on tables.

    LPGCN_DATA=… python benchmarks/full_batch.py gowalla configs/gowalla-few-rounds.toml \\
        --against configs/gowalla.toml [--rounds 3] [--steps 5]

Both are steps of the centralised engine, each with the settings of its recipe, in blocks that take
turns. The ratio of the median steps and that of the best are printed, and the share of the
processors that others took (a step keeps both busy, so that another job costs it dearly).
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from lpgcn.config import read_config
from lpgcn.data import load
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.memory import keep_freed_memory
from processors import Others, seconds_in_turns, steps_of

TARGET = 6.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dataset")
    parser.add_argument("config", type=Path)
    parser.add_argument("--against", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    keep_freed_memory()
    split, machine = load(arguments.dataset), Machine.with_threads()
    engines = {
        path: Centralized(split, read_config(path), machine)
        for path in (arguments.config, arguments.against)
    }
    contenders = {path: steps_of(engine) for path, engine in engines.items()}
    others = Others()
    seconds = seconds_in_turns(contenders, arguments.rounds, arguments.steps)
    for path, times in seconds.items():
        median, best = statistics.median(times), min(times)
        print(f"{path}: median {1e3 * median:.1f} ms, best {1e3 * best:.1f} ms")
    ours, theirs = seconds[arguments.config], seconds[arguments.against]
    ratios = (statistics.median(ours) / statistics.median(theirs), min(ours) / min(theirs))
    print(f"ratio: median {ratios[0]:.2f}, best {ratios[1]:.2f}, at most {TARGET}")
    print(f"others took {others.share():.0%} of the processors")


if __name__ == "__main__":
    main()
