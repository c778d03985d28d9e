"""`lpgcn serve`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from lpgcn.cli.options import (
    ONLY_BACKBONES,
    WITHOUT_FEATURES,
    SectionedCommand,
    asked,
    config_option,
    field_options,
)
from lpgcn.cli.program import Stopped
from lpgcn.cli.terminal import (
    json_option,
    print_json,
    say,
    show,
    summary_report,
)
from lpgcn.config import Config
from lpgcn.files import held
from lpgcn.terms import LEAST_MEMBERS

if TYPE_CHECKING:
    from lpgcn.cli.logs import EventLog
    from lpgcn.runtime.runs.run_folder import Summary


log_json_option = click.option(
    "--log-json",
    is_flag=True,
    help="Log events as lines of JSON on standard error, instead of text for people.",
)


_SERVING: Final = (
    # The configuration's own patience, in epochs, is in its file only.
    click.option(
        "--patience",
        type=click.FloatRange(min=1),
        default=60.0,
        show_default=True,
        help="Seconds of silence of a member after which the run pauses.",
    ),
    click.option(
        "--on-missing",
        type=click.Choice(["wait", "leave"]),
        default="wait",
        show_default=True,
        help="Then wait for who is missing, or, from the first checkpoint on, go on without.",
    ),
    click.option(
        "--least-members",
        type=click.IntRange(min=LEAST_MEMBERS),
        default=LEAST_MEMBERS,
        show_default=True,
        help="No term begins or goes on with fewer: the run pauses until there are more.",
    ),
    click.option(
        "--least-change",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Newcomers wait until so many can join together: sums before and after differ "
        "by the numbers of who joined. Who is lost is left behind all the same, with a "
        "warning.",
    ),
    click.option(
        "--checkpoint-every",
        type=click.IntRange(min=1),
        default=50,
        show_default=True,
        help="Steps between two checkpoints of everybody.",
    ),
    click.option(
        "--metrics-port",
        type=click.IntRange(1, 65535),
        help="Serve metrics for Prometheus on this port.",
    ),
    click.option(
        "--metrics-host",
        default="127.0.0.1",
        show_default=True,
        help="Address for --metrics-port. Whoever reaches it reads the metrics.",
    ),
    log_json_option,
)
_OF_MEMBERS: Final = (
    "patience", "on_missing", "least_members", "least_change", "checkpoint_every"
)  # fmt: skip


def serving_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How a server deals with its members: for `serve` and `federation up`, which get the fields of
    a `Serving` as `members`, and host and port as `metrics`."""

    @wraps(command)
    def gathered(**given: Any) -> Any:
        members = {name: given.pop(name) for name in _OF_MEMBERS}
        metrics = given.pop("metrics_host"), given.pop("metrics_port")
        return command(members=members, metrics=metrics, **given)

    for option in reversed(_SERVING):
        gathered = option(gathered)
    return gathered


