"""Sections about a federation: what it sent, who works how much, who can read what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, get_args

from lpgcn.config import SuiteName
from lpgcn.protocol.ledger import Direction, Role
from lpgcn.protocol.phases import Stage
from lpgcn.protocol.suite import SUITES, Key, Kind, OwnerPush
from lpgcn.report.charts import histogram, stacked_bars
from lpgcn.report.page import Html, Section, folded, joined, paragraph, side_by_side, table
from lpgcn.report.runs import RunRecord
from lpgcn.report.units import size
from lpgcn.runtime.traffic import TrafficSummary

SIDE_BY_SIDE: Final = 4
"""With more runs than these, a page has no column and no section for each."""
_STEP: Final = "A client and training step"
_WAYS: Final[tuple[str, ...]] = get_args(Direction)
_ROLES: Final[tuple[str, ...]] = get_args(Role)
_STAGES: Final[tuple[str, ...]] = get_args(Stage)
_SAYS: Final[Mapping[Kind, str]] = {
    Kind.USER_FORWARD: "a user's vector, forward",
    Kind.USER_BACKWARD: "a user's vector, backward",
    Kind.USER_FINAL: "a user's final vector, for the loss",
    Kind.PUSH: "what an owner pushes",
    Kind.ITEM_FINAL: "an item's final vector",
    Kind.POOL: "where a negative of a pool points",
    Kind.WISH: "which positives a client drew",
    Kind.GRANT: "the vectors of these positives",
    Kind.SCALARS: "loss scalars of positives",
    Kind.NEGATIVE: "loss scalars of a negative",
}
_READERS: Final[Mapping[Key, tuple[str, str, str]]] = {
    Key.CLEAR: ("clear", "reads it", "whoever is sent it"),
    Key.GROUP: ("a key of all clients", "no", "any client that is sent it"),
    Key.SENDER: ("the sender's key", "no", "the owners of the sender's items"),
    Key.PAIRWISE: ("a key of the two", "no", "the other end only"),
}


def traffic(runs: Sequence[RunRecord]) -> Iterator[Section]:
    """What was sent, by stage and role, and a step beside the paper's formulation."""
    found = list(_with_traffic(runs))
    if len(found) > SIDE_BY_SIDE:
        each = [(one.name, (sent.up_per_step, sent.down_per_step)) for one, sent in found]
        yield Section("Traffic", side_by_side(stacked_bars(_STEP, _WAYS, each, size)))
        return
    for one, sent in found:
        title = "Traffic" if len(runs) == 1 else f"Traffic of {one.name}"
        yield Section(title, _sent(one.name, sent))


def _sent(name: str, sent: TrafficSummary) -> Html:
    step = [(name, (sent.up_per_step, sent.down_per_step))]
    if (plan := sent.plan) is not None:
        paper = plan.paper_up_per_step, plan.paper_down_per_step
        step.append(("the paper's formulation", paper))
    counts: dict[tuple[str, str, str], int] = {
        (line.stage, line.direction, line.role): line.bytes for line in sent.ledger
    }
    stages = [*_STAGES, *sorted({line.stage for line in sent.ledger} - {*_STAGES})]
    rows = [
        (f"{stage}, {way}", [counts.get((stage, way, role), 0) for role in _ROLES])
        for stage in stages
        for way in _WAYS
    ]
    lines = [
        [line.stage, line.direction, line.role, f"{line.messages:,}", f"{line.bytes:,}"]
        for line in sent.ledger
    ]
    headers = ["stage", "direction", "clients", "messages", "bytes"]
    roles = [f"{role} clients" for role in _ROLES]
    return joined(
        paragraph(_traffic_said(sent)),
        side_by_side(
            stacked_bars(_STEP, _WAYS, step, size),
            stacked_bars("The whole run, by stage", roles, [r for r in rows if any(r[1])], size),
        ),
        folded("The ledger, line by line", table("The ledger", headers, lines, sortable=True)),
    )


def _traffic_said(sent: TrafficSummary) -> str:
    if not sent.steps:
        return "No step was taken since the run was resumed, so that none was counted."
    said = (
        f"A client sends and receives {size(sent.up_per_step + sent.down_per_step)} a step, in "
        f"{sent.rounds_per_step} rounds: the mean of all clients."
    )
    if sent.plan is not None and sent.share_of_paper is not None:
        paper = size(sent.plan.paper_up_per_step + sent.plan.paper_down_per_step)
        said += (
            " These are serialised messages with all their headers and tags. One gradient for each "
            f"item and layer, as the paper writes it, would be {paper} under the same plan as "
            f"vectors alone: ours is {sent.share_of_paper:.0%} of it."
        )
    return said


def loads(runs: Sequence[RunRecord]) -> Iterator[Section]:
    """How many neighbours the owners of items have."""
    charts = []
    for one, sent in _with_traffic(runs):
        if sent.plan is not None and (found := sent.plan.loads) is not None:
            title = f"Loads of {sent.plan.convolution_clients:,} convolution-clients"
            title += f" ({one.name})" if len(runs) > 1 else ""
            label = "neighbours of a convolution-client"
            charts.append(histogram(title, found.edges, found.clients, label, "clients"))
    if charts:
        said = (
            "A convolution-client computes items for others. Its load is the number of clients "
            "whose vectors it receives in every layer: so many it works for, and sees something of."
        )
        yield Section("Who works how much", joined(paragraph(said), side_by_side(*charts)))


def _with_traffic(runs: Sequence[RunRecord]) -> Iterator[tuple[RunRecord, TrafficSummary]]:
    for one in runs:
        if one.summary is not None and one.summary.traffic is not None:
            yield one, one.summary.traffic


def readers(runs: Sequence[RunRecord]) -> Iterator[Section]:
    """Who can open which message: the protocol's own table, for the suites of these runs."""
    suites: dict[SuiteName, None] = dict.fromkeys(
        one.run.config.suite for one in runs if one.run.config.mode != "centralized"
    )
    tables = [_suite_table(suite) for suite in suites]
    if tables:
        said = (
            "The server carries every message and opens none that is sealed. It still sees who "
            "lists which token, who is in a batch, and how large messages are; what follows from "
            "that is in the documentation, on the pages about privacy and limitations."
        )
        yield Section("Who can read what", joined(paragraph(said), *tables))


def _suite_table(name: SuiteName) -> Html:
    suite = SUITES[name]
    rows = []
    for kind, key in suite.keys.items():
        under, server, others = _READERS[key]
        rows.append([_SAYS.get(kind, kind.name.lower().replace("_", " ")), under, server, others])
    pushes = {
        OwnerPush.SUM_PER_NEIGHBOUR: "one sum for each neighbour",
        OwnerPush.ROW_PER_ITEM: "each item's vector to everybody who lists it",
    }[suite.owner_push]
    caption = f"Suite {name}: an owner pushes {pushes}"
    return table(caption, ["what", "protected by", "the server", "who opens it"], rows)
