"""`lpgcn plan`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from lpgcn.cli.options import (
    ONLY_BACKBONES,
    WITHOUT_FEATURES,
    SectionedCommand,
    asked,
    config_option,
    field_options,
    given,
    overwrite_option,
    source_asked,
)
from lpgcn.cli.report import check_places, report_option
from lpgcn.cli.terminal import console, duration, json_option, print_json, say, show, size, table
from lpgcn.config import Config, PlannerName
from lpgcn.runtime.runs.source import FEATURES, Source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from lpgcn.data import Split
    from lpgcn.plan import Plan, PlanCost, Progress, TokenGraph
    from lpgcn.plan.sweep import LoadPoint

    Sweep = tuple[Sequence[PlanCost], Mapping[str, Sequence[LoadPoint]]]


_RELEVANT: Final = {
    "layers", "dim", "dtype", "seed", "virtual_items", "virtual_draw", "cooccurrence", "list_sizes",
    "planner", "max_load",
    "max_items_per_client", "never_convolve", "convolution_clients",
}  # fmt: skip
"""What a plan and its costs depend on."""
_ESTIMATED: Final = {
    "model", "user_feature_dim", "item_feature_dim", "loss", "negatives", "answers", "groups",
    "batch_size", "epochs", "eval_every",
    "suite", "at",
}  # fmt: skip
"""What a training costs beside that."""
_FIELDS: Final = set(Config.__struct_fields__)
LATENCIES: Final = (50.0, 500.0)
"""Milliseconds a round."""
BANDWIDTHS: Final = (1.0, 10.0)
"""Mbit/s of a device."""


@click.command(
    cls=SectionedCommand,
    epilog="""\b
Examples:
  lpgcn plan gowalla --layers 4 --planner cover
  lpgcn plan gowalla --layers 4 --virtual-items 10 --max-load 2000 --plot loads.png
  lpgcn plan yelp2018 --layers 3 --sweep --plot sweep.png --report sweep.html
  lpgcn plan gowalla --config configs/gowalla-few-rounds.toml --planner greedy \\
    --estimate --devices 1000 --latency 200 --bandwidth 5

\b
On a large data set the planner auto takes minutes, and cover and greedy take seconds.""",
)
@click.argument("dataset", required=False)
@config_option
@click.option("--sweep", is_flag=True, help="Cost over k as in RQ5, and over the load limit.")
@click.option("--plot", type=click.Path(path_type=Path), help="A picture of the plan or the sweep.")
@overwrite_option
@click.option(
    "--estimate",
    "estimated",
    is_flag=True,
    help="Rounds, bytes and wall time of a whole training, which is not run.",
)
@click.option(
    "--devices",
    metavar="N",
    type=click.IntRange(min=1),
    help="A federation of N users drawn at random, and of their items; all if not given.",
)
@click.option(
    "--latency",
    metavar="MS",
    type=click.FloatRange(min=0),
    multiple=True,
    help="With --estimate: milliseconds a round; can be repeated.  [default: 50 500]",
)
@click.option(
    "--bandwidth",
    metavar="MBIT",
    type=click.FloatRange(min=0, min_open=True),
    multiple=True,
    help="With --estimate: Mbit/s of a device, up as down; can be repeated.  [default: 1 10]",
)
@click.option(
    "--paper-steps",
    metavar="N",
    type=click.IntRange(min=1),
    help="With --estimate: steps of the paper's training, to compare with; it does not tell them."
    "  [default: 277 epochs of batches of 2,048, as on Gowalla; 100000 at most]",
)
@report_option
@json_option
@field_options(Source, "Data, and files of your own", without=FEATURES)
@field_options(Config, "Configuration", without=_FIELDS - _RELEVANT)
@field_options(
    Config,
    "Configuration that only an estimate depends on",
    without=_FIELDS - _ESTIMATED,
    saying={**ONLY_BACKBONES, **WITHOUT_FEATURES},
)
def plan(
    dataset: str | None,
    config_file: Path | None,
    sweep: bool,
    plot: Path | None,
    overwrite: bool,
    estimated: bool,
    devices: int | None,
    page: Path | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Choose who computes which item, and say what that costs."""
    from lpgcn.report.plans import plot_loads
    from lpgcn.runtime.engines.simulated import token_graph
    from lpgcn.runtime.planning import plan_cost, planner_for

    _check_flags(fields, sweep=sweep, estimated=estimated, page=page)
    config = Config().changed(**asked(config_file, fields))
    check_places(page, plot, overwrite=overwrite)
    split = _federation(source_asked(dataset, fields).resolved().open(), config, devices)
    graph = token_graph(split, config)
    if sweep:
        over_k, curves = _sweep(graph, split, config)
        if as_json:
            print_json({"candidates": over_k, "loads": curves, "config": config})
        else:
            _show_sweep(over_k, curves)
        title = f"{split.name}, α = {config.virtual_items}: plans and what they cost"
        _keep_sweep((over_k, curves), title, plot, page)
        return
    began = time.monotonic()
    with console(stderr=True).status("planning") as status:
        made = planner_for(split, config, _progress(status))(graph)
    seconds = time.monotonic() - began
    found = plan_cost(graph, made, config)
    result = {**msgspec.to_builtins(found), "seconds": round(seconds, 3), "config": config}
    title = f"{split.name} · α = {config.virtual_items} · planner {found.planner}"
    parts = [table(_figures(found, seconds), "figure", "value", title=title)]
    if estimated:
        estimate, shown = _estimated(split, config, made, fields)
        result["estimate"], parts = estimate, parts + shown
    if as_json:
        print_json(result)
    else:
        show(*parts)
    if plot is not None:
        plot_loads(graph, [made], plot, title)
        say(f"the picture is {plot}")


