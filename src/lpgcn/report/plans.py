"""Plans, seen: the loads of one, and the sweeps of RQ5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lpgcn.plan.cost import PlanCost, loads
from lpgcn.plan.graph import Plan, TokenGraph
from lpgcn.plan.sweep import LoadPoint
from lpgcn.report.charts import Series, line_chart
from lpgcn.report.page import Fact, Section, joined, page, paragraph, side_by_side, table
from lpgcn.report.picture import new_figure, plain_figures, save
from lpgcn.report.units import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curves = Mapping[str, Sequence[LoadPoint]]


def plot_loads(graph: TokenGraph, plans: Sequence[Plan], path: Path, title: str) -> None:
    """The load of every convolution-client, heaviest first, one curve and its mean per plan."""
    figure = new_figure(7.0, 4.6)
    axes = figure.subplots()
    for plan in plans:
        load = np.sort(loads(graph, plan)[plan.convolution_clients])[::-1]
        places = np.arange(1, load.size + 1)
        (curve,) = axes.plot(places, np.maximum(load, 1), "o-", markersize=2.5, label=plan.planner)
        mean = float(load.mean())
        axes.axhline(mean, linestyle=":", color=curve.get_color(), label=f"mean {mean:,.0f}")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="convolution-client, heaviest first",
        ylabel="load |N_ũ| (vectors received a layer)",
        title=title,
    )
    plain_figures(axes.xaxis)
    plain_figures(axes.yaxis)
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)


def plot_sweep(candidates: Sequence[PlanCost], curves: Curves, path: Path, title: str) -> None:
    """Left the paper's figure for RQ5, C and R against k; right traffic against the load limit."""
    figure = new_figure(11.0, 4.6)
    figure.suptitle(title)
    left, right = figure.subplots(1, 2)
    share = [100 * point.share for point in candidates]
    left.plot(share, [point.kilobytes for point in candidates], "o-", color="C0")
    left.set(xlabel="convolution-clients k (% of clients)", title="cover: k and traffic (RQ5)")
    left.set_ylabel("C (KB a client and step)", color="C0")
    left.set_ylim(bottom=0)
    utilization = left.twinx()
    utilization.plot(share, [point.utilization for point in candidates], "s--", color="C1")
    utilization.set_ylabel("utilization R", color="C1")
    utilization.set_ylim(bottom=0)
    for planner, points in curves.items():
        right.plot(
            [point.cost.load_max for point in points],
            [point.cost.kilobytes for point in points],
            "o-",
            label=planner,
        )
    most = [point.cost.kilobytes for points in curves.values() for point in points]
    right.set(
        xscale="log",
        ylim=(0, 1.08 * max(most, default=1.0)),
        xlabel="heaviest load max |N_ũ|",
        ylabel="C (KB a client and step)",
        title="traffic against load",
    )
    _few_ticks(right, [point.cost.load_max for points in curves.values() for point in points])
    right.legend()
    save(figure, path)


def _few_ticks(axes: Axes, values: Sequence[int]) -> None:
    """Five figures at most under a logarithmic axis; between powers of ten matplotlib would write
    one over the other."""
    from matplotlib.ticker import FixedLocator, NullFormatter, StrMethodFormatter

    low, high = min(values, default=1), max(values, default=1)
    places = np.unique(np.geomspace(max(low, 1), max(high, 1), 5).round()).tolist()
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def sweep_report(title: str, candidates: Sequence[PlanCost], curves: Curves) -> bytes:
    """The page about a sweep."""
    points = [(planner, point) for planner, part in curves.items() for point in part]
    facts = [
        Fact("clients", f"{candidates[0].clients:,}"),
        Fact("items", f"{candidates[0].tokens:,}"),
    ]
    sections = [_over_k(candidates)]
    if points:
        planner, best = min(points, key=lambda one: one[1].cost.bytes_per_client)
        heaviest = f"{planner}, heaviest load {best.cost.load_max:,}"
        facts.append(Fact("least traffic C found", size(best.cost.bytes_per_client), heaviest))
        sections.append(_against_load(points, curves))
    lead = "What a plan costs: bytes for everybody, or work for a few."
    return page(title, lead, facts, sections)


def _over_k(candidates: Sequence[PlanCost]) -> Section:
    charts = side_by_side(
        line_chart(
            "Traffic C over k",
            [Series("C", [(100 * one.share, one.kilobytes) for one in candidates])],
            "convolution-clients, % of clients", y_label="KB a client and step", from_zero=True,
        ),
        line_chart(
            "Utilization R over k",
            [Series("R", [(100 * one.share, one.utilization) for one in candidates], 1)],
            "convolution-clients, % of clients", from_zero=True,
        ),
    )  # fmt: skip
    rows = [
        [f"{one.convolution_clients:,}", f"{one.share:.1%}", f"{one.kilobytes:.2f}",
         f"{one.utilization:.2f}", f"{one.load_max:,}"]
        for one in candidates
    ]  # fmt: skip
    about = paragraph(
        "The planner cover, as the paper has it, from the fewest clients that list everything to "
        "all of them."
    )
    figures = table("cover", ["k", "of clients", "C in KB", "R", "heaviest load"], rows)
    return Section("More candidates for convolution (RQ5)", joined(about, charts, figures))


def _against_load(points: Sequence[tuple[str, LoadPoint]], curves: Curves) -> Section:
    lines = [
        Series(planner, sorted({(float(p.cost.load_max), p.cost.kilobytes) for p in part}), colour)
        for colour, (planner, part) in enumerate(curves.items())
        if part
    ]
    chart = line_chart(
        "Traffic C against the heaviest load", lines, "heaviest load, in neighbours",
        y_label="KB a client and step", from_zero=True, logarithmic=True,
    )  # fmt: skip
    rows = [
        [planner, f"{one.max_load:,}", f"{one.cost.load_max:,}", f"{one.cost.kilobytes:.2f}"]
        for planner, one in points
    ]
    heads = ["planner", "limit", "heaviest load", "C in KB"]
    figures = table("All plans", heads, rows, sortable=True)
    return Section("Traffic against load", joined(side_by_side(chart), figures))
