"""`lpgcn verify`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lpgcn.cli.options import SectionedCommand, field_options, given
from lpgcn.cli.terminal import console, json_option, print_json, say
from lpgcn.config import Config

if TYPE_CHECKING:
    from lpgcn.runtime.verification import Comparison


@click.command(
    cls=SectionedCommand,
    epilog="""\b
Examples:
  lpgcn verify demo --epochs 1
  lpgcn verify ml-100k --epochs 20 --workers 2 --plot lossless.png""",
)
@click.argument("dataset")
@click.option(
    "--combinations",
    type=click.Choice(["all", "given"]),
    default="all",
    help="Both models, both suites, with and without virtual items; or just the one given below.",
)
@click.option("--workers", type=click.IntRange(min=1), default=1, help="Processes for the clients.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    help="The picture of the curves; runs/verify-DATASET.png if it is not given.",
)
@json_option
@field_options(Config, "Configuration")
def verify(
    dataset: str,
    combinations: str,
    workers: int,
    plot: Path | None,
    as_json: bool,
    **fields: Any,
) -> int:
    """Show that nothing is lost: all ways to run, side by side.

    Trains DATASET centralised, simulated (which is the centralised arithmetic beside a plan and a
    ledger) and federated, for --epochs (3 if not given), and prints for each epoch the loss,
    Recall@5, NDCG@5 and the largest difference of any metric, of the loss or of any parameter from
    the centralised run. The exit code is 1 if any difference is not zero.
    """
    from lpgcn.data import load
    from lpgcn.report.curves import plot_comparisons
    from lpgcn.report.picture import can_draw
    from lpgcn.runtime.verification import verify as compare

    config = Config().changed(**{"epochs": 3, **given(Config, fields)})
    chosen: dict[str, Any] = {}
    if combinations == "given":
        chosen = {
            "models": [config.model],
            "suites": [config.suite],
            "virtual_items": [config.virtual_items],
        }
    elif fields["virtual_items"]:
        chosen = {"virtual_items": ["0", config.virtual_items]}
    split = load(dataset)
    say(f"{split.name}: {split.n_users:,} users, fingerprint {split.fingerprint[:12]}")
    lines: list[Comparison] = []
    screen = console(stderr=as_json)
    for line in compare(split, config, epochs=config.epochs, workers=workers, **chosen):
        if not lines or (line.model, line.virtual_items, line.run) != _series(lines[-1]):
            alpha = f"α = {line.virtual_items}"
            screen.print(f"\n{line.model}, {alpha}: {line.run}", style="bold")
            screen.print("epoch      loss   Recall@5    NDCG@5   largest difference")
        lines.append(line)
        screen.print(
            f"{line.epoch:5d}  {line.loss:8.5f}  {line.recall:9.6f} {line.ndcg:9.6f}   "
            f"{line.difference:g}",
            style="" if line.difference == 0 else "bold red",
        )
    if plot is not None or can_draw():
        path = plot or Path(f"runs/verify-{split.name}.png")
        plot_comparisons(lines, path, f"{split.name}: centralised and federated")
        say(f"the curves are in {path}")
    else:
        say("no picture of the curves: for one, install `lpgcn[plot]`")
    worst = max(line.difference for line in lines)
    verdict = "lossless" if worst == 0 else "NOT lossless"
    if as_json:
        print_json({"difference": worst, "lossless": worst == 0, "epochs": lines})
    else:
        screen.print(f"\nlargest difference of all: {worst:g}: {verdict}", style="bold")
    return int(worst != 0)


def _series(line: Comparison) -> tuple[str, str, str]:
    return line.model, line.virtual_items, line.run
