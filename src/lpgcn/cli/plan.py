"""`lpgcn plan`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lpgcn.cli.options import SectionedCommand, asked, config_option, field_options, source_asked
from lpgcn.cli.terminal import console, duration, json_option, print_json, say, show, size, table
from lpgcn.config import Config
from lpgcn.runtime.runs.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lpgcn.data import Split
    from lpgcn.plan import PlanCost, PlannerName, Progress, TokenGraph
    from lpgcn.plan.sweep import LoadPoint

    Sweep = tuple[Sequence[PlanCost], Mapping[str, Sequence[LoadPoint]]]


_RELEVANT = {
    "layers", "dim", "dtype", "seed", "virtual_items", "virtual_draw", "planner", "max_load",
    "max_items_per_client", "never_convolve", "convolution_clients",
}  # fmt: skip
"""What a plan and its costs depend on."""


@click.command(
    cls=SectionedCommand,
    epilog="""\b
Examples:
  lpgcn plan gowalla --layers 4 --planner cover
  lpgcn plan gowalla --layers 4 --virtual-items 10 --max-load 2000 --plot loads.png
  lpgcn plan yelp2018 --layers 3 --sweep --plot sweep.png""",
)
@click.argument("dataset", required=False)
@config_option
@click.option("--sweep", is_flag=True, help="Cost over k as in RQ5, and over the load limit.")
@click.option("--plot", type=click.Path(path_type=Path), help="A picture of the plan or the sweep.")
@json_option
@field_options(Source, "Data, and files of your own")
@field_options(Config, "Configuration", without=set(Config.__struct_fields__) - _RELEVANT)
def plan(
    dataset: str | None,
    config_file: Path | None,
    sweep: bool,
    plot: Path | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Choose who computes which item, and say what that costs."""
    from lpgcn.report.picture import check_place
    from lpgcn.report.plans import plot_loads, plot_sweep
    from lpgcn.runtime.engines.simulated import token_graph
    from lpgcn.runtime.planning import plan_cost, planner_for

    if sweep and fields["max_load"]:
        raise click.UsageError("--sweep tries one load limit after the other: leave out --max-load")
    config = Config().changed(**asked(config_file, fields))
    if plot is not None:
        check_place(plot)
    split = source_asked(dataset, fields).resolved().open()
    graph = token_graph(split, config)
    if sweep:
        over_k, curves = _sweep(graph, split, config)
        if as_json:
            print_json({"candidates": over_k, "loads": curves})
        else:
            _show_sweep(over_k, curves)
        if plot is not None:
            plot_sweep(over_k, curves, plot)
            say(f"the picture is {plot}")
        return
    began = time.monotonic()
    with console(stderr=True).status("planning") as status:
        made = planner_for(split, config, _progress(status))(graph)
    seconds = time.monotonic() - began
    found = plan_cost(graph, made, config)
    if as_json:
        print_json({**msgspec.to_builtins(found), "seconds": round(seconds, 3)})
    else:
        title = f"{split.name} · α = {config.virtual_items} · planner {found.planner}"
        show(table(_figures(found, seconds), "figure", "value", title=title))
    if plot is not None:
        plot_loads(graph, [made], plot)
        say(f"the picture is {plot}")


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


def _sweep(graph: TokenGraph, split: Split, config: Config) -> Sweep:
    """The paper's figure over k, and traffic over the load limit: for every planner at hand, or
    for the one that was asked for."""
    from lpgcn.plan import Plan, cover
    from lpgcn.plan.partition import installed
    from lpgcn.plan.sweep import load_limits, sweep_candidates, sweep_loads
    from lpgcn.runtime.planning import plan_cost, plan_options

    def measure(plan: Plan) -> PlanCost:
        return plan_cost(graph, plan, config)

    options, seed = plan_options(split, config), config.seed
    never = options.never_convolve
    heaviest = measure(cover(graph, seed, never_convolve=never)).load_max
    planners: tuple[PlannerName, ...] = (options.planner,)
    if options.planner == "auto":
        planners = ("cover", "greedy", "partition") if installed() else ("cover", "greedy")
    with console(stderr=True).status("sweeping") as status:
        report = _progress(status)
        over_k = sweep_candidates(graph, seed, measure, never_convolve=never)
        limits = load_limits(graph, heaviest)
        curves: dict[str, Sequence[LoadPoint]] = {
            planner: sweep_loads(
                graph, planner, limits, seed, measure, options=options, progress=report
            )
            for planner in planners
        }
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
