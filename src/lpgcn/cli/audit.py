"""`lpgcn audit`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from lpgcn.cli.options import (
    Decorated,
    SectionedCommand,
    asked,
    config_option,
    field_options,
    overwrite_option,
    source_asked,
)
from lpgcn.cli.report import check_places, report_option
from lpgcn.cli.terminal import counted, json_option, print_json, say, show, size, table
from lpgcn.config import PAPERS_OWN, Config, PlannerName, SuiteName, VirtualDraw
from lpgcn.runtime.runs.source import Source

if TYPE_CHECKING:
    from lpgcn.data import Split
    from lpgcn.privacy.audit import Audited
    from lpgcn.privacy.measures import Measured
    from lpgcn.privacy.table import Finding
    from lpgcn.report.audits import AuditTable, TradeOff

_SWEPT: Final = {
    "suite": "sealed",
    "model": PAPERS_OWN[0],
    "virtual_items": "1.0x",
    "virtual_draw": "popularity",
    "planner": "auto",
}
"""Settings of which there can be several, and what they are where nobody says."""


def _several(
    flag: str, name: str, what: str, words: tuple[str, ...] = ()
) -> Callable[[Decorated], Decorated]:
    """An option that can be repeated."""
    said = f"{what}; can be repeated.  [default: {_SWEPT.get(name, 'all')}]"
    kind = click.Choice(words) if words else click.STRING
    return click.option(flag, name, type=kind, multiple=True, help=said)


@click.command(
    cls=SectionedCommand,
    epilog="""\b
Examples:
  lpgcn audit ml-100k --virtual-items 1.0x --draw popularity
  lpgcn audit ml-100k --suites paper --suites sealed --virtual-items 0 --virtual-items 1.0x \\
    --draw uniform --draw popularity --steps 3 --plot audit.png
  lpgcn audit ml-100k --steps 0 --virtual-items 0 --virtual-items 1.0x --planners partition \\
    --planners cover --adversaries server --adversaries model --plot trade-off.png
  lpgcn audit gowalla --steps 0 --adversaries server --virtual-items 1.0x
  lpgcn audit runs/mine --steps 3

