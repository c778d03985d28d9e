"""`lpgcn verify`."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lpgcn.cli.options import (
    ONLY_BACKBONES,
    SectionedCommand,
    asked,
    config_option,
    field_options,
    new_name,
    overwrite_option,
    source_asked,
)
from lpgcn.cli.report import check_places, report_option
from lpgcn.cli.terminal import console, counted, json_option, print_json, say, warn
from lpgcn.config import Config
from lpgcn.runtime.runs.source import Source

if TYPE_CHECKING:
    from rich.console import Console

    from lpgcn.model.backbones import Backbone
    from lpgcn.runtime.verification import EpochDifference

_AXES: Final = {"model": "models", "suite": "suites", "virtual_items": "virtual_items"}


@click.command(
    cls=SectionedCommand,
    epilog="""\b
Examples:
  lpgcn verify demo
  lpgcn verify demo --workers 2 --report lossless.html
  lpgcn verify ml-100k --all --epochs 20 --workers 2 --plot lossless.png
  lpgcn verify demo --model mypackage.mymodule:MyBackbone
  lpgcn verify demo --model ngcf --item-features items.parquet
  lpgcn verify ml-100k --all --model lightgcn --suite sealed --virtual-items 1.0x""",
)
@click.argument("dataset", required=False)
@config_option
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Both LightGCN models, both suites, without and with virtual items, and other plans.",
)
@click.option("--workers", type=click.IntRange(min=1), default=1, help="Processes for the clients.")
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    help="The picture of the curves; a new one in runs/ if it is not given.",
)
@overwrite_option
@report_option
@json_option
@field_options(Source, "Data, and files of your own")
@field_options(
    Config,
    "Configuration",
    without={"mode", "patience", "eval_every"},
    saying=ONLY_BACKBONES,
)
def verify(
    dataset: str | None,
    config_file: Path | None,
    everything: bool,
    workers: int,
    plot: Path | None,
    overwrite: bool,
    page: Path | None,
    as_json: bool,
    **fields: Any,
) -> int:
    """Show that nothing is lost: all ways to run, side by side.

    Trains DATASET centralised, simulated (which is the centralised arithmetic beside a plan and a
    ledger) and federated, for --epochs (2 if not given), and prints for each epoch the loss,
    Recall@5, NDCG@5 and the largest difference of any metric, of the loss or of any parameter from
    the centralised run. Without --all that is one model, suite, plan and number of virtual items;
    with it LightGCN and LightGCN+, suite sealed with three plans and paper with one, no virtual
    items and as many as real ones, or only what --model, --suite, --virtual-items and --planner
    name; other backbones one by one, with --model. A backbone is first asked on its own whether its
    derivatives are those of finite differences, and of autograd if torch is installed, and its rows
    the same alone and in a table. The exit code is 1 if that is
    not so, or if any difference is not zero.
    """
    from lpgcn.cli.progress import VerificationDisplay
    from lpgcn.data.features import sized
    from lpgcn.model.backbones import backbone_of
    from lpgcn.report.curves import plot_comparisons, verification_report
    from lpgcn.report.page import write
    from lpgcn.report.picture import can_draw
    from lpgcn.runtime.memory import keep_freed_memory
    from lpgcn.runtime.verification import verify as compare

    keep_freed_memory()
    wanted = asked(config_file, fields)
    config = Config().changed(**{"epochs": 2, **wanted})
    chosen = _chosen(config, set(wanted) if everything else {*_AXES, "planner"})
    split = source_asked(dataset, fields).resolved().open()
    config = sized(config, split)
    picture = plot or (new_name(f"verify-{split.name}", ".png") if can_draw() else None)
    check_places(page, picture, overwrite=overwrite)
    say(f"{split.name}: {counted(split.n_users, 'user')}, fingerprint {split.fingerprint[:12]}")
    screen = console(stderr=as_json)
    for model in chosen.get("models", ()):
        if wrong := _wrong(backbone_of(config.changed(model=model))):
            for one in wrong:
                screen.print(f"{model}: {one}", style="bold red")
            return 1
    with console(stderr=True).status("") as status:
        observer = VerificationDisplay(status, is_terminal=console(stderr=True).is_terminal)
        lines = _shown(
            compare(
                split, config, epochs=config.epochs, workers=workers, observer=observer, **chosen
            ),
            screen,
        )
    worst = max(line.difference for line in lines)
    verdict = "lossless" if worst == 0 else "NOT lossless"
    if as_json:
        print_json({"difference": worst, "lossless": worst == 0, "epochs": lines, "config": config})
    else:
        screen.print(f"\nlargest difference of all: {worst:g}: {verdict}", style="bold")
    if picture is None:
        say("no picture of the curves: for one, install `lpgcn[plot]`")
    else:
        plot_comparisons(lines, picture, f"{split.name}: centralised and federated")
        say(f"the curves are in {picture}")
    if page is not None:
        write(page, verification_report(split, lines), overwrite=overwrite)
        say(f"the report is {page}")
    return int(worst != 0)


def _chosen(config: Config, keys: set[str]) -> dict[str, Any]:
    """What `lpgcn.runtime.verification.verify` is told where only one thing is wanted."""
    chosen: dict[str, Any] = {
        axis: [getattr(config, key)] for key, axis in _AXES.items() if key in keys
    }
    return {**chosen, "other_planners": ()} if "planner" in keys else chosen


def _wrong(backbone: Backbone) -> list[str]:
    """What is found by differences and, if torch is there and can follow, by autograd."""
    from lpgcn.methods.differentiated import UnknownToAutogradError, differences
    from lpgcn.model.backbones.checking import problems
    from lpgcn.model.kernels.compiled import Compiled

    if (found := problems(backbone, Compiled())) or find_spec("torch") is None:
        return found
    try:
        return differences(backbone, Compiled())
    except UnknownToAutogradError as error:
        warn(error)
        return []


def _shown(compared: Iterable[EpochDifference], screen: Console) -> list[EpochDifference]:
    """All of them, each printed when it is there."""
    lines: list[EpochDifference] = []
    for line in compared:
        if not lines or _series(line) != _series(lines[-1]):
            alpha = f"α = {line.virtual_items}"
            screen.print(f"\n{line.model}, {alpha}: {line.run}", style="bold")
            screen.print("epoch      loss   Recall@5    NDCG@5   largest difference")
        lines.append(line)
        screen.print(
            f"{line.epoch:5d}  {line.loss:8.5f}  {line.recall:9.6f} {line.ndcg:9.6f}   "
            f"{line.difference:g}",
            style="" if line.difference == 0 else "bold red",
        )
    return lines


def _series(line: EpochDifference) -> tuple[str, str, str]:
    return line.model, line.virtual_items, line.run
