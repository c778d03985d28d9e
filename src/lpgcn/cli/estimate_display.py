"""What a training would cost, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lpgcn.cli.terminal import duration, size, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from lpgcn.runtime.estimation import Cost, Estimate, PaperCost, WallTime

_DAY: Final = 86_400


def estimate_report(found: Estimate, times: Sequence[WallTime]) -> list[RenderableType]:
    """Rounds and bytes part by part, how long they take, and the paper's beside them."""
    title = f"Estimate · {found.devices:,} devices · {found.items:,} items"
    headers = ("part", "times", "rounds", "up", "down", "heaviest: up", "down")
    lines = ("a round", "a device's line", "the training", "the server's line")
    return [
        table(_parts(found), *headers, title=title),
        _steps(found),
        table(_times(times), *lines, title="Wall time"),
        "A round takes its latency, and what its heaviest client receives and sends. What devices "
        "compute is left out. The server's line is what it carries in the mean, both ways "
        "together; it is not part of the time.",
        _paper(found),
    ]


def _steps(found: Estimate) -> str:
    how = f"{found.drawn_steps} of them were drawn and counted, and stand for all"
    if found.drawn_steps == found.steps:
        how = "all of them were counted"
    return (
        f"{found.steps:,} steps in {found.epochs:,} epochs, if it does not stop early; {how}. "
        "Up and down are bytes of the mean client; the heaviest has most of both together. Upkeep "
        "is losses, and checkpoints and best parameters at validations."
    )


def _paper(found: Estimate) -> str:
    paper = found.paper
    layers = "layer" if paper.layers == 1 else "layers"
    return (
        f"The paper's formulation, with model and {paper.layers} {layers} of this configuration, "
        f"in {paper.steps:,} steps of its own batch size{_assumption(paper)}: {paper.rounds:,} "
        f"rounds; a client has {size(paper.up)} up and {size(paper.down)} down, "
        f"{size(paper.up_per_step)} and {size(paper.down_per_step)} a step. This training has "
        f"{_share(found.share_of_paper_rounds)} of these rounds and "
        f"{_share(found.share_of_paper_bytes)} of these bytes."
    )


def _assumption(paper: PaperCost) -> str:
    from lpgcn.runtime.estimation import PAPER_EPOCHS, PAPER_STEPS

    if not paper.is_assumed:
        return ""
    how = f"{PAPER_EPOCHS} epochs, as many as {PAPER_STEPS:,} steps are on Gowalla"
    if paper.steps == PAPER_STEPS:
        how = f"{PAPER_STEPS:,} at most"
    return f" (our assumption: {how}; the paper tells no number, --paper-steps N gives another)"


def long_duration(seconds: float) -> str:
    """As `duration`, and 12.5 days."""
    return duration(seconds) if seconds < 2 * _DAY else f"{seconds / _DAY:,.1f} days"


def _parts(found: Estimate) -> list[list[str]]:
    parts = [
        ("beginning", 1, found.initialisation),
        ("step", found.steps, found.step),
        ("measurement", found.measurements, found.measurement),
        ("upkeep", 1, found.upkeep),
        ("training", 1, found.training),
    ]
    return [[name, f"{times:,}", *_figures(cost)] for name, times, cost in parts]


def _figures(cost: Cost) -> list[str]:
    sizes = (cost.up, cost.down, cost.heaviest_up, cost.heaviest_down)
    return [f"{cost.rounds:,}", *map(size, sizes)]


def _times(times: Sequence[WallTime]) -> list[list[str]]:
    return [
        [
            f"{time.latency * 1e3:g} ms",
            f"{time.bandwidth / 1e6:g} Mbit/s",
            long_duration(time.seconds),
            f"{time.server_bandwidth / 1e6:,.1f} Mbit/s",
        ]
        for time in times
    ]


def _share(share: float) -> str:
    """37 %, or 0.42 %."""
    return f"{share:.0%}" if share >= 0.1 else f"{share:.2%}"
