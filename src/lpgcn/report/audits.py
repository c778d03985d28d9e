"""The paper's trade-off CPS = Acc + Pri(α) − Eff(α, k), with measured numbers for its terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lpgcn.report.charts import stacked_bars
from lpgcn.report.page import (
    Fact,
    Html,
    Section,
    joined,
    page,
    paragraph,
    side_by_side,
    table,
)
from lpgcn.report.picture import new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS: Final = "osD^v*"


@dataclass(frozen=True)
class AuditTable:
    """What was measured under one setting, as it is shown."""

    setting: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    areas: Sequence[tuple[str, float]]
    """Attacks and their AUC."""
    remarks: Sequence[str]


def audit_sections(tables: Sequence[AuditTable]) -> list[Section]:
    """One for each setting."""
    return [Section(f"Audit: {one.setting}", _audited(one)) for one in tables]


def audit_report(dataset: str, tables: Sequence[AuditTable]) -> bytes:
    """The page about an audit."""
    strongest = [max(one.areas, key=lambda area: area[1]) for one in tables if one.areas]
    facts = [
        Fact(one.setting, f"{area:.3f}", f"AUC of the strongest: {attack}")
        for one, (attack, area) in zip((one for one in tables if one.areas), strongest, strict=True)
    ]
    lead = "What each party can find out, measured by attacks on what it sees."
    return page(f"{dataset}: an audit", lead, facts, audit_sections(tables))


def _audited(one: AuditTable) -> Html:
    said = "AUC over users: 0.5 is a guess, 1 is certainty. In brackets 95 % of a bootstrap."
    parts = [paragraph(said)]
    if one.areas:
        rows = [(attack, [area]) for attack, area in one.areas]
        parts.append(
            side_by_side(stacked_bars("AUC of each attack", ["AUC"], rows, "{:.3f}".format))
        )
    parts.append(table(one.setting, one.headers, one.rows, sortable=True))
    return joined(*parts, *(paragraph(remark) for remark in one.remarks))


@dataclass(frozen=True)
class TradeOff:
    """One setting, as far as it was measured."""

    series: str
    """Points of one series are on one line."""
    listed_per_item: float
    """Listed items for each real one."""
    attacks: Mapping[str, float]
    """The AUC of each adversary's strongest attack on the real/virtual bits."""
    recall: float | None
    bytes_per_step: float | None


def plot_trade_offs(points: Sequence[TradeOff], path: Path, title: str) -> None:
    """Left the attacks, in the middle Recall, on the right bytes, all over the listed items."""
    figure = new_figure(15.0, 4.5)
    figure.suptitle(f"{title}: privacy, accuracy and traffic of virtual items")
    privacy, accuracy, traffic = figure.subplots(1, 3)
    adversaries = sorted({name for one in points for name in one.attacks})
    for number, series in enumerate(dict.fromkeys(one.series for one in points)):
        own = sorted(
            (one for one in points if one.series == series), key=lambda one: one.listed_per_item
        )
        x = [one.listed_per_item for one in own]
        for name in adversaries:
            y = [one.attacks.get(name) for one in own]
            _draw(privacy, x, y, number, _MARKERS[adversaries.index(name) % len(_MARKERS)], "")
        _draw(accuracy, x, [one.recall for one in own], number, "o", series)
        _draw(traffic, x, [one.bytes_per_step for one in own], number, "o", series)
    for number, name in enumerate(adversaries):
        privacy.plot([], [], _MARKERS[number % len(_MARKERS)], color="grey", label=name)
    privacy.axhline(0.5, color="grey", linewidth=0.8)
    privacy.set(ylabel="AUC, real or virtual", ylim=(0.45, 1.02), title="strongest attack")
    accuracy.set(ylabel="Recall@20, validation", title="accuracy")
    traffic.set(ylabel="bytes a client and step", title="traffic")
    for panel in (privacy, accuracy, traffic):
        panel.set_xlabel("listed items for each real one")
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=7)
    save(figure, path)


def _draw(
    panel: Axes, x: Sequence[float], y: Sequence[float | None], colour: int, marker: str,
    label: str,
) -> None:  # fmt: skip
    known = [(one, other) for one, other in zip(x, y, strict=True) if other is not None]
    if known:
        where, values = zip(*known, strict=True)
        panel.plot(where, values, marker + "-", color=f"C{colour}", label=label, alpha=0.7)
