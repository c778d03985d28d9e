"""What recipes cost before they are run: a row of a markdown table for each configuration.

    LPGCN_DATA=… python benchmarks/recipes.py gowalla configs/gowalla*.toml [--devices 1000|all]
        [--planner greedy]

Steps, rounds and bytes to the end of a training in which no early stopping is counted on, and its
wall time without what devices compute (see `lpgcn.runtime.estimation`). All columns are about one
federation: so many users of the data set at random and their items, or all users. MB and KB are
10^6 and 10^3 bytes; bytes are of the mean client, and a step's of the heaviest, up and down
together.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lpgcn.cli.estimate_display import long_duration
from lpgcn.config import read_config
from lpgcn.data import Split, load
from lpgcn.runtime.engines.simulated import token_graph
from lpgcn.runtime.estimation import Estimate, estimate, some_users
from lpgcn.runtime.planning import planner_for

LINES = [(latency, bandwidth) for latency in (0.05, 0.5) for bandwidth in (1e6, 1e7)]
HEADERS = (
    "recipe", "devices", "steps", "rounds", "MB up", "MB down", "heaviest, KB a step",
    *(f"{latency * 1e3:g} ms, {bandwidth / 1e6:g} Mbit/s" for latency, bandwidth in LINES),
)  # fmt: skip


def estimated(split: Split, path: Path, devices: int | None, planner: str | None) -> Estimate:
    config = read_config(path)
    if planner is not None:
        config = config.changed(planner=planner)
    if devices is not None:
        split = some_users(split, devices, config.seed)
    plan = planner_for(split, config)(token_graph(split, config))
    return estimate(split, config, plan)


def row(recipe: str, found: Estimate) -> str:
    whole, step = found.training, found.step
    cells = [
        recipe,
        f"{found.devices:,}",
        f"{found.steps:,}",
        f"{whole.rounds:,}",
        f"{whole.up / 1e6:,.1f}",
        f"{whole.down / 1e6:,.1f}",
        f"{(step.heaviest_up + step.heaviest_down) / 1e3:,.0f}",
        *(long_duration(found.wall_time(*line).seconds) for line in LINES),
    ]
    return f"| {' | '.join(cells)} |"


def devices_asked(text: str) -> int | None:
    return None if text == "all" else int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dataset")
    parser.add_argument("configs", nargs="+", type=Path)
    parser.add_argument("--devices", type=devices_asked, default=1000, help="a number, or all")
    parser.add_argument("--planner", help="in place of that of the configurations")
    options = parser.parse_args()
    split = load(options.dataset)
    print(f"| {' | '.join(HEADERS)} |\n|---{'|--:' * (len(HEADERS) - 1)}|")
    for path in options.configs:
        found = estimated(split, path, options.devices, options.planner)
        print(row(path.stem, found), flush=True)


if __name__ == "__main__":
    main()
