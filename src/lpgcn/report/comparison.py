"""The files of a comparison: tables, figures, pictures of convergence (RQ4) and layers (RQ3)."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from lpgcn import __version__
from lpgcn.files import write_atomically
from lpgcn.methods.comparison.results import ModelRow, Outcome, PairedTest, curves, rows
from lpgcn.report.comparison_tables import comma_separated, latex, markdown
from lpgcn.report.picture import can_draw, new_figure, plain_figures, save
from lpgcn.report.units import metric_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """`comparison.json`."""

    dataset: str
    fingerprint: str
    version: str
    command: str
    """What was asked for last."""
    metrics: Sequence[str]
    rows: list[ModelRow]
    test: PairedTest | None
    runs: list[Outcome]


def write_comparison(
    out: Path,
    outcomes: Sequence[Outcome],
    metrics: Sequence[str],
    test: PairedTest | None,
    name: str,
) -> None:
    """Tables, all figures, and pictures where matplotlib is installed."""
    found, done = rows(outcomes), [one.summary for one in outcomes if one.summary]
    whole = Comparison(
        dataset=name,
        fingerprint=done[0].fingerprint if done else "",
        version=__version__,
        command=shlex.join(["lpgcn", *sys.argv[1:]]),
        metrics=metrics,
        rows=found,
        test=test,
        runs=list(outcomes),
    )
    files = {
        "table.md": markdown(found, metrics, test),
        "table.tex": latex(found, metrics),
        "table.csv": comma_separated(found, metrics),
        "comparison.json": msgspec.json.format(msgspec.json.encode(whole), indent=1).decode(),
    }
    for file, text in files.items():
        write_atomically(out / file, text.encode())
    if can_draw() and done:
        drawn = curves(outcomes, metrics[0])
        if drawn:
            plot_convergence(drawn, metrics[0], out / "convergence.png", name)
        if layers := _by_layers(outcomes, found):
            plot_layers(layers, metrics[0], out / "layers.png", name)


def _by_layers(
    outcomes: Sequence[Outcome], found: Sequence[ModelRow]
) -> dict[str, dict[int, ModelRow]]:
    """The finished rows of models that were run with several numbers of layers."""
    by_label = {row.label: row for row in found if row.seeds}
    models: dict[str, dict[int, ModelRow]] = {}
    for entry in (one.entry for one in outcomes):
        if entry.variant.startswith("L=") and entry.label in by_label:
            models.setdefault(entry.model, {})[entry.config.layers] = by_label[entry.label]
    return models


def plot_convergence(
    curves: Mapping[str, Sequence[Outcome]], metric: str, path: Path, name: str
) -> None:
    """Validation against epochs, rounds and bytes, the mean of the seeds, up to where the first one
    stops."""
    every: Sequence[tuple[str, Callable[[Outcome, int], float | None]]] = (
        ("epochs", lambda one, epoch: float(epoch)),
        ("rounds", lambda one, epoch: one.rounds(epoch)),
        ("MB a client, up and down", lambda one, epoch: _megabytes(one.bytes(epoch))),
    )
    # Data centres have no rounds and no bytes: without a federation there is nothing to draw there.
    panels = [
        (label, drawn)
        for label, place in every
        if any(drawn := [_points(runs, metric, place) for runs in curves.values()])
    ]
    figure = new_figure(5.0 * len(panels), 4.5)
    for axes, (label, drawn) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        for number, (model, points) in enumerate(zip(curves, drawn, strict=True)):
            _draw(axes, model, number, points)
        axes.set(xlabel=label, ylabel=f"validation {metric_name(metric)}", xscale="log")
        plain_figures(axes.xaxis)
        axes.grid(alpha=0.3)
    figure.get_axes()[0].legend(fontsize="small")
    figure.suptitle(name)
    save(figure, path)


def plot_layers(
    rows: Mapping[str, Mapping[int, ModelRow]], metric: str, path: Path, name: str
) -> None:
    """A metric against the number of layers, a line for each model."""
    figure = new_figure(6.0)
    axes = figure.subplots()
    for model, by_layers in rows.items():
        layers = sorted(by_layers)
        figures = [by_layers[count].metrics[metric] for count in layers]
        spread = [one.deviation or 0.0 for one in figures]
        axes.errorbar(layers, [one.mean for one in figures], spread, marker="o", label=model)
    axes.set(xlabel="layers L", ylabel=f"test {metric_name(metric)}", title=name)
    axes.set_xticks(sorted({count for by_layers in rows.values() for count in by_layers}))
    axes.legend()
    save(figure, path)


def _points(
    outcomes: Sequence[Outcome], metric: str, place: Callable[[Outcome, int], float | None]
) -> list[tuple[float, float]]:
    of_epochs: dict[int, list[float]] = {}
    for one in outcomes:
        for epoch in one.epochs:
            if epoch.valid and metric in epoch.valid:
                of_epochs.setdefault(epoch.epoch, []).append(epoch.valid[metric])
    known = next((one for one in outcomes if one.summary is not None), outcomes[0])
    return [
        (where, sum(values) / len(values))
        for epoch, values in sorted(of_epochs.items())
        # A mean over fewer and fewer seeds would jump where one of them stops.
        if len(values) == len(outcomes) and (where := place(known, epoch)) is not None
    ]


def _draw(axes: Axes, model: str, number: int, points: Sequence[tuple[float, float]]) -> None:
    if points:
        style = "o-" if len(points) == 1 else ("-", "--", ":")[number // 10 % 3]
        axes.plot(*zip(*points, strict=True), style, label=model, color=f"C{number % 10}")


def _megabytes(count: float | None) -> float | None:
    return None if count is None else count / 1e6
