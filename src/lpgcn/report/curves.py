"""Losslessness, seen (RQ1): loss, Recall@5 and NDCG@5 of all ways to run, on one another.

Colours are models and α. Ways to run are told apart in words only: that their curves cannot be told
apart is the point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from lpgcn.data import Split
from lpgcn.report.charts import Series, line_chart
from lpgcn.report.page import Fact, Html, Section, joined, losslessness, page, side_by_side, table
from lpgcn.report.picture import new_figure, save
from lpgcn.runtime.verification import EpochDifference

PANELS: Final = (("loss", "Training loss"), ("recall", "Recall@5"), ("ndcg", "NDCG@5"))
_CENTRALIZED: Final = "centralized"


def ways(lines: Sequence[EpochDifference]) -> list[str]:
    """Those that are compared with the centralised run."""
    return [run for run in dict.fromkeys(line.run for line in lines) if run != _CENTRALIZED]


def plot_comparisons(lines: Sequence[EpochDifference], path: Path, title: str) -> None:
    """One panel for each figure, one colour for each model and α."""
    figure = new_figure(15.0, 4.8)
    worst = max(line.difference for line in lines)
    figure.suptitle(f"{title}; largest difference {worst:g}", fontsize=13)
    figure.supxlabel(
        f"broad: centralised; thin, on it: {'; '.join(ways(lines))}", fontsize=9, wrap=True
    )
    panels = figure.subplots(1, len(PANELS))
    for panel, (name, label) in zip(panels, PANELS, strict=True):
        for one in _series(lines, name):
            panel.plot(
                *zip(*one.points, strict=True),
                "-" if one.under else "o-",
                color=f"C{one.colour}",
                label=None if one.silent else one.name,
                linewidth=8.0 if one.under else 1.2,
                markersize=3.0,
                alpha=0.3 if one.under else 1.0,
            )
        panel.set_xlabel("epoch")
        panel.xaxis.get_major_locator().set_params(integer=True)
        panel.set_title(label)
        panel.grid(alpha=0.3)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", fontsize=10)
    save(figure, path)


def verification_report(split: Split, lines: Sequence[EpochDifference]) -> bytes:
    """The page about a verification."""
    worst = max(line.difference for line in lines)
    epochs = max(line.epoch for line in lines)
    facts = [
        Fact("largest difference", f"{worst:g}", "of any parameter or figure",
             "good" if worst == 0 else "bad"),
        Fact("ways to run", f"{len(ways(lines))}", "beside the centralised one"),
        Fact("epochs", f"{epochs}", f"{len(lines)} comparisons"),
        Fact(split.name, f"{split.n_users:,} users", f"fingerprint {split.fingerprint[:12]}"),
    ]  # fmt: skip
    charts = [line_chart(label, list(_series(lines, name)), "epoch") for name, label in PANELS]
    rows = [
        [line.model, line.virtual_items, line.run, f"{line.epoch}", f"{line.loss:.5f}",
         f"{line.recall:.6f}", f"{line.ndcg:.6f}", f"{line.difference:g}"]
        for line in lines
    ]  # fmt: skip
    headers = [
        "model", "α", "way to run", "epoch", "loss", "Recall@5", "NDCG@5", "largest difference"
    ]  # fmt: skip
    sections = [
        Section("Whether anything is lost", joined(_verdict(lines, worst), side_by_side(*charts))),
        Section("Line by line", table("Every epoch of every run", headers, rows, sortable=True)),
    ]
    lead = "All ways to run the same training, side by side, after every epoch."
    return page(f"{split.name}: is anything lost?", lead, facts, sections)


def _verdict(lines: Sequence[EpochDifference], worst: float) -> Html:
    return losslessness(
        worst,
        f"Compared with the centralised run (the broad lines) are: {'; '.join(ways(lines))}. A "
        "difference is the largest of any parameter, of its Adam state, of any final vector, of "
        "the loss or of any metric.",
    )


def _series(lines: Sequence[EpochDifference], figure: str) -> Iterator[Series]:
    """The centralised curve of each model and α under all the others."""
    colours: dict[tuple[str, str], int] = {}
    for (model, alpha, run), part in groupby(
        lines, key=lambda line: (line.model, line.virtual_items, line.run)
    ):
        central = run == _CENTRALIZED
        yield Series(
            f"{model}, α = {alpha}",
            [(float(line.epoch), float(getattr(line, figure))) for line in part],
            colours.setdefault((model, alpha), len(colours)),
            under=central,
            silent=not central,
        )
