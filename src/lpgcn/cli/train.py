"""`lpgcn train`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lpgcn.cli.options import (
    SectionedCommand,
    asked,
    config_option,
    data_asked,
    field_options,
    new_name,
    source_asked,
)
from lpgcn.cli.program import Stopped
from lpgcn.cli.report import check_places, report_option, write_report
from lpgcn.cli.terminal import (
    json_option,
    print_json,
    say,
    show,
    summary_report,
)
from lpgcn.config import Config
from lpgcn.runtime.runs.source import Source

if TYPE_CHECKING:
    from lpgcn.runtime.runs.run_folder import Summary


@click.command(
    cls=SectionedCommand,
    epilog="""\b
Examples:
  lpgcn train demo --mode federated --virtual-items 10 --out runs/demo
  lpgcn train gowalla --config configs/gowalla.toml --lr 0.002 --at 5 --at 20
  lpgcn train demo --model item-knn --option neighbours=100
  lpgcn train mine --train ratings.csv --user-column who --item-column what
  lpgcn train mine --train ratings.csv --item-features films.parquet --user-features people.npz
  lpgcn train demo --mode centralized --terms federation/terms.jsonl --out runs/same
  lpgcn train demo --mode simulated --report demo.html
  lpgcn train --out runs/demo --resume""",
)
@click.argument("dataset", required=False)
@config_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="The folder of the run; a new one in runs/ if it is not given.",
)
@click.option("--resume", is_flag=True, help="Continue the run in --out from its last checkpoint.")
@click.option(
    "--overwrite", is_flag=True, help="Replace the run in --out, and what is at --transcript."
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Threads; the bits are the same, but for models that need torch.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes for a federation's clients; the bits are the same.",
)
@click.option(
    "--transcript",
    type=click.Path(path_type=Path),
    help="Write everything that each party of a federation receives to this file.",
)
@click.option(
    "--terms",
    type=click.Path(path_type=Path),
    help="Follow the log of terms of a federation whose members changed; centralised only.",
)
@click.option(
    "--checkpoint-every",
    metavar="N",
    type=click.IntRange(min=1),
    help="Write a checkpoint after N steps, too; the bits are the same.",
)
@report_option
@json_option
@field_options(Source, "Data, and files of your own")
@field_options(Config, "Configuration")
def train(
    dataset: str | None,
    config_file: Path | None,
    out: Path | None,
    resume: bool,
    overwrite: bool,
    threads: int | None,
    workers: int,
    transcript: Path | None,
    terms: Path | None,
    checkpoint_every: int | None,
    page: Path | None,
    as_json: bool,
    **fields: Any,
) -> None:
    """Train a model, test it once, save it.

    DATASET is a name that `lpgcn data list` shows, or, with --train, what your own data is called.
    """
    from lpgcn.methods.registry import configured

    if resume and (out is None or overwrite):
        raise click.UsageError("--resume needs --out, and goes without --overwrite.")
    check_places(page, overwrite=overwrite)
    wanted = asked(config_file, fields)
    if resume and out:
        source, config = _saved(out, data_asked(dataset, fields), wanted)
    else:
        source, config = source_asked(dataset, fields), configured(wanted)
    if workers > 1 and config.mode != "federated":
        raise click.UsageError(
            f"--workers are processes for a federation's clients, and this run is {config.mode}: "
            "add --mode federated, or leave it out."
        )
    out = out or new_name(f"{source.dataset}-{config.model}")
    options = {
        "resume": resume,
        "overwrite": overwrite,
        "threads": threads,
        "workers": workers,
        "transcript": transcript,
        "terms": terms,
        "checkpoint_every": checkpoint_every,
    }
    summary = _run(source, config, out, options)
    if page is not None:
        write_report(page, (out,), overwrite=overwrite)
        say(f"the report is {page}")
    if as_json:
        print_json({"out": str(out), **msgspec.to_builtins(summary)})
    else:
        files = "summary.json, metrics.jsonl, model/"
        show(*summary_report(summary, summary.mode, f"The results are in {out} ({files})."))


def _saved(out: Path, data: dict[str, Any], wanted: dict[str, Any]) -> tuple[Source, Config]:
    """The run in a folder, with what is asked for now; `lpgcn.train` refuses any difference."""
    from lpgcn.runtime.runs.run_folder import RunFolder

    run = RunFolder(out).describe()
    return msgspec.structs.replace(run.source, **data), run.config.changed(**wanted)


def _run(source: Source, config: Config, out: Path, options: dict[str, Any]) -> Summary:
    from lpgcn.cli.progress import ProgressDisplay
    from lpgcn.runtime.memory import keep_freed_memory

    keep_freed_memory()
    progress = ProgressDisplay(out)
    try:
        from lpgcn.methods.training import train as train_run

        with progress:
            return train_run(source, config, out=out, observer=progress, **options)
    except KeyboardInterrupt:
        if not (options["resume"] or progress.began):
            raise
        again = shlex.join(["lpgcn", "train", "--out", str(out), "--resume"])
        raise Stopped(f"continue with: {again}") from None
