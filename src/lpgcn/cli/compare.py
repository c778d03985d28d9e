"""`lpgcn compare`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lpgcn.cli.options import Names, SectionedCommand, field_options, given, source_asked
from lpgcn.cli.program import Stopped
from lpgcn.cli.report import check_places, report_option, write_report
from lpgcn.cli.terminal import console, counted, json_option, print_json, say, show, table, warn
from lpgcn.config import Config
from lpgcn.errors import LpgcnError
from lpgcn.files import check_folder
from lpgcn.runtime.runs.source import FEATURES, Source

if TYPE_CHECKING:
    from lpgcn.methods.comparison.entries import Entry
    from lpgcn.methods.comparison.results import Outcome, PairedTest

_WANTED = ("epochs", "patience", "eval_every", "at", "mask", "dim", "lr", "batch_size")


class CompareError(LpgcnError):
    """A comparison that cannot be made as it was asked for."""


@click.command(
    cls=SectionedCommand,
    epilog="""\b
Examples:
  lpgcn compare demo --models popular,item-knn,bpr,lightgcn --seeds 2 --epochs 20 --out runs/field
  lpgcn compare ml-100k --settings configs/compare/ml-100k --seeds 3 --out runs/ml-100k
  lpgcn compare ml-100k --models lightgcn,p-gcn,lp-gcn --layers 1,2,3,4 --out runs/layers
  lpgcn compare ml-100k --models bpr,mult-vae --search --out runs/search""",
)
@click.argument("dataset", required=False)
@click.option("--models", type=Names(), help="Which; all that `lpgcn models` lists if not given.")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="How many.")
@click.option("--layers", type=Names(), default=(), help="Every model that has layers, with each.")
@click.option(
    "--settings",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="A folder with default.toml, of which every model takes what it has, and with MODEL.toml "
    "for each that differs; either may be missing.",
)
@click.option(
    "--metrics",
    type=Names(),
    default="recall@20,ndcg@20",
    show_default=True,
    help="Any of `lpgcn evaluate`, at any K; models are compared by the first.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The folder of all.")
@click.option("--resume", is_flag=True, help="Go on with what is in --out.")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="At a time.")
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    help="Of each run; the bits are the same, but for models that need torch.",
)
@click.option(
    "--search",
    is_flag=True,
    help="First run the paper's grids (λ, layers, β) and take the best on validation.",
)
@report_option
@json_option
@field_options(Source, "Data, and files of your own", without=FEATURES)
@field_options(Config, "Settings of all models", without=set(Config.__struct_fields__) - {*_WANTED})
def compare(
    dataset: str | None,
    models: tuple[str, ...] | None,
    seeds: int,
    layers: tuple[str, ...],
    settings: Path | None,
    metrics: tuple[str, ...],
    out: Path,
    resume: bool,
    jobs: int,
    threads: int | None,
    search: bool,
    page: Path | None,
    as_json: bool,
    **fields: Any,
) -> int:
    """Train several models on the same data and print one table.

    Every run has a folder in --out and is an ordinary one (`lpgcn recommend` and `evaluate` work
    there). table.md, table.tex, table.csv, comparison.json and pictures are written anew after each
    run, so that an unfinished comparison is one, too. A run that fails is a row that says so; the
    exit code is 1 if there is no other.
    """
    from lpgcn.methods.comparison.entries import entries
    from lpgcn.methods.comparison.results import check_kept, paired_test, read_outcomes
    from lpgcn.methods.registry import names
    from lpgcn.report.comparison import write_comparison

    check_places(page, overwrite=resume)
    source = source_asked(dataset, fields).resolved()
    if models == ():
        raise CompareError("--models names none; name some, or leave it out for all")
    _check_metrics(metrics)
    at = sorted({int(name.partition("@")[2]) for name in metrics})
    check_folder(out)
    if out.exists() and any(out.iterdir()) and not resume:
        raise CompareError(f"{out} is not empty; continue it with --resume, or choose another")
    planned = entries(
        _usable(names()) if models is None else models,
        seeds=seeds,
        layers=[_count(word) for word in layers],
        settings=settings,
        wanted={"at": at, **given(Config, fields)},
    )
    _warn_of_rules(planned)
    _tell_of_one_seed(planned, seeds)
    split = source.open()
    runner = _Runner(source, split.fingerprint, jobs, threads)
    if search:
        planned = runner.searched(planned, out, metrics[0])
    check_kept(planned, out, source, split.fingerprint)

    def write(test: PairedTest | None = None) -> list[Outcome]:
        found = read_outcomes(planned, out, split.fingerprint)
        write_comparison(out, found, metrics, test, split.name)
        return found

    runner.run(planned, out, write)
    test = paired_test(write(), out, metrics[0])
    outcomes = write(test)
    if page is not None:
        folders = [entry.folder(out) for entry in planned]
        done = [folder for folder in folders if (folder / "summary.json").exists()]
        write_report(page, done, overwrite=resume)
        say(f"the report is {page}")
    if as_json:
        print_json(msgspec.json.decode((out / "comparison.json").read_bytes()))
    else:
        _show(outcomes, metrics, test, out)
    return int(not any(one.summary for one in outcomes))


class _Runner:
    """Runs what is missing, and says what is under way."""

    def __init__(self, source: Source, fingerprint: str, jobs: int, threads: int | None) -> None:
        self._source, self._fingerprint = source, fingerprint
        self._jobs, self._threads = jobs, threads

    def run(self, planned: Sequence[Entry], out: Path, written: Callable[[], object]) -> None:
        from lpgcn.methods.comparison.results import finished
        from lpgcn.methods.comparison.running import failure, run_all

        pending = [one for one in planned if finished(one, out, self._fingerprint) is None]
        say(f"{counted(len(planned), 'run')}, {len(pending):,} of them to do, in {out}")
        screen = console(stderr=True)
        try:
            with screen.status("") as status:

                def look(entries: Sequence[Entry]) -> None:
                    status.update("; ".join(_progress(one, out) for one in entries))

                done = len(planned) - len(pending)
                for entry in run_all(
                    self._source, pending, out, jobs=self._jobs, threads=self._threads, look=look
                ):
                    done += 1
                    why = failure(entry, out)
                    what = f"failed: {why}" if why else "done"
                    say(f"{done}/{len(planned)}  {_name(entry)}: {what}")
                    written()
        except KeyboardInterrupt:
            raise Stopped("continue with the same command and --resume") from None

    def searched(self, planned: Sequence[Entry], out: Path, metric: str) -> list[Entry]:
        """The same runs with the settings that are best on validation data."""
        from lpgcn.methods.comparison.results import read_outcomes
        from lpgcn.methods.comparison.search import candidates, chosen, write_chosen

        best: dict[str, Entry] = {}
        for entry in planned:
            if entry.label in best:
                continue
            grid, folder = candidates(entry), out / "search"
            self.run(grid, folder, lambda: None)
            found = chosen(read_outcomes(grid, folder, self._fingerprint), metric)
            best[entry.label] = found or entry
            if found:
                where = write_chosen(found, entry, out / "settings")
                say(f"{entry.label}: {found.variant}, in {where}")
        return [
            msgspec.structs.replace(
                entry, config=best[entry.label].config.changed(seed=entry.config.seed)
            )
            for entry in planned
        ]


def _usable(models: Sequence[str]) -> list[str]:
    """Those that can be had: a package that is broken costs the others nothing."""
    from lpgcn.methods.method import MethodError
    from lpgcn.methods.registry import described

    found = []
    for model in models:
        try:
            described(model)
        except MethodError as error:
            warn(f"{error}; it is left out")
        else:
            found.append(model)
    return found


def _warn_of_rules(planned: Sequence[Entry]) -> None:
    """A comparison is fair under one rule to stop; another one is the user's to explain."""
    for name in ("patience", "eval_every", "mask"):
        trained = [one for one in planned if one.config.epochs > 1]
        found = {getattr(one.config, name) for one in trained}
        if len(found) > 1:
            values = ", ".join(map(str, sorted(found)))
            warn(f"models have different {name}: {values}")