def _keep_sweep(found: Sweep, title: str, plot: Path | None, page: Path | None) -> None:
    from lpgcn.report.page import write
    from lpgcn.report.plans import plot_sweep, sweep_report

    if plot is not None:
        plot_sweep(*found, plot, title)
        say(f"the picture is {plot}")
    if page is not None:
        write(page, sweep_report(title, *found), overwrite=True)
        say(f"the report is {page}")


def _check_flags(
    fields: dict[str, Any], *, sweep: bool, estimated: bool, page: Path | None
) -> None:
    if page is not None and not sweep:
        raise click.UsageError("--report is about a sweep: add --sweep, or leave it out")
    if sweep and fields["max_load"]:
        raise click.UsageError("--sweep tries one load limit after the other: leave out --max-load")
    if sweep and estimated:
        raise click.UsageError("--estimate is about one plan: leave out --sweep")
    if not estimated:
        about_it = [name for name in ("latency", "bandwidth", "paper_steps") if fields[name]]
        about_it += [name for name in given(Config, fields) if name in _ESTIMATED]
        for name in about_it:
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{flag} is about an estimate: add --estimate")


def _federation(split: Split, config: Config, devices: int | None) -> Split:
    """So many users of a data set, or all."""
    from lpgcn.runtime.estimation import some_users

    if devices is None:
        return split
    if config.never_convolve is not None:
        raise click.UsageError(
            "--never-convolve names users whom --devices may not draw: leave out one of both"
        )
    return some_users(split, devices, config.seed)


def _estimated(
    split: Split, config: Config, made: Plan, fields: dict[str, Any]
) -> tuple[dict[str, Any], list[RenderableType]]:
    """For programs, and for people."""
    from lpgcn.cli.estimate_display import estimate_report
    from lpgcn.runtime.estimation import estimate

    found = estimate(split, config, made, paper_steps=fields["paper_steps"])
    times = [
        found.wall_time(milliseconds / 1e3, megabits * 1e6)
        for milliseconds in fields["latency"] or LATENCIES
        for megabits in fields["bandwidth"] or BANDWIDTHS
    ]
    result = {
        **msgspec.to_builtins(found),
        "share_of_paper_rounds": found.share_of_paper_rounds,
        "share_of_paper_bytes": found.share_of_paper_bytes,
        "times": times,
    }
    return result, estimate_report(found, times)


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
    from lpgcn.plan import cover
    from lpgcn.plan.partition import installed
    from lpgcn.plan.sweep import load_limits, sweep_candidates, sweep_loads
    from lpgcn.runtime.planning import plan_cost, plan_options

    def measure(plan: Plan) -> PlanCost:
        return plan_cost(graph, plan, config)

    options, seed = plan_options(config, split), config.seed
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
