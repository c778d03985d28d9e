"""Upload and download per client and step beside the paper's formulation, from the exact ledger.

    LPGCN_DATA=… python benchmarks/traffic.py [ml-100k gowalla] [--planner cover,greedy,auto]

Both models, without virtual items, with ten and with as many as real ones, for each planner. The
paper's formulation is counted on the same lists, the same plan and the same batches.
"""

from __future__ import annotations

import argparse

from lpgcn.config import Config
from lpgcn.data import Split, load
from lpgcn.runtime.engines.simulated import Simulated
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.traffic import TrafficSummary

MODELS = ("lightgcn", "lightgcn+")
ALPHAS = ("0", "10", "1.0x")
DIRECTIONS = ("up", "down", "both")
HEADER = f"{'data':9} {'model':10} {'α':>5} {'plan':10} {'k':>6} {'load':>6}" + "".join(
    f" {name:>8} {'paper':>8} {'ratio':>6}" for name in DIRECTIONS
)


def measured(split: Split, config: Config, machine: Machine, steps: int) -> TrafficSummary:
    engine = Simulated(split, config, planner_for(split, config), machine)
    for step in range(steps):
        engine.step(0, step, config.lr)
    return engine.traffic()


def row(name: str, config: Config, traffic: TrafficSummary) -> str:
    up, down = traffic.up_per_step, traffic.down_per_step
    plan = traffic.plan
    assert plan is not None, "a simulated federation has a plan"
    paper_up, paper_down = plan.paper_up_per_step, plan.paper_down_per_step
    pairs = ((up, paper_up), (down, paper_down), (up + down, paper_up + paper_down))
    return (
        f"{name:9} {config.model:10} {config.virtual_items:>5} {plan.planner:10} "
        f"{plan.convolution_clients:6} {plan.max_load:6}"
    ) + "".join(
        f" {ours / 1e3:8.2f} {paper / 1e3:8.2f} {ours / paper:6.3f}" for ours, paper in pairs
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("datasets", nargs="*", default=["ml-100k", "gowalla"])
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--planner", default="auto", help="one, or several with commas between")
    parser.add_argument("--suite", default="sealed", choices=["sealed", "paper"])
    options = parser.parse_args()
    machine = Machine.with_threads(2)
    print(
        f"d=64, L={options.layers}, batch 2048, suite {options.suite}; KB of 1,000 bytes, mean "
        "client"
    )
    print(HEADER)
    for name in options.datasets:
        split = load(name)
        for planner in options.planner.split(","):
            for model in MODELS:
                for alpha in ALPHAS:
                    config = Config().changed(
                        model=model,
                        layers=options.layers,
                        virtual_items=alpha,
                        planner=planner,
                        suite=options.suite,
                    )
                    found = measured(split, config, machine, options.steps)
                    print(row(name, config, found), flush=True)


if __name__ == "__main__":
    main()
