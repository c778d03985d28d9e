"""Pictures of plans: the loads of one, and the sweeps of RQ5."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lpgcn.plan.cost import PlanCost, loads
from lpgcn.plan.graph import Plan, TokenGraph
from lpgcn.plan.sweep import LoadPoint
from lpgcn.report.picture import new_figure, save


def plot_loads(graph: TokenGraph, plans: Sequence[Plan], path: Path) -> None:
    """The load of every convolution-client, heaviest first, one curve per plan."""
    figure = new_figure(6.0)
    axes = figure.subplots()
    for plan in plans:
        load = np.sort(loads(graph, plan)[plan.convolution_clients])[::-1]
        axes.plot(np.arange(1, load.size + 1), np.maximum(load, 1), label=plan.planner)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="convolution-client, heaviest first",
        ylabel="load |N_ũ| (vectors received a layer)",
    )
    axes.legend()
    save(figure, path)


def plot_sweep(
    candidates: Sequence[PlanCost], curves: Mapping[str, Sequence[LoadPoint]], path: Path
) -> None:
    """Left the paper's figure for RQ5, C and R against k; right traffic against the load limit."""
    figure = new_figure(11.0)
    left, right = figure.subplots(1, 2)
    share = [100 * point.share for point in candidates]
    left.plot(share, [point.kilobytes for point in candidates], "o-", color="C0")
    left.set(xlabel="convolution-clients k (% of clients)", title="cover: k and traffic (RQ5)")
    left.set_ylabel("C (KB a client and step)", color="C0")
    utilization = left.twinx()
    utilization.plot(share, [point.utilization for point in candidates], "s--", color="C1")
    utilization.set_ylabel("utilization R", color="C1")
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
    right.legend()
    save(figure, path)
