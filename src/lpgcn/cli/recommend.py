"""`lpgcn recommend`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from lpgcn.cli.options import Names, overwrite_option
from lpgcn.cli.terminal import console, counted, json_option, print_json, ranking_table, say, show

if TYPE_CHECKING:
    from lpgcn.runtime.runs.recommendation_files import FileFormat, Sink
    from lpgcn.runtime.runs.recommendations import Recommendation
    from lpgcn.runtime.runs.saved_model import Recommender

USERS_AT_ONCE: Final = 4096
_FORMATS: Final = ("csv", "jsonl", "parquet")
_FORMAT_OF_SUFFIX: Final[dict[str, FileFormat]] = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}


@click.command(
    epilog="""\b
Examples:
  lpgcn recommend runs/demo --user user-1 -k 10
  lpgcn recommend runs/demo --items item-3,item-14,item-15
  lpgcn recommend runs/demo --user user-1 --only item-1,item-2,item-3 --keep-seen
  lpgcn recommend runs/films --user 7 --exclude '"Matrix, The (1999)",Alien'
  lpgcn recommend runs/demo --all --out recommendations.parquet
  lpgcn recommend my-client""",
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--user", help="The user's id, as in the data set, if the model has several.")
@click.option(
    "--items",
    "history",
    type=Names(),
    metavar="IDS",
    help="The items of a user whom the model does not know.",
)
@click.option("--all", "everybody", is_flag=True, help="Recommend to every user.")
@click.option("-k", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@click.option("--only", type=Names(), metavar="IDS", help="Rank these items only.")
@click.option("--exclude", type=Names(), metavar="IDS", default=(), help="Never these items.")
@click.option("--keep-seen", is_flag=True, help="Also items that the user has.")
@click.option(
    "--format",
    "kind",
    type=click.Choice(_FORMATS),
    help="With --all: how it is written; the end of --out's name tells it if it is not given, and "
    "what has none of these ends is csv.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="With --all: the file; standard output if it is not given.",
)
@overwrite_option
@json_option
def recommend(
    folder: Path,
    user: str | None,
    history: tuple[str, ...] | None,
    everybody: bool,
    k: int,
    only: tuple[str, ...] | None,
    exclude: tuple[str, ...],
    keep_seen: bool,
    kind: FileFormat | None,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Recommend items to a user, to a new one with these items, or to everybody.

    DIR is the folder of a finished run, or of a client of a federation, which has one user only.
    Items that the user has, in training or held out, are left out. IDS have commas between them;
    one that has a comma itself is in double quotes.
    """
    from lpgcn.runtime.runs.saved_model import Recommender

    if everybody + (user is not None) + (history is not None) > 1:
        raise click.UsageError("--user, --items and --all exclude one another.")
    if not everybody and (kind or out or overwrite):
        raise click.UsageError("--format, --out and --overwrite are about --all: add it.")
    filters: dict[str, Any] = {"items": only, "exclude": exclude, "keep_seen": keep_seen}
    if everybody:
        written = _format(kind, out)
        _check(out, written, overwrite=overwrite, as_json=as_json)
        _recommend_all(Recommender.load(folder), k, filters, written, out, as_json=as_json)
        return
    model = Recommender.load(folder)
    if history is not None:
        found, whom = model.recommend(k=k, history=history, **filters), "a user with these items"
        _show(found, whom, {"history": history}, as_json=as_json)
        return
    if user is None and len(model.user_ids) != 1:
        raise click.UsageError(
            f"--user is needed: {folder} has {len(model.user_ids):,} users. Or give --items of a "
            "new one, or --all."
        )
    chosen = model.user_ids[0] if user is None else user
    _show(model.recommend(chosen, k, **filters), f"{chosen}", {"user": chosen}, as_json=as_json)


def _show(found: list[Recommendation], whom: str, about: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json({**about, "items": found})
        return
    show(ranking_table(found, f"For {whom}"))


def _format(kind: FileFormat | None, out: Path | None) -> FileFormat:
    """What was asked for, or else what the end of the file's name tells."""
    told = _FORMAT_OF_SUFFIX.get(out.suffix.lower()) if out else None
    if kind and told and kind != told:
        raise click.UsageError(
            f"--out {out} says {told} and --format says {kind}: leave --format out, or give the "
            "file another name."
        )
    return kind or told or "csv"


def _check(out: Path | None, kind: FileFormat, *, overwrite: bool, as_json: bool) -> None:
    from lpgcn.files import check_output
    from lpgcn.runtime.runs.recommendation_files import check_format

    if out is None and (kind == "parquet" or as_json):
        raise click.UsageError("--format parquet and --json need --out, a file.")
    check_format(kind)
    if out is not None:
        check_output(out, overwrite=overwrite)


def _recommend_all(
    model: Recommender,
    k: int,
    filters: dict[str, Any],
    kind: FileFormat,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    from lpgcn.files import growing
    from lpgcn.runtime.runs.recommendation_files import sink

    def write(to: Sink) -> int:
        return _in_parts(model, to, lambda users: model.recommend_batch(users, k, **filters))

    ids = model.user_ids, model.item_ids
    if out is None:
        with sink(kind, sys.stdout.buffer, *ids) as to:
            write(to)
        return
    with growing(out) as file, sink(kind, file, *ids) as to:
        count = write(to)
    if as_json:
        print_json({"out": str(out), "users": len(ids[0]), "recommendations": count})
    else:
        to_whom = f"{counted(count, 'recommendation')} to {counted(len(ids[0]), 'user')}"
        say(f"{to_whom} are in {out}")


def _in_parts(model: Recommender, to: Sink, recommended: Callable[[Any], Any]) -> int:
    """Some thousand users at a time, with a bar."""
    from rich.progress import track

    users, count = list(model.user_ids), 0
    screen = console(stderr=True)
    parts = [users[first : first + USERS_AT_ONCE] for first in range(0, len(users), USERS_AT_ONCE)]
    for part in track(
        parts, "recommending", console=screen, transient=True, disable=not screen.is_terminal
    ):
        found = recommended(part)
        to(found)
        count += len(found)
    return count
