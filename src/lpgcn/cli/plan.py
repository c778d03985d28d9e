"""`lpgcn plan`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lpgcn.cli.options import SectionedCommand, field_options, given
from lpgcn.cli.terminal import console, duration, json_option, print_json, say, show, size, table
from lpgcn.config import Config

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lpgcn.plan import PlanCost, PlannerName, PlanOptions, Progress, TokenGraph
    from lpgcn.plan.sweep import LoadPoint

    Sweep = tuple[Sequence[PlanCost], Mapping[str, Sequence[LoadPoint]]]


@click.command(
    cls=SectionedCommand,
    epilog="""\b
Examples:
  lpgcn plan gowalla --layers 4 --planner cover
  lpgcn plan gowalla --layers 4 --virtual-items 10 --max-load 2000 --plot loads.png
  lpgcn plan yelp2018 --layers 3 --sweep --plot sweep.png""",
)
@click.argument("dataset")
@click.option("--sweep", is_flag=True, help="Cost over k as in RQ5, and over the load limit.")
@click.option("--plot", type=click.Path(path_type=Path), help="A picture of the plan or the sweep.")
@json_option
@field_options(Config, "Configuration")
def plan(dataset: str, sweep: bool, plot: Path | None, as_json: bool, **fields: Any) -> None:
    """Choose who computes which item, and say what that costs.

    Of the configuration, the virtual items, the planner and its limits, the layers, the embedding
    size and the seed matter.
    """
    from lpgcn.data import load
    from lpgcn.plan import cost
    from lpgcn.runtime.planning import plan_options, planner_for
    from lpgcn.runtime.simulated import token_graph

    config = Config().changed(**given(Config, fields))
    split = load(dataset)
    graph = token_graph(split, config)
    if sweep:
        over_k, curves = _sweep(graph, plan_options(split, config), config, plot)
        if as_json:
            print_json({"candidates": over_k, "loads": curves})
        else:
            _show_sweep(over_k, curves)
        return
    began = time.monotonic()
    with console(stderr=True).status("planning") as status:
        made = planner_for(split, config, _progress(status))(graph)
    seconds = time.monotonic() - began
    found = cost(graph, made, layers=config.layers, dimension=config.dim)
    if plot is not None:
        from lpgcn.report.plans import plot_loads

        plot_loads(graph, [made], plot)
        say(f"the picture is {plot}")
    if as_json:
        print_json({**msgspec.to_builtins(found), "seconds": round(seconds, 3)})
    else:
        title = f"{split.name} · α = {config.virtual_items} · planner {found.planner}"
        show(table(_figures(found, seconds), "figure", "value", title=title))


def _figures(found: PlanCost, seconds: float) -> list[list[str]]:
    return [
        ["convolution-clients k", f"{found.convolution_clients:,} ({found.share:.2%})"],
        ["C, per client and step", size(found.bytes_per_client)],
        ["R, use of received vectors", f"{found.utilization:.2f}"],
        ["load, mean", f"{found.load_mean:,.0f}"],
        ["load, 95 %", f"{found.load_95:,.0f}"],
        ["load, most", f"{found.load_max:,}"],
        ["items per client, mean", f"{found.items_mean:,.1f}"],
        ["items per client, most", f"{found.items_max:,}"],
        ["planned in", duration(seconds)],
    ]


def _progress(status: Any) -> Progress:
    def report(stage: str, share: float) -> None:
        status.update(f"{stage} ({share:.0%})")

    return report


def _sweep(graph: TokenGraph, options: PlanOptions, config: Config, plot: Path | None) -> Sweep:
    """The paper's figure over k, and for every planner at hand traffic over the load limit."""
    from lpgcn.plan import cost, cover
    from lpgcn.plan.partition import installed
    from lpgcn.plan.sweep import load_limits, sweep_candidates, sweep_loads

    figures = {"layers": config.layers, "dimension": config.dim}
    heaviest = cost(graph, cover(graph, config.seed), **figures).load_max
    planners: tuple[PlannerName, ...] = ("cover", "greedy", "partition")
    with console(stderr=True).status("sweeping") as status:
        report = _progress(status)
        over_k = sweep_candidates(graph, config.seed, **figures)
        curves: dict[str, Sequence[LoadPoint]] = {
            planner: sweep_loads(
                graph,
                planner,
                load_limits(graph, heaviest),
                config.seed,
                options=options,
                progress=report,
                **figures,
            )
            for planner in planners
            if planner != "partition" or installed()
        }
    if plot is not None:
        from lpgcn.report.plans import plot_sweep

        plot_sweep(over_k, curves, plot)
        say(f"the picture is {plot}")
    return over_k, curves


def _show_sweep(over_k: Sequence[PlanCost], curves: Mapping[str, Sequence[LoadPoint]]) -> None:
    rows = [
        [
            f"{c.convolution_clients:,}",
            f"{c.share:.1%}",
            size(c.bytes_per_client),
            f"{c.utilization:.2f}",
        ]
        for c in over_k
    ]
    show(table(rows, "k", "of clients", "C", "R", title="cover, for more candidates (RQ5)"))
    rows = [
        [
            f"{point.max_load:,}",
            planner,
            f"{point.cost.load_max:,}",
            size(point.cost.bytes_per_client),
        ]
        for planner, points in curves.items()
        for point in points
    ]
    show(table(rows, "limit", "planner", "heaviest", "C", title="Traffic against load"))
