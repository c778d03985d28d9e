"""Traffic and load of the three planners on Gowalla and Yelp2018, and what virtual items change.

    LPGCN_DATA=… python benchmarks/plan.py [--planners greedy partition]
        [--virtual-planners greedy partition] [--datasets gowalla yelp2018] [--seed 0]

C is the paper's (d = 64, 4 bytes, L = 4 on Gowalla and 3 on Yelp2018); the ratio is to `cover` on
the same graph, that of a run with the same seed, at a load no higher than that of `cover`'s
heaviest client, which another seed's draw of owners changes. "wall" is waiting time;
"cpu" is the time of all processors together, which a busy machine changes less.
"""

from __future__ import annotations

import argparse
import resource
import time
from typing import get_args

from lpgcn.config import Config, PlannerName
from lpgcn.data import load
from lpgcn.plan import PlanCost, PlanOptions, TokenGraph, cost, make_plan
from lpgcn.runtime.engines.simulated import token_graph

LAYERS = {"gowalla": 4, "yelp2018": 3}
RATIOS = {
    ("gowalla", "greedy"): 0.68,
    ("yelp2018", "greedy"): 0.64,
    ("gowalla", "partition"): 0.39,
    ("yelp2018", "partition"): 0.45,
}
SECONDS = {"cover": 5.0, "greedy": 20.0, "partition": 240.0}
VIRTUAL = {
    "10 uniform": Config(virtual_items="10"),
    "10 popularity": Config(virtual_items="10", virtual_draw="popularity"),
    "|I_u| uniform": Config(virtual_items="1.0x"),
    "|I_u| popularity": Config(virtual_items="1.0x", virtual_draw="popularity"),
}
HEADER = (
    f"{'data set':9} {'virtual items':17} {'planner':10} {'k':>6} {'k %':>6} {'C KB':>7} "
    f"{'ratio':>6} {'R':>6} {'load mean':>10} {'95 %':>7} {'max':>6} {'items':>7} {'wall s':>7} "
    f"{'cpu s':>7}"
)


def processor_seconds() -> float:
    own, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def run(
    dataset: str, virtual: str, graph: TokenGraph, planners: list[PlannerName], seed: int
) -> dict[str, tuple[float, float]]:
    """Print a line per planner; the ratios of their traffic to the first one's, and seconds."""
    costs: list[PlanCost] = []
    seconds: list[float] = []
    for planner in planners:
        wall, cpu = time.perf_counter(), processor_seconds()
        plan = make_plan(graph, PlanOptions(planner=planner), seed)
        wall, cpu = time.perf_counter() - wall, processor_seconds() - cpu
        found = cost(graph, plan, layers=LAYERS[dataset])
        costs.append(found)
        print(
            f"{dataset:9} {virtual:17} {found.planner:10} {found.convolution_clients:6d} "
            f"{100 * found.share:6.2f} {found.kilobytes:7.2f} "
            f"{found.neighbours / costs[0].neighbours:6.3f} {found.utilization:6.2f} "
            f"{found.load_mean:10.1f} {found.load_95:7.0f} {found.load_max:6d} "
            f"{found.items_max:7d} {wall:7.1f} {cpu:7.1f}",
            flush=True,
        )
        assert found.planner == planner and found.load_max <= costs[0].load_max
        seconds.append(wall)
    return {
        name: (one.neighbours / costs[0].neighbours, wall)
        for name, one, wall in zip(planners, costs, seconds, strict=True)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    names = [name for name in get_args(PlannerName) if name not in {"auto", "cover"}]
    parser.add_argument("--planners", nargs="*", choices=names, default=names)
    parser.add_argument("--virtual-planners", nargs="*", choices=names, default=names)
    parser.add_argument("--datasets", nargs="+", choices=list(LAYERS), default=list(LAYERS))
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    print(HEADER)
    verdicts = []
    for dataset in arguments.datasets:
        split = load(dataset)
        graph = token_graph(split, Config(seed=arguments.seed))
        ratios = run(dataset, "none", graph, ["cover", *arguments.planners], arguments.seed)
        verdicts += [
            f"{'kept  ' if ratio <= most and wall <= SECONDS[planner] else 'MISSED'}  {dataset}: "
            f"{planner} / cover = {ratio:.3f} (at most {most}) in {wall:.1f} s (at most "
            f"{SECONDS[planner]:.0f})"
            for planner, (ratio, wall) in ratios.items()
            for most in [RATIOS.get((dataset, planner), 1.0)]
        ]
        for name, config in VIRTUAL.items():
            graph = token_graph(split, config.changed(seed=arguments.seed))
            run(dataset, name, graph, ["cover", *arguments.virtual_planners], arguments.seed)
    print(*verdicts, sep="\n")


if __name__ == "__main__":
    main()
