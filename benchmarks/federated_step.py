"""A training step of the federation: every client a party of its own, under real encryption.

Prints seconds for initialisation and for steps, the ratio to the centralised step in the same run,
and peak memory. A client's first negatives at an owner need an introduction, so the first steps are
a little slower than later ones.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time

import numpy as np

from lpgcn.config import Config
from lpgcn.data import load
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.memory import keep_freed_memory
from lpgcn.runtime.planning import planner_for


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", nargs="?", default="ml-100k")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--virtual-items", default="1.0x")
    parser.add_argument("--planner", default="auto")
    parser.add_argument("--model", default="lightgcn")
    parser.add_argument("--layers", type=int, default=3)
    options = parser.parse_args()
    keep_freed_memory()
    split = load(options.dataset)
    config = Config(
        mode="federated",
        model=options.model,
        layers=options.layers,
        virtual_items=options.virtual_items,
        planner=options.planner,
    )
    planned: list[float] = []

    def timed_plan(graph):  # type: ignore[no-untyped-def]
        began = time.perf_counter()
        plan = planner_for(split, config)(graph)
        planned.append(time.perf_counter() - began)
        return plan

    began = time.perf_counter()
    federated = Federated(split, config, timed_plan, options.workers)
    federated.begin()
    total = time.perf_counter() - began
    topology = federated.server.topology
    print(
        f"{split.name}: {split.n_users:,} clients, d=64, L={config.layers}, batch 2048, "
        f"{config.suite}, α = {config.virtual_items}, {config.model}, "
        f"plan {federated.server.plan.planner}: {int(topology.is_owner.sum()):,} owners, "
        f"{len(topology.neighbours.values):,} neighbours"
    )
    print(f"initialisation {total - planned[0]:.2f} s, and the plan {planned[0]:.2f} s")
    central = Centralized(split, config, Machine.with_threads(2))
    times, central_times = [], []
    for step in range(options.steps):
        for engine, record in ((federated, times), (central, central_times)):
            began = time.perf_counter()
            engine.step(0, step, 1e-3)
            record.append(time.perf_counter() - began)
    expected = central.inspector().state()
    worst = max(
        float(np.abs(value - expected[name]).max())
        for name, value in federated.inspector().state().items()
    )
    print("steps (s):", " ".join(f"{seconds:.2f}" for seconds in times))
    ratio = statistics.median(times) / statistics.median(central_times)
    print(
        f"median step {statistics.median(times):.2f} s, {options.workers} processes; "
        f"{ratio:.0f} times the centralised step; largest difference {worst:g}"
    )
    federated.close()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(
        f"peak memory {peak / 2**20:.2f} GiB here, {children / 2**20:.2f} GiB in the largest worker"
    )


if __name__ == "__main__":
    main()
