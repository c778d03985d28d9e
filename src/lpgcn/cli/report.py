"""`lpgcn report`, and the option of other commands to write one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from lpgcn.cli.terminal import json_option, print_json, say, show
from lpgcn.report.units import size

report_option = click.option(
    "--report",
    "page",
    metavar="FILE.html",
    type=click.Path(path_type=Path),
    help="Write a report, one page that opens anywhere, to this file.",
)


@click.command(
    epilog="""\b
Examples:
  lpgcn report runs/demo --open
  lpgcn report runs/federated runs/centralized --out lossless.html
  lpgcn report runs/demo --user user-7""",
)
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--out",
    "page",
    metavar="FILE.html",
    type=click.Path(path_type=Path),
    help="The file; report.html in the folder of the first run if it is not given.",
)
@click.option("--overwrite", is_flag=True, help="Replace a file that is not a report.")
@click.option("--user", help="Whose recommendations are shown; the first user's if not given.")
@click.option("--open", "opened", is_flag=True, help="Show it in the browser.")
@json_option
def report(
    runs: tuple[Path, ...],
    page: Path | None,
    overwrite: bool,
    user: str | None,
    opened: bool,
    as_json: bool,
) -> None:
    """Write a report about runs: one page that opens anywhere.

    RUN is the folder of a run, finished or not. Several are compared; a federated run beside the
    centralised run of the same training shows whether anything is lost. The page needs no network.
    """
    page = page or runs[0] / "report.html"
    write_report(page, runs, user=user, overwrite=overwrite)
    if as_json:
        print_json({"report": str(page), "runs": [str(run) for run in runs]})
    else:
        show(f"The report is {page} ({size(page.stat().st_size)}).")
    if opened:
        import webbrowser

        if not webbrowser.open(page.resolve().as_uri()):
            say("no browser could be started here; open the file in one")


def check_places(page: Path | None, plot: Path | None = None, *, overwrite: bool) -> None:
    """Of a report and a picture, if there are to be any; before the work."""
    from lpgcn.report import page as pages
    from lpgcn.report import picture

    if plot is not None:
        picture.check_place(plot, overwrite=overwrite)
    if page is not None:
        pages.check_place(page, overwrite=overwrite)


def write_report(
    page: Path, runs: Sequence[Path], *, user: str | None = None, overwrite: bool = False
) -> None:
    from lpgcn.report.page import check_place, write
    from lpgcn.report.runs import read_runs
    from lpgcn.report.sections import run_report

    check_place(page, overwrite=overwrite)
    write(page, run_report(read_runs(runs), user=user), overwrite=overwrite)
