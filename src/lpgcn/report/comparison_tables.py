"""The table of a comparison as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from lpgcn.evaluation import METRICS
from lpgcn.methods.comparison.results import Figure, ModelRow, PairedTest
from lpgcn.report.units import duration, metric_name, size

COLUMNS = ("best epoch", "rounds", "bytes a client", "time", "seeds")


def cells(row: ModelRow, metrics: Sequence[str]) -> list[str]:
    """For people: the model, the metrics, and what they cost; `remarks` has the rest."""
    if not row.seeds:
        state = "failed" if row.failures else "not finished"
        return [row.label, state, *["–"] * (len(metrics) - 1 + len(COLUMNS))]
    return [
        row.label,
        *(_figure(row.metrics[name]) if name in row.metrics else "–" for name in metrics),
        _number(row.best_epoch),
        _number(row.rounds),
        "–" if row.bytes is None else ("≥ " if row.at_least else "") + size(row.bytes),
        "–" if row.seconds is None else duration(row.seconds),
        f"{row.seeds}",
    ]


def markdown(rows: Sequence[ModelRow], metrics: Sequence[str], test: PairedTest | None) -> str:
    header = ["model", *map(metric_name, metrics), *COLUMNS]
    rules = ["---", *["--:"] * (len(header) - 1)]
    lines = [header, rules, *(cells(row, metrics) for row in rows)]
    text = "".join(f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |\n" for line in lines)
    return text + "".join(f"\n{line}\n" for line in remarks(rows, test))


def remarks(rows: Sequence[ModelRow], test: PairedTest | None) -> list[str]:
    """What stands below the table: who failed and why, who is missing, and who is better."""
    found = [f"{row.label} failed: {why}" for row in rows for why in dict.fromkeys(row.failures)]
    missing = [f"{row.label} ({row.unfinished} of {row.planned})" for row in rows if row.unfinished]
    found += [f"Not finished: {', '.join(missing)}."] if missing else []
    return [*found, *([sentence(test)] if test else [])]


def latex(rows: Sequence[ModelRow], metrics: Sequence[str]) -> str:
    """The tabular alone, with booktabs' rules; the most accurate of each metric is bold."""
    finished = [row for row in rows if row.seeds]
    best = {
        name: max((row.metrics[name].mean for row in finished if name in row.metrics), default=0.0)
        for name in metrics
        if name.partition("@")[0] in METRICS
    }
    lines = [rf"\begin{{tabular}}{{l{'r' * len(metrics)}}}", r"\toprule"]
    lines.append(" & ".join(["Method", *map(metric_name, metrics)]) + r" \\")
    lines.append(r"\midrule")
    for row in rows:
        figures = [_latex_figure(row.metrics.get(name), best.get(name)) for name in metrics]
        lines.append(" & ".join([_escaped(row.label), *figures]) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def comma_separated(rows: Sequence[ModelRow], metrics: Sequence[str]) -> str:
    """Figures without rounding."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    spread = [part for name in metrics for part in (name, f"{name} deviation")]
    costs = ("seeds", "best_epoch", "rounds", "bytes", "seconds", "failures", "unfinished")
    writer.writerow(["model", *spread, *costs])
    for row in rows:
        figures = [row.metrics.get(name) for name in metrics]
        numbers = [n for one in figures for n in ((one.mean, one.deviation) if one else ("", ""))]
        about = [row.seeds, row.best_epoch, row.rounds, row.bytes, row.seconds]
        writer.writerow([row.label, *numbers, *about, "; ".join(row.failures), row.unfinished])
    return text.getvalue()


def sentence(test: PairedTest) -> str:
    names = f"{test.better} is better than {test.other}"
    if test.p >= 0.05:
        names = f"{test.better} and {test.other} cannot be told apart"
    low, high = test.interval
    return (
        f"{names} by {metric_name(test.metric)} (+{test.difference:.4f}, 95 %: {low:+.4f} to "
        f"{high:+.4f}, paired over {test.users:,} users, p = {test.p:.2g})."
    )


def _figure(figure: Figure) -> str:
    spread = "" if figure.deviation is None else f" ± {figure.deviation:.4f}"
    return f"{figure.mean:.4f}{spread}"


def _latex_figure(figure: Figure | None, best: float | None) -> str:
    if figure is None:
        return "--"
    mean = f"{figure.mean:.4f}"
    shown = rf"\textbf{{{mean}}}" if figure.mean == best else mean
    return shown if figure.deviation is None else rf"{shown}{{\tiny$\pm${figure.deviation:.4f}}}"


def _escaped(text: str) -> str:
    return text.replace("_", r"\_").replace("&", r"\&").replace("%", r"\%")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
