"""A federated step of every backbone, beside one of LightGCN in the same run.

Steps of all models take turns, and processor time is measured: all parties are in this process, and
whatever else the machine does hardly changes it. Prints the
median of each, its ratio to the first model's, and the bytes of a step.
"""

from __future__ import annotations

import argparse
import statistics
import time

from lpgcn.config import Config
from lpgcn.data import load
from lpgcn.model.backbones import BACKBONES
from lpgcn.plan import Plan, TokenGraph
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.memory import keep_freed_memory
from lpgcn.runtime.planning import planner_for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", nargs="?", default="ml-100k")
    parser.add_argument("--models", nargs="+", default=list(BACKBONES))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--virtual-items", default="0")
    options = parser.parse_args()
    keep_freed_memory()
    split = load(options.dataset)
    plans: list[Plan] = []

    def planned(graph: TokenGraph) -> Plan:
        """Lists are those of the same seed, so that one plan serves all."""
        if not plans:
            plans.append(planner_for(split, Config(virtual_items=options.virtual_items))(graph))
        return plans[0]

    engines: dict[str, Federated] = {}
    times: dict[str, list[float]] = {}
    for model in options.models:
        config = Config(mode="federated", model=model, virtual_items=options.virtual_items)
        engines[model], times[model] = Federated(split, config, planned), []
        engines[model].begin()
    for step in range(options.steps):
        for model, engine in engines.items():
            began = time.process_time()
            engine.step(0, step, 1e-3)
            times[model].append(time.process_time() - began)
    first = statistics.median(times[options.models[0]])
    for model, engine in engines.items():
        median, traffic = statistics.median(times[model]), engine.traffic()
        print(
            f"{split.name}, {model}: {median:.2f} s of a processor a step, {median / first:.2f} "
            f"times {options.models[0]}'s; {traffic.up_per_step / 1000:.1f} KB up and "
            f"{traffic.down_per_step / 1000:.1f} KB down a client and step"
        )
        engine.close()


if __name__ == "__main__":
    main()
