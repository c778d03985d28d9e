"""`lpgcn federation up`."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from lpgcn.cli.options import (
    ONLY_BACKBONES,
    SectionedCommand,
    asked,
    config_option,
    field_options,
    source_asked,
)
from lpgcn.cli.program import Stopped
from lpgcn.cli.serve import serving_options, show_summary
from lpgcn.cli.terminal import counted, json_option, print_json, say, show
from lpgcn.config import Config
from lpgcn.runtime.runs.source import Source

if TYPE_CHECKING:
    from lpgcn.runtime.runs.local_network import LocalNetwork
    from lpgcn.runtime.runs.run_folder import Summary


@click.command(
    cls=SectionedCommand,
    epilog="""\b
Examples:
  lpgcn federation up demo --epochs 2 --verify
  lpgcn federation up ml-100k --hosts 2 --epochs 1 --out runs/net""",
)
@click.argument("dataset", required=False)
@click.option("--hosts", type=click.IntRange(min=1), default=2, show_default=True)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Keep everything in this folder, and go on with a run that is there; else nothing is "
    "kept.",
)
@click.option(
    "--verify",
    is_flag=True,
    help="Then train centralised, and compare with the vectors that the clients have.",
)
@config_option
@serving_options
@json_option
@field_options(Source, "Data, and files of your own")
@field_options(
    Config,
    "Configuration",
    without=("mode", "never_convolve", "patience"),
    saying=ONLY_BACKBONES,
)
def up(
    dataset: str | None,
    hosts: int,
    out: Path | None,
    verify: bool,
    config_file: Path | None,
    members: dict[str, Any],
    metrics: tuple[str, int | None],
    log_json: bool,
    as_json: bool,
    **fields: Any,
) -> int:
    """A whole federation over a network, on this machine.

    Broker, server and hosts are processes of their own, over TLS, with credentials whose rights are
    their own subjects only; what is started here is stopped here. All parties share the seed, so
    that the run can be repeated.
    """
    from lpgcn.cli.logs import telling
    from lpgcn.cli.serving_display import observed
    from lpgcn.data.features import sized
    from lpgcn.model.backbones import class_of
    from lpgcn.runtime.memory import keep_freed_memory
    from lpgcn.runtime.runs.local_network import LocalNetwork
    from lpgcn.runtime.runs.serving import Serving
    from lpgcn.runtime.runs.training import check_heldout

    keep_freed_memory()
    with ExitStack() as stack:
        log = stack.enter_context(telling(log_json=log_json, as_json=as_json))
        config = Config().changed(**asked(config_file, fields), mode="federated")
        class_of(config.model)  # Before anybody waits for members.
        source = source_asked(dataset, fields).resolved()
        split = source.open()
        check_heldout(split, config)
        config = sized(config, split)
        if out is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lpgcn-")))
        else:
            folder = out
        network = LocalNetwork(folder, source, split, hosts)
        if log is None:
            fewer = f" instead of {hosts}, one a user," if len(network.names) < hosts else ""
            say(f"broker, server and {counted(len(network.names), 'host')}{fewer} in {folder}")
        else:
            log("starting", hosts=len(network.names), folder=str(folder))
        serving = Serving(split.n_users, **members)
        try:
            with observed(network.server, serving, log, metrics) as observer:
                summary = network.run(config, serving, observer)
        except KeyboardInterrupt:
            raise Stopped("the same command with --out goes on") from None
        difference = None
        if verify:
            if log is None:
                say("now the same model, centralised, to compare")
            else:
                log("comparing")
            difference = _difference(network, source, config, folder, summary)
    if as_json:
        about = {} if difference is None else {"difference": difference}
        print_json({**about, **msgspec.to_builtins(summary)})
    else:
        show_summary(summary, None if out is None else network.server)
        if difference is not None:
            verdict = "lossless, bit for bit" if difference == 0 else "NOT lossless"
            show(f"Largest difference to the centralised run: {difference:g}: {verdict}.")
    return int(bool(difference))


def _difference(
    network: LocalNetwork, source: Source, config: Config, folder: Path, summary: Summary
) -> float:
    """The largest of any final vector or metric."""
    from lpgcn.runtime.runs.saved_model import Recommender
    from lpgcn.runtime.runs.training import train
    from lpgcn.runtime.verification import table_differences

    out = folder / "centralized"
    terms = network.server / "terms.jsonl"
    expected = train(
        source, config.changed(mode="centralized"), out=out, overwrite=True, terms=terms
    )
    vectors = network.vectors().arrays(), Recommender.load(out).vectors.arrays()
    differences = [abs(summary.test[name] - value) for name, value in expected.test.items()]
    return max(*differences, *table_differences(*vectors))
