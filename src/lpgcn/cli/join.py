"""`lpgcn join`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lpgcn.cli.options import (
    SectionedCommand,
    cooccurrence_option,
    data_asked,
    field_options,
    least_members_option,
    suite_option,
    virtual_items_option,
)
from lpgcn.cli.serve import log_json_option
from lpgcn.cli.terminal import json_option, print_json, ranking_table, say, show
from lpgcn.config import SuiteName
from lpgcn.errors import LpgcnError
from lpgcn.files import held
from lpgcn.runtime.runs.source import Source

if TYPE_CHECKING:
    from lpgcn.runtime.runs.carrying import Vehicle


class NoPartError(LpgcnError):
    """A client that came too late."""


@click.command(
    cls=SectionedCommand,
    epilog="""\b
Examples:
  lpgcn join --credentials alice.credentials --data mine.csv --state ~/.lpgcn/fed
  lpgcn join --credentials alice.credentials --data mine.csv --state ~/.lpgcn/fed \\
      --user-features me.npz --item-features films.parquet""",
)
@click.option(
    "--credentials",
    "credentials_file",
    required=True,
    type=click.Path(path_type=Path),
    help="The file that `lpgcn federation enrol` wrote, or an invitation with --name.",
)
@click.option("--name", help="With an invitation: what this client would like to be called.")
@click.option("--broker", help="URL of the broker, if not the one in the credentials.")
@click.option(
    "--data",
    "train",
    required=True,
    help="A file with this user's interactions; part of them is held out as --ratio says.",
)
@click.option(
    "--state",
    required=True,
    type=click.Path(path_type=Path),
    help="This client's own folder: keys, checkpoints, and at the end its model.",
)
@virtual_items_option
@cooccurrence_option
@click.option("-k", type=click.IntRange(min=1), default=10, show_default=True, help="How many.")
@least_members_option
@suite_option
@log_json_option
@json_option
@field_options(Source, "Data", without=("train",))
def join(
    credentials_file: Path,
    name: str | None,
    broker: str | None,
    train: str,
    state: Path,
    virtual_items: Path | None,
    cooccurrence: Path | None,
    k: int,
    least_members: int,
    suite: SuiteName,
    log_json: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Take part in a federation, as one user's client.

    Runs until the federation has trained its model, reconnects by itself, and prints this user's
    recommendations at the end. What it is about never leaves this machine but as the protocol says.
    """
    from lpgcn.cli.carrying_display import carried, connect_options
    from lpgcn.cli.logs import telling
    from lpgcn.runtime.runs.carrying import Participation
    from lpgcn.runtime.runs.kept_virtual_items import KeptVirtualItems
    from lpgcn.runtime.runs.passengers import passengers

    with telling(log_json=log_json, as_json=as_json) as log:
        source = Source(**data_asked(None, {**fields, "train": train}))
        items, split = source.features_of_items(), source.open_users()
        if split.n_users != 1:
            raise click.UsageError(
                f"--data has {split.n_users} users; expected the interactions of one. Many users "
                "on one machine are for `lpgcn host`."
            )
        own_name, options = connect_options(credentials_file, broker, name, state)
        kept = KeptVirtualItems.beside(credentials_file, own_name, virtual_items)
        participation = Participation(suite, least_members, items, kept, cooccurrence)
        (user,) = passengers(split, [0], state)
        alone = replace(user, wish=None, folder=state)
        with held(state, mode=0o700):
            text, vehicle = carried(log, own_name, options, [alone], participation)
        if log is None and not as_json:
            say(text)
    if not (state / "model").is_dir():
        raise NoPartError(
            "the run was over before this client could take part, so that it has no model; join "
            "the federation's next run"
        )
    _show(vehicle, text, str(split.user_ids[0]), k, state, as_json)


def _show(vehicle: Vehicle, text: str, user: str, k: int, state: Path, as_json: bool) -> None:
    from lpgcn.runtime.runs.saved_model import Recommender

    found = Recommender.load(state).recommend(user, k)
    if as_json:
        fingerprints = sorted(vehicle.fingerprints())
        print_json({"user": user, "items": found, "fingerprints": fingerprints, "text": text})
        return
    show(ranking_table(found, f"For {user}, ranked on this device"))
    show(f"Again, offline: lpgcn recommend {state}")
