"""`lpgcn recommend`."""

from __future__ import annotations

from pathlib import Path

import click

from lpgcn.cli.terminal import json_option, print_json, show, table


@click.command(
    epilog="""\b
Example:
  lpgcn recommend runs/demo --user user-1 -k 10""",
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--user", required=True, help="The user's id, as in the data set.")
@click.option("-k", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@json_option
def recommend(folder: Path, user: str, k: int, as_json: bool) -> None:
    """Recommend items to a user.

    DIR is the folder of a finished run. Items that the user has in training are left out.
    """
    from lpgcn.runtime.runs.saved_model import Recommender

    found = Recommender.load(folder).recommend(user, k)
    if as_json:
        print_json({"user": user, "items": found})
        return
    rows = [(f"{rank}", f"{one.item}", f"{one.score:.4f}") for rank, one in enumerate(found, 1)]
    show(table(rows, "rank", "item", "score", title=f"For {user}"))