def _tell_of_one_seed(planned: Sequence[Entry], seeds: int) -> None:
    """What is computed in one go is the same with every seed."""
    from lpgcn.methods.registry import described

    fixed = [one for one in dict.fromkeys(one.model for one in planned) if described(one).fixed]
    if fixed and seeds > 1:
        say(f"one run instead of {seeds} each, as nothing is drawn: {', '.join(fixed)}")


def _name(entry: Entry) -> str:
    return f"{entry.label}, seed {entry.config.seed}"


def _progress(entry: Entry, out: Path) -> str:
    from lpgcn.runtime.runs.run_folder import RunFolder

    epochs = RunFolder(entry.folder(out)).metrics()
    at = f", epoch {epochs[-1].epoch} of {entry.config.epochs}" if epochs else ""
    return f"{_name(entry)}{at}"


def _show(
    outcomes: Sequence[Outcome], metrics: Sequence[str], test: PairedTest | None, out: Path
) -> None:
    from lpgcn.methods.comparison.results import rows
    from lpgcn.report.comparison_tables import COLUMNS, cells, remarks
    from lpgcn.report.units import metric_name

    found = rows(outcomes)
    show(
        table([cells(row, metrics) for row in found], "model", *map(metric_name, metrics), *COLUMNS)
    )
    show(*remarks(found, test))
    show(f"table.md, table.tex, table.csv, comparison.json and pictures are in {out}.")


def _check_metrics(metrics: Sequence[str]) -> None:
    from lpgcn.evaluation import METRICS
    from lpgcn.evaluation.beyond_accuracy import BEYOND_ACCURACY

    every = (*METRICS, *BEYOND_ACCURACY)
    if not metrics:
        raise CompareError("--metrics names none; name some, or leave it out for recall and ndcg")
    for name in metrics:
        kind, _, k = name.partition("@")
        if kind not in every or not k.isdecimal() or int(k) < 1:
            raise CompareError(
                f"{name!r} is no metric; expected one of {', '.join(every)} and a K, such as "
                "recall@20"
            )
    if metrics[0].partition("@")[0] not in METRICS:
        raise CompareError(
            f"the first metric is {metrics[0]}; expected one of accuracy ({', '.join(METRICS)}), "
            "by which models are compared and searched: put that first"
        )


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise CompareError(f"{word!r} is no number of layers; expected such as 1,2,3")
    return int(word)
