"""`lpgcn host`."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import click

from lpgcn.cli.options import (
    SectionedCommand,
    cooccurrence_option,
    field_options,
    least_members_option,
    source_asked,
    suite_option,
    virtual_items_option,
)
from lpgcn.cli.serve import log_json_option
from lpgcn.cli.terminal import json_option, print_json, show
from lpgcn.config import SuiteName
from lpgcn.files import held
from lpgcn.runtime.runs.source import Source


class Users(click.ParamType[range]):
    """0-470, or 7: rows of the data set."""

    name = "A-B"

    def convert(self, value: Any, parameter: Any, context: Any) -> range:
        if isinstance(value, range):
            return value
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", value)
        if not found or int(found[2] or found[1]) < int(found[1]):
            self.fail(f"{value!r} is no range of users such as 0-499", parameter, context)
        return range(int(found[1]), int(found[2] or found[1]) + 1)


@click.command(
    cls=SectionedCommand,
    epilog="""\b
Example:
  lpgcn host ml-100k --users 0-470 --credentials one.credentials --state runs/one""",
)
@click.argument("dataset", required=False)
@click.option("--users", type=Users(), help="Which of them, by number; everybody if not given.")
@click.option(
    "--credentials",
    "credentials_file",
    required=True,
    type=click.Path(path_type=Path),
    help="The file that `lpgcn federation enrol` wrote for this host.",
)
@click.option("--broker", help="URL of the broker, if not the one in the credentials.")
@click.option(
    "--state",
    required=True,
    type=click.Path(path_type=Path),
    help="A folder with a folder for each client.",
)
@click.option(
    "--experiment-seed",
    type=click.IntRange(0, 2**63 - 1),
    help="One seed for all parties, as the server's --seed, so that the run can be repeated and "
    "compared; otherwise every client draws its own.",
)
@virtual_items_option
@cooccurrence_option
@least_members_option
@suite_option
@log_json_option
@json_option
@field_options(Source, "Data, and files of your own")
def host(
    dataset: str | None,
    users: range | None,
    credentials_file: Path,
    broker: str | None,
    state: Path,
    experiment_seed: int | None,
    virtual_items: Path | None,
    cooccurrence: Path | None,
    least_members: int,
    suite: SuiteName,
    log_json: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Run many users' clients in one process, over one connection.

    DATASET is a name that `lpgcn data list` shows, or, with --train, what your own data is called.
    A client is its user's row: its number in the federation is the same, if that is free.
    """
    from lpgcn.cli.carrying_display import carried, connect_options
    from lpgcn.cli.logs import telling
    from lpgcn.runtime.memory import keep_freed_memory
    from lpgcn.runtime.runs.carrying import Participation
    from lpgcn.runtime.runs.kept_virtual_items import KeptVirtualItems
    from lpgcn.runtime.runs.passengers import passengers

    with telling(log_json=log_json, as_json=as_json) as log:
        source = source_asked(dataset, fields)
        items, split = source.features_of_items(), source.open_users()
        chosen = users or range(split.n_users)
        if chosen.stop > split.n_users:
            raise click.UsageError(f"{split.name} has users 0-{split.n_users - 1}.")
        name, options = connect_options(credentials_file, broker, None, state)
        people = passengers(split, chosen, state, experiment_seed)
        kept = None
        if experiment_seed is None:
            kept = KeptVirtualItems.beside(credentials_file, name, virtual_items)
        participation = Participation(suite, least_members, items, kept, cooccurrence)
        keep_freed_memory()
        # Clients live as long as this process: looking for garbage among a million live objects
        # would only take time, so that it is done seldom.
        gc.set_threshold(100_000, 50, 1000)
        # Several hosts may have their users' folders in one place.
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        with held(state / f".{name}", mode=0o700):
            text, vehicle = carried(log, name, options, people, participation)
    if as_json:
        print_json({"clients": len(vehicle.clients), "text": text, "state": str(state)})
    else:
        show(f"{len(vehicle.clients):,} clients: {text}; their models are in {state}")
