"""What a federation on one machine was estimated to take, against what it took.

    LPGCN_DATA=… python benchmarks/local_cost.py demo --planner greedy
    LPGCN_DATA=… python benchmarks/local_cost.py ml-100k --virtual-items 1.0x

One process has all clients. It begins, makes some steps and one measurement. Prints the processor's
time and the memory of the process, and the ratios of the estimates to them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from lpgcn.config import Config
from lpgcn.data import load
from lpgcn.plan import Plan, TokenGraph
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.local_cost import LocalCost, local_cost
from lpgcn.runtime.memory import keep_freed_memory
from lpgcn.runtime.planning import planner_for


def memory() -> int:
    """Of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", nargs="?", default="demo")
    parser.add_argument("--virtual-items", default="0")
    parser.add_argument("--planner", default="auto")
    parser.add_argument("--model", default="lightgcn+")
    parser.add_argument("--dim", type=int, default=64)
    options = parser.parse_args()
    keep_freed_memory()
    split = load(options.dataset)
    config = Config(mode="federated").changed(
        model=options.model,
        virtual_items=options.virtual_items,
        planner=options.planner,
        dim=options.dim,
        epochs=1,
    )
    estimates: list[LocalCost] = []
    planned: list[float] = []

    def plan(graph: TokenGraph) -> Plan:
        began = time.process_time()
        made = planner_for(split, config)(graph)
        estimates.append(local_cost(split, config, graph, made, 1))
        planned.append(time.process_time() - began)
        return made

    began = time.process_time()
    engine = Federated(split, config, plan)
    engine.begin()
    steps = engine.steps_per_epoch
    for step in range(steps):
        engine.step(0, step, 1e-3)
    engine.take_loss()
    engine.measure("valid")
    engine.measure("test")
    seconds, used = time.process_time() - began - planned[0], memory()
    found = estimates[0]
    print(
        f"{split.name}, {split.n_users:,} clients, {config.model}, d = {config.dim}, "
        f"α = {config.virtual_items}, plan {engine.server.plan.planner}, {steps} steps: "
        f"{seconds:.1f} s of the processor, {used / 1e6:.0f} MB; estimated {found.seconds:.1f} s "
        f"(ratio {found.seconds / seconds:.2f}), {found.memory / 1e6:.0f} MB "
        f"({found.memory / used:.2f})"
    )


if __name__ == "__main__":
    main()
