"""The curves of RQ1: loss, Recall@5 and NDCG@5 of all ways to run, one over the other."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from lpgcn.report.picture import new_figure, save
from lpgcn.runtime.verification import Comparison

_STYLES: Final = {
    "centralized": ("-", 7.0, "broad lines"),
    "simulated": ("--", 3.0, "dashes"),
    "federated sealed": ("o", 2.5, "dots"),
    "federated paper": ("x", 4.0, "crosses"),
}
"""Line, width and what that is called, whatever the plan: curves that are equal lie in one another
and are still all seen."""


def plot_comparisons(lines: Sequence[Comparison], path: Path, title: str) -> None:
    """One panel for each figure, one colour for each model and α, one style for each way to run."""
    figure = new_figure(15.0)
    worst = max(line.difference for line in lines)
    runs = {line.run.partition(",")[0]: None for line in lines}
    key = ", ".join(f"{run}: {_STYLES[run][2]}" for run in runs)
    figure.suptitle(f"{title}; largest difference {worst:g}\n{key}", fontsize=11)
    panels = figure.subplots(1, 3)
    for panel, (name, label) in zip(
        panels, (("loss", "Training loss"), ("recall", "Recall@5"), ("ndcg", "NDCG@5")), strict=True
    ):
        colours: dict[tuple[str, str], str] = {}
        for (model, alpha, run), part in groupby(
            lines, key=lambda line: (line.model, line.virtual_items, line.run)
        ):
            points = list(part)
            style, width, _ = _STYLES[run.partition(",")[0]]
            panel.plot(
                [line.epoch for line in points],
                [getattr(line, name) for line in points],
                style,
                color=colours.setdefault((model, alpha), f"C{len(colours)}"),
                label=f"{model}, α = {alpha}" if run == "centralized" else None,
                linewidth=width,
                markersize=1.5 * width,
                alpha=0.6,
            )
        panel.set_xlabel("epoch")
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.set_title(label)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=10)
    save(figure, path)