\b
A federation of a thousand clients takes minutes. With --steps 0 none is run, and the server has
what it sees before the first step: the token graph.""",
)
@click.argument("dataset", metavar="DATASET|RUN", required=False)
@config_option
@_several("--suites", "suite", "Suites to audit", get_args(SuiteName))
@click.option(
    "--models",
    "model",
    multiple=True,
    metavar="MODEL",
    help="Backbones to audit, or one of your own; can be repeated. Linear systems are for "
    "LightGCN and LightGCN+ only.  [default: lightgcn]",
)
@_several("--virtual-items", "virtual_items", "Virtual items α a client lists: a count or a ratio")
@_several("--draw", "virtual_draw", "How virtual items are drawn", get_args(VirtualDraw))
@_several("--planners", "planner", "Who computes which item", get_args(PlannerName))
@_several(
    "--adversaries", "parties", "Whose attacks", ("server", "owner", "client", "coalition", "model")
)
@click.option(
    "--steps",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Steps of a federation before a validation; one more comes after it. 0: none is run.",
)
@click.option(
    "--attributes",
    type=click.Path(path_type=Path),
    help="MovieLens' u.user: what people are, to be inferred; found by itself for ml-100k.",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    help="A picture: attacks, accuracy and bytes over α.",
)
@overwrite_option
@report_option
@json_option
@field_options(Source, "Data, and files of your own")
@field_options(
    Config,
    "Configuration",
    without={"mode", "epochs", "patience", "eval_every", *_SWEPT},
    saying={
        "cooccurrence": "What goes together, for --draw coherent: a public file that `lpgcn data "
        "cooccurrence` makes."
    },
)
@click.option(
    "--epochs",
    type=click.IntRange(min=0),
    default=40,
    show_default=True,
    help="Epochs of the model whose final vectors are attacked; 0: none is trained.",
)
def audit(
    dataset: str | None,
    config_file: Path | None,
    parties: tuple[Any, ...],
    steps: int,
    epochs: int,
    attributes: Path | None,
    plot: Path | None,
    page: Path | None,
    overwrite: bool,
    as_json: bool,
    **fields: Any,
) -> None:
    """Measure what each party can find out.

    Runs a federation in which every party has a seed of its own, as in a deployment, takes the view
    of each adversary, and lets attacks loose on it: the server, owners, a client, the server with
    some clients, and whoever has a finished model. For each the table has the AUC over users (0.5:
    nothing found out), F1 of calling as many items real as there are, the share of interactions
    named, TPR at 0.1 % FPR, and the AUC of somebody who knows popularity and nothing else. In
    brackets: 95 % of a bootstrap over users; --json has it for all measures.

    DATASET is a name of `lpgcn data list`; RUN is the folder of a run, whose data and configuration
    are taken; so are those of --config. What is given here comes before both.
    """
    from lpgcn.data.features import sized
    from lpgcn.privacy.audit import PARTIES
    from lpgcn.privacy.audit import audit as measured
    from lpgcn.privacy.costs import Made
    from lpgcn.report.audits import plot_trade_offs
    from lpgcn.runtime.memory import keep_freed_memory

    keep_freed_memory()
    check_places(page, plot, overwrite=overwrite)
    swept = {name: fields.pop(name) for name in _SWEPT}
    source, base = _asked(dataset, config_file, fields)
    split = source.open()
    settings = _settings(sized(base, split), swept)
    people = _people(split, attributes)
    say(f"{split.name}: {counted(split.n_users, 'user')}, fingerprint {split.fingerprint[:12]}")
    made = Made(split)
    found: list[Audited] = []
    tables: list[AuditTable] = []
    for config in settings:
        what = _said(config, plans_differ=len(swept["planner"]) > 1)
        one = measured(
            split, config, steps=steps, epochs=epochs, parties=parties or PARTIES, people=people,
            made=made, tell=partial(_tell, what),
        )  # fmt: skip
        found.append(one)
        tables.append(_table(one, what))
        if not as_json:
            show(*_report(tables[-1]))
    if len(found) > 1 and not as_json:
        show(_compared(found, [one.setting for one in tables]))
    if as_json:
        about = {"dataset": split.name, "fingerprint": split.fingerprint}
        print_json({**about, "audited": found})
    if plot is not None:
        plot_trade_offs([_trade_off(one) for one in found], plot, split.name)
        say(f"the picture is in {plot}")
    if page is not None:
        _write(page, dataset, split.name, tables, overwrite=overwrite)
        say(f"the report is {page}")


def _tell(what: str, stage: str) -> None:
    say(f"{what}: {stage}")


def _said(config: Config, *, plans_differ: bool) -> str:
    what = f"{config.suite} · {config.model} · α = {config.virtual_items}"
    what += "" if config.virtual_items == "0" else f", {config.virtual_draw}"
    return f"{what} · {config.planner}" if plans_differ else what


def _asked(
    dataset: str | None, config_file: Path | None, fields: dict[str, Any]
) -> tuple[Source, Config]:
    """Of a run, its own data and configuration, changed by what was given."""
    from lpgcn.runtime.runs.run_folder import RunFolder

    wanted = asked(config_file, fields)
    if dataset is not None and (folder := RunFolder(Path(dataset))).has_run:
        run = folder.describe()
        return run.source, run.config.changed(**wanted)
    return source_asked(dataset, fields).resolved(), Config().changed(**{**_SWEPT, **wanted})


def _settings(base: Config, swept: dict[str, tuple[str, ...]]) -> list[Config]:
    """Every combination; without virtual items there is one draw."""
    from lpgcn.model.backbones import class_of

    found: dict[tuple[str, ...], Config] = {}
    for values in product(*(given or (getattr(base, name),) for name, given in swept.items())):
        chosen = dict(zip(swept, values, strict=True))
        if chosen["virtual_items"] == "0":
            chosen["virtual_draw"] = "uniform"
        class_of(chosen["model"])  # What is no backbone is an error before anything is run.
        found[tuple(chosen.values())] = base.changed(mode="federated", **chosen)
    return list(found.values())


def _people(split: Split, path: Path | None) -> dict[str, dict[str, str]]:
    from lpgcn.data.named import data_folder
    from lpgcn.privacy.attacks.attributes import read_movielens

    standard = data_folder() / "ml-100k" / "u.user"
    if path is None and split.name == "ml-100k" and standard.is_file():
        path = standard
    return {} if path is None else read_movielens(path)


def _table(found: Audited, what: str) -> AuditTable:
    from lpgcn.report.audits import AuditTable

    rows = [
        (
            one.adversary, f"{one.attack} → {one.about}", f"{one.users:,}", _between(one.auc),
            _shown(one.f1), _shown(one.named), _shown(one.caught), _popularity(one),
        )
        for one in found.lines
    ]  # fmt: skip
    heads = ("users", "AUC", "F1", "named", "TPR", "popular")
    costs = [f"{found.listed_per_item:.2f} items are listed for each real one"]
    if found.bytes_per_step is not None:
        costs.append(f"a mean client sends and receives {size(found.bytes_per_step)} a step")
    if found.seconds_per_step is not None:
        costs.append(f"all parties together took {found.seconds_per_step:.1f} s of a processor")
    if found.recall is not None:
        costs.append(f"Recall@20 on the validation part is {found.recall:.4f}")
    notes = [f"{one.adversary}, {one.attack}, {one.about}: {one.note}."
             for one in found.lines if one.note]  # fmt: skip
    areas = [
        (f"{one.adversary}: {one.attack} → {one.about}", one.auc.value)
        for one in found.lines
        if one.auc is not None
    ]
    return AuditTable(
        what, ("adversary", "attack → about", *heads), rows, areas, [*notes, "; ".join(costs) + "."]
    )


def _compared(found: list[Audited], settings: list[str]) -> Any:
    """The strongest attack of each adversary under all settings."""
    each = [one.strongest() for one in found]
    names = list(dict.fromkeys(name for one in each for name in one))
    rows = [
        (what, *(f"{one[name]:.3f}" if name in one else "–" for name in names))
        for what, one in zip(settings, each, strict=True)
    ]
    return table(rows, "setting", *names, title="Real or virtual: AUC of the strongest attack")


def _report(found: AuditTable) -> list[Any]:
    return [table(found.rows, *found.headers, title=found.setting), *found.remarks]


def _write(
    page: Path, audited: str | None, name: str, tables: list[AuditTable], *, overwrite: bool
) -> None:
    """Of a run, all that is known about it and the audit; else the audit alone."""
    from lpgcn.report.audits import audit_report, audit_sections
    from lpgcn.report.page import write
    from lpgcn.report.runs import RunRecord
    from lpgcn.report.sections import run_report
    from lpgcn.runtime.runs.run_folder import RunFolder

    if audited is not None and RunFolder(Path(audited)).has_run:
        content = run_report([RunRecord.read(Path(audited))], more=audit_sections(tables))
    else:
        content = audit_report(name, tables)
    write(page, content, overwrite=overwrite)


def _trade_off(found: Audited) -> TradeOff:
    from lpgcn.report.audits import TradeOff

    return TradeOff(
        setting=(found.suite, found.model, found.list_sizes),
        draw=None if found.virtual_items == "0" else found.virtual_draw,
        planner=found.planner,
        listed_per_item=found.listed_per_item,
        attacks=found.strongest(),
        recall=found.recall,
        bytes_per_step=found.bytes_per_step,
    )


def _between(value: Measured | None) -> str:
    if value is None or value.low == value.high:
        return _shown(value)
    return f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]"


def _shown(value: Measured | None) -> str:
    return "–" if value is None else f"{value.value:.3f}"


def _popularity(line: Finding) -> str:
    return "–" if line.popularity_auc is None else f"{line.popularity_auc:.3f}"