@click.command(
    cls=SectionedCommand,
    epilog="""\b
Examples:
  lpgcn federation init fed --host broker.example.org
  lpgcn serve --federation fed --catalogue items.txt --clients 1000 --state runs/fed
  lpgcn serve --federation fed --broker tls://broker.example.org:4222 \\
      --catalogue items.txt --clients 1000 --config run.toml --state runs/fed""",
)
@click.option(
    "--federation",
    "folder",
    required=True,
    type=click.Path(path_type=Path),
    help="The folder that `lpgcn federation init` made.",
)
@click.option(
    "--broker",
    default="embedded",
    show_default=True,
    help="URL of a broker, or embedded: start the federation's own here.",
)
@click.option(
    "--catalogue",
    required=True,
    type=click.Path(path_type=Path),
    help="A file with the id of every item, one a line (and a tab and a public count, if any).",
)
@click.option(
    "--clients", required=True, type=click.IntRange(min=1), help="To wait for at the beginning."
)
@click.option(
    "--state",
    required=True,
    type=click.Path(path_type=Path),
    help="The run folder; a run that is there goes on.",
)
@config_option
@serving_options
@json_option
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="In experiments only.  [default: drawn at random, and kept in the run folder]",
)
@field_options(
    Config,
    "Configuration",
    without=("mode", "never_convolve", "patience", "seed"),
    saying={**ONLY_BACKBONES, **WITHOUT_FEATURES},
)
def serve(
    folder: Path,
    broker: str,
    catalogue: Path,
    clients: int,
    state: Path,
    config_file: Path | None,
    members: dict[str, Any],
    metrics: tuple[str, int | None],
    log_json: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Run the server of a federation over a network.

    Waits for its members, trains with them, and writes a run folder in which there is nobody's
    vector, item or key. Killed at any time, the same command goes on where everybody was. Its seed
    is a secret, drawn at random; give --seed in experiments only.
    """
    from lpgcn.cli.logs import telling
    from lpgcn.cli.serving_display import observed
    from lpgcn.model.backbones import class_of
    from lpgcn.runtime.hosts.nats.authority import FederationFolder
    from lpgcn.runtime.hosts.nats.broker import Broker
    from lpgcn.runtime.hosts.nats.credentials import Credentials
    from lpgcn.runtime.memory import keep_freed_memory
    from lpgcn.runtime.runs.catalogue import PublicCatalogue
    from lpgcn.runtime.runs.serving import Serving, secret_seed
    from lpgcn.runtime.runs.serving import serve as serve_run

    keep_freed_memory()
    with ExitStack() as stack:
        log = stack.enter_context(telling(log_json=log_json, as_json=as_json))
        wanted = asked(config_file, fields)
        config = Config().changed(**wanted)
        federation = FederationFolder(folder)
        if state.resolve() == federation.path.resolve():
            raise click.UsageError(
                f"--state is the federation's own folder, {folder}, with its secret keys; give the "
                "run a folder of its own"
            )
        class_of(config.model)  # Before anything is kept, and anybody waits for members.
        if "seed" not in wanted:
            config = config.changed(seed=secret_seed(state))
        items = PublicCatalogue.read(catalogue)
        credentials = Credentials.load(federation.server_credentials)
        # A second server of one federation would take the first one's clients away.
        stack.enter_context(held(federation.path))
        serving = Serving(clients, **members)
        _tell_of_lists(log, config)
        check = None
        try:
            if broker == "embedded":
                child = Broker(federation.config, log=state / "broker.log")
                check = stack.enter_context(child).check
                _tell_broker(log, credentials.urls)
            else:
                credentials = credentials.at(broker)
            observer = stack.enter_context(observed(state, serving, log, metrics))
            summary = serve_run(
                federation.about.name, config, items, credentials.connect_options(), state,
                serving, observer, federation.desk(), check,
            )  # fmt: skip
        except KeyboardInterrupt:
            raise Stopped("the same command goes on with the run") from None
    if as_json:
        print_json({"state": str(state), **msgspec.to_builtins(summary)})
    else:
        show_summary(summary, state)


def _tell_of_lists(log: EventLog | None, config: Config) -> None:
    """The default hides nothing in lists, which whoever decides should know."""
    if log is None and not config.has_virtual_items:
        say(
            "there are no virtual items: this server sees who has which items, if not their "
            "names; --virtual-items 1.0x hides them among as many others (docs/PRIVACY.md)"
        )


def _tell_broker(log: EventLog | None, urls: tuple[str, ...]) -> None:
    if log is None:
        say(f"the broker runs: {', '.join(urls)}")
    else:
        log("broker_started", urls=urls)


def show_summary(summary: Summary, state: Path | None) -> None:
    """`state` is where more can be found, if anywhere."""
    where = "Nothing was kept" if state is None else f"The results are in {state}"
    files = "" if state is None else " (summary.json, metrics.jsonl, terms.jsonl)"
    show(
        *summary_report(
            summary, "over a network", f"{where}{files}; every model stayed on its client."
        )
    )
