"""Steps of compared methods beside steps of LightGCN+, in turns.

    LPGCN_DATA=… python benchmarks/methods.py gowalla [--models p-gcn,bpr,fedmf] [--rounds 3]

All with the paper's settings: batches of 2,048 samples, or rounds of 100 users, who have about as
many. A step of P-GCN has one propagation forward, as one of LightGCN+ has. Median and best seconds
of a step, the ratio to LightGCN+'s, and what an epoch takes at the median.
"""

from __future__ import annotations

import argparse
import statistics

from lpgcn.data import load
from lpgcn.methods.registry import configured, engine_for
from lpgcn.runtime.memory import keep_freed_memory
from lpgcn.runtime.runs.training import Execution
from processors import Others, seconds_in_turns, steps_of

REFERENCE = "lightgcn+"
MOST = {"p-gcn": 2.0}
"""A step, in steps of the reference."""
SECONDS = {"bpr": 10.0}
"""An epoch."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dataset", nargs="?", default="gowalla")
    parser.add_argument("--models", default="p-gcn,bpr,fedmf")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    arguments = parser.parse_args()
    keep_freed_memory()
    split = load(arguments.dataset)
    models = [REFERENCE, *arguments.models.split(",")]
    engines = {
        model: engine_for(split, configured({"model": model}), Execution()) for model in models
    }
    contenders = {model: steps_of(engine) for model, engine in engines.items()}
    others = Others()
    seconds = seconds_in_turns(contenders, arguments.rounds, arguments.steps)
    reference = statistics.median(seconds[REFERENCE])
    for model, times in seconds.items():
        median, epoch = statistics.median(times), engines[model].steps_per_epoch
        line = f"{model}: median {1e3 * median:.1f} ms, best {1e3 * min(times):.1f} ms, "
        line += f"ratio {median / reference:.2f}, an epoch {epoch * median:.1f} s"
        if model in MOST:
            line += f"; at most {MOST[model]:g} steps of {REFERENCE}"
        if model in SECONDS:
            line += f"; at most {SECONDS[model]:g} s an epoch"
        print(line)
    print(f"others took {others.share():.0%} of the processors")


if __name__ == "__main__":
    main()
