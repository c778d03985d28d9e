"""Printing: results to standard output, everything else to standard error; colour on terminals."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from lpgcn.report.units import counted as counted
from lpgcn.report.units import duration as duration
from lpgcn.report.units import metric_name
from lpgcn.report.units import size as size

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lpgcn.runtime.runs.recommendations import Recommendation
    from lpgcn.runtime.runs.run_folder import Summary
    from lpgcn.runtime.traffic import TrafficSummary

_WIDEST: Final = 1000
json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object instead of text."
)


def console(*, stderr: bool) -> Console:
    """Text is printed as it is: ids and paths may look like markup."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def say(message: str, *, style: str = "", label: str = "") -> None:
    """A line on standard error."""
    from rich.text import Text

    head = Text(f"{label}: ", style=f"bold {style}") if label else Text()
    console(stderr=True).print(head + Text(message), soft_wrap=True)


def warn(message: object) -> None:
    """A line on standard error that somebody should read."""
    say(str(message), style="yellow", label="warning")


def show(*parts: RenderableType) -> None:
    """The result for people."""
    for part in parts:
        # A figure that is cut is none: a table that is too wide goes beyond the edge.
        console(stderr=False).print(part, soft_wrap=isinstance(part, str), crop=False)


def print_json(result: Any) -> None:
    """The result for programs: one line."""
    click.echo(msgspec.json.encode(result).decode())


def table(rows: Sequence[Sequence[str]], *headers: str, title: str = "") -> RenderableType:
    """Names to the left, figures to the right; only texts beside these are broken into lines."""
    from rich import box
    from rich.cells import cell_len
    from rich.console import Group
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    rows = [[_harmless(cell) for cell in row] for row in rows]
    longest = [
        max(cell_len(row[place]) for row in (headers, *rows)) for place in range(len(headers))
    ]
    is_wide = sum(longest) + 3 * len(headers) > console(stderr=False).width
    made = Table(box=box.SIMPLE_HEAD)
    for place, header in enumerate(headers):
        cells = [row[place] for row in rows]
        figures = all(cell[:1] in "-–≥0123456789" for cell in cells)
        whole = figures or place == 0
        # The longest cell, or the heading; of a table that is too wide, its longest word.
        heading = header.split() if is_wide else [header]
        width = max(1, *map(cell_len, (*cells, *heading)))
        made.add_column(
            "\n".join(textwrap.wrap(header, width)) if whole and is_wide else header,
            justify="right" if figures else "left",
            no_wrap=whole,
            width=width if whole else None,
        )
    for row in rows:
        made.add_row(*row)
    if is_wide:
        screen = console(stderr=False)
        unbounded = screen.options.update(max_width=_WIDEST)
        made.width = max(screen.width, Measurement.get(screen, unbounded, made).minimum)
    return Group(Text(title, style="italic"), made) if title else made


def _harmless(cell: str) -> str:
    """Without what steers a terminal: items are called what somebody else calls them."""
    return "".join(letter for letter in cell if letter.isprintable() or letter == "\n")


def ranking_table(found: Sequence[Recommendation], title: str) -> RenderableType:
    """Items from the best down, with their scores."""
    rows = [(f"{rank}", f"{one.item}", f"{one.score:.4f}") for rank, one in enumerate(found, 1)]
    return table(rows, "rank", "item", "score", title=title)


def metrics_table(columns: Mapping[str, Mapping[str, float]], title: str = "") -> RenderableType:
    """A row for each metric@K, a column for each part of the data that was measured."""
    metrics = next(iter(columns.values()))
    rows = [[metric_name(m), *(f"{values[m]:.4f}" for values in columns.values())] for m in metrics]
    return table(rows, "metric", *columns, title=title)


def summary_report(summary: Summary, way: str, where: str) -> list[RenderableType]:
    """What came out of a run, in which way it was run, and where more is."""
    title = f"{summary.dataset} · {summary.model} · {way}"
    measured = {"validation": summary.valid, "test": summary.test}
    parts = {name: values for name, values in measured.items() if values}
    trained = f"Best epoch {summary.best_epoch} of {summary.epochs}"
    if not summary.valid:
        trained = f"{counted(summary.epochs, 'epoch')}, not validated"
    tested = f"{counted(summary.test_users, 'user')} tested"
    if not summary.test:
        tested = "nothing was held out to test"
    return [
        metrics_table(parts, title) if parts else title,
        f"{trained}; {counted(summary.steps, 'step')} in {duration(summary.seconds)}; {tested}.",
        where,
        *([] if summary.traffic is None else traffic_report(summary.traffic)),
    ]


def traffic_report(traffic: TrafficSummary) -> list[RenderableType]:
    """What was sent: the ledger, and the mean client beside the paper's formulation."""
    rows = [
        [line.stage, line.direction, line.role, f"{line.messages:,}", size(line.bytes)]
        for line in traffic.ledger
    ]
    shown = table(rows, "stage", "direction", "clients", "messages", "bytes", title="Traffic")
    a_step = (
        f"A client uploads {size(traffic.up_per_step)} and downloads "
        f"{size(traffic.down_per_step)} a step, in {traffic.rounds_per_step} rounds"
    )
    if (plan := traffic.plan) is None:
        return [shown, f"{a_step}: the mean of all clients, whether they take part in it or not."]
    paper = (
        f"the paper's formulation has {size(plan.paper_up_per_step)} and "
        f"{size(plan.paper_down_per_step)}"
    )
    share = traffic.share_of_paper
    return [
        shown,
        f"Plan {plan.planner}: {plan.convolution_clients:,} convolution-clients, at most "
        f"{plan.max_load:,} neighbours each; the paper's C is {size(plan.cost_per_client)}.",
        f"{a_step}; {paper}: ours is {share:.0%} of both together."
        if share is not None
        else f"No step was taken since the run was resumed, so none was counted; {paper}.",
    ]
