"""`lpgcn recommend`."""

from __future__ import annotations

from pathlib import Path

import click

from lpgcn.cli.terminal import json_option, print_json, show, table


@click.command(
    epilog="""\b
Examples:
  lpgcn recommend runs/demo --user user-1 -k 10
  lpgcn recommend my-client""",
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--user", help="The user's id, as in the data set, if the model has several.")
@click.option("-k", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@json_option
def recommend(folder: Path, user: str | None, k: int, as_json: bool) -> None:
    """Recommend items to a user.

    DIR is the folder of a finished run, or of a client of a federation, which has one user only.
    Items that the user has in training are left out.
    """
    from lpgcn.runtime.runs.saved_model import Recommender

    model = Recommender.load(folder)
    if user is None and len(model.user_ids) != 1:
        raise click.UsageError(f"--user is needed: {folder} has {len(model.user_ids):,} users.")
    chosen = model.user_ids[0] if user is None else user
    found = model.recommend(chosen, k)
    if as_json:
        print_json({"user": chosen, "items": found})
        return
    rows = [(f"{rank}", f"{one.item}", f"{one.score:.4f}") for rank, one in enumerate(found, 1)]
    show(table(rows, "rank", "item", "score", title=f"For {chosen}"))
