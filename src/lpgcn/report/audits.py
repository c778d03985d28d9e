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
_DASHES: Final = ("-", "--", ":", "-.")


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

    setting: tuple[str, ...]
    """What has a line of its own: suite, model, sizes of lists."""
    draw: str | None
    """Of virtual items; None without any, which is where the lines of all draws begin."""
    planner: str
    listed_per_item: float
    """Listed items for each real one."""
    attacks: Mapping[str, float]
    """The AUC of each adversary's strongest attack on the real/virtual bits."""
    recall: float | None
    bytes_per_step: float | None


def plot_trade_offs(points: Sequence[TradeOff], path: Path, title: str) -> None:
    """Left the attacks, in the middle Recall, on the right bytes, all over the listed items. A
    colour for each draw, a dash for each plan, a marker for each adversary."""
    figure = new_figure(13.0, 4.8)
    figure.suptitle(f"{title}: what virtual items hide, and what they cost")
    privacy, accuracy, traffic = figure.subplots(1, 3)
    colours, dashes = _Styles(), _Styles()
    adversaries = sorted({name for one in points for name in one.attacks})
    drawn = set[tuple[object, ...]]()
    for (name, planner), own in _lines(points).items():
        look = f"C{colours.number(name)}", _DASHES[dashes.number(planner) % len(_DASHES)]
        x = [one.listed_per_item for one in own]
        columns = [(accuracy, "o", [one.recall for one in own])]
        columns.append((traffic, "o", [_thousands(one.bytes_per_step) for one in own]))
        for number, adversary in enumerate(adversaries):
            found = [one.attacks.get(adversary) for one in own]
            columns.append((privacy, _MARKERS[number % len(_MARKERS)], found))
        for panel, marker, y in columns:
            # What does not depend on the plan is drawn once.
            key = (id(panel), name, marker, *y)
            if key not in drawn:
                drawn.add(key)
                _draw(panel, x, y, marker, look)
    privacy.axhline(0.5, color="grey", linewidth=0.8)
    privacy.set(ylabel="AUC, real or virtual", ylim=(0.48, 1.01), title="strongest attack")
    accuracy.set(ylabel="Recall@20, validation", title="accuracy")
    traffic.set(ylabel="KB a client and step", title="traffic, up and down")
    traffic.set_ylim(bottom=0)
    for panel in (privacy, accuracy, traffic):
        panel.set_xlabel("listed items for each real one")
        panel.grid(alpha=0.3)
    _legends(privacy, traffic, accuracy, colours, dashes, adversaries)
    save(figure, path)


class _Styles:
    """Numbers for names, in the order in which they come."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self.names.setdefault(name, len(self.names))


def _thousands(value: float | None) -> float | None:
    return None if value is None else value / 1000


def _lines(points: Sequence[TradeOff]) -> dict[tuple[str, str], list[TradeOff]]:
    """By what differs of setting and draw, and by plan; from few virtual items to many."""
    first, found = points[0].setting, dict[tuple[str, str], list[TradeOff]]()
    differs = [any(one.setting[at] != first[at] for one in points) for at in range(len(first))]
    draws = list(dict.fromkeys(one.draw for one in points if one.draw is not None)) or ["none"]
    for one in points:
        parts = [part for part, differ in zip(one.setting, differs, strict=True) if differ]
        for draw in draws if one.draw is None else [one.draw]:
            found.setdefault((", ".join([*parts, draw]), one.planner), []).append(one)
    return {name: sorted(own, key=lambda one: one.listed_per_item) for name, own in found.items()}


def _legends(
    privacy: Axes, traffic: Axes, accuracy: Axes, colours: _Styles, dashes: _Styles,
    adversaries: Sequence[str],
) -> None:  # fmt: skip
    for name, number in colours.names.items():
        accuracy.plot([], [], "o-", color=f"C{number}", label=name)
    accuracy.legend(fontsize=8, title="virtual items drawn", title_fontsize=8)
    for name, number in dashes.names.items():
        traffic.plot([], [], _DASHES[number % len(_DASHES)], color="grey", label=name)
    traffic.legend(fontsize=8, title="plan", title_fontsize=8)
    for number, name in enumerate(adversaries):
        privacy.plot([], [], _MARKERS[number % len(_MARKERS)], color="grey", label=name)
    if adversaries:
        privacy.legend(fontsize=8)


def _draw(
    panel: Axes, x: Sequence[float], y: Sequence[float | None], marker: str, look: tuple[str, str]
) -> None:
    known = [(one, other) for one, other in zip(x, y, strict=True) if other is not None]
    if known:
        where, values = zip(*known, strict=True)
        colour, dash = look
        panel.plot(where, values, marker + dash, color=colour, alpha=0.8, markersize=5)
