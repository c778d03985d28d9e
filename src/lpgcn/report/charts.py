"""Charts as inline SVG: lines, bars and histograms, each with a text for those who do not see it
and a table of its figures.

Everything is laid out on a canvas as wide as a telephone, which larger screens show side by side,
so that letters keep their size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from lpgcn.report.page import Html, element, folded, joined, table

_WIDTH: Final = 400.0
_HEIGHT: Final = 250.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 12.0, 10.0, 42.0
_COLOURS: Final = 6
_MOST_DECIMALS: Final = 6
_MOST_DOTS: Final = 40
_MOST_TIPS: Final = 150
_MOST_ROWS: Final = 200
_MOST_LETTERS: Final = 58
"""Of a label above a bar; the whole of it is in what a pointer shows, and in the table."""

Format = Callable[[float], str]


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    under: bool = False
    """Broad and pale, for what other lines are expected to lie on."""
    silent: bool = False
    """Drawn only: neither in the legend nor in the table."""


@dataclass(frozen=True)
class Axis:
    """A scale from figures to places on the canvas."""

    label: str
    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False
    whole: bool = False
    """Figures are whole numbers, as epochs are."""

    def place(self, value: float) -> float:
        low, high, value = map(self._scaled, (self.low, self.high, value))
        return self.start + (self.end - self.start) * (value - low) / ((high - low) or 1.0)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.logarithmic else value

    def labels(self) -> dict[float, str]:
        """What is written at every tick: plain numbers with the decimals of their step."""
        ticks = self.ticks()
        least = min((abs(b - a) for a, b in pairwise(ticks)), default=0.0)
        decimals = math.ceil(-math.log10(least) - 1e-9) if least else _MOST_DECIMALS + 1
        if self.logarithmic or decimals > _MOST_DECIMALS:
            return {value: number(value) for value in ticks}
        # A tick at zero may be -0, or the rest of a rounding.
        return {value: f"{round(value, 9) + 0.0:,.{max(decimals, 0)}f}" for value in ticks}

    def ticks(self, most: int = 6) -> list[float]:
        if self.low == self.high:
            return [self.low]
        if self.logarithmic:
            return _powers(self.low, self.high, most)
        step = _step(self.high - self.low, most)
        if self.whole:
            step = max(1.0, step)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """1,234 or 0.1234."""
    return f"{value:,.0f}" if value == round(value) or abs(value) >= 1000 else f"{value:.4g}"


def line_chart(
    title: str,
    series: Sequence[Series],
    x_label: str,
    *,
    y_label: str = "",
    from_zero: bool = False,
    logarithmic: bool = False,
) -> Html:
    """Lines over a common axis; `logarithmic` is the axis of x."""
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    low, high = _range(ys, from_zero=from_zero)
    across = Axis(
        x_label, min(xs), max(xs), _LEFT, _WIDTH - _RIGHT, logarithmic,
        whole=all(x == round(x) for x in xs),
    )  # fmt: skip
    up = Axis(y_label, low, high, _HEIGHT - _BOTTOM, _TOP)
    parts = [_frame(across, up)]
    parts += [_line(one, across, up) for one in sorted(series, key=lambda one: not one.under)]
    parts += _tips(series, across, up)
    told = [one for one in series if not one.silent]
    described = "; ".join(_described(one, x_label) for one in told)
    legend = _legend([(one.name, one.colour, one.under) for one in told])
    rows = _rows(told)
    names = [one.name for one in told]
    return _figure(title, legend, _HEIGHT, parts, described, table(title, [x_label, *names], rows))


def histogram(
    title: str, edges: Sequence[float], counts: Sequence[int], x_label: str, y_label: str
) -> Html:
    """Bars between edges, on a logarithmic axis."""
    across = Axis(x_label, edges[0], edges[-1], _LEFT, _WIDTH - _RIGHT, logarithmic=True)
    up = Axis(y_label, 0, max(counts) * 1.05, _HEIGHT - _BOTTOM, _TOP)
    parts = [_frame(across, up)]
    spans = [f"{number(low)} to {number(high - 1)}" for low, high in pairwise(edges)]
    for (low, high), count, span in zip(pairwise(edges), counts, spans, strict=True):
        if count:
            left, right, top = across.place(low), across.place(high), up.place(count)
            height = _HEIGHT - _BOTTOM - top
            parts.append(_bar(f"{span}: {count:,}", left + 0.75, top, right - left - 1.5, height))
    most = max(range(len(counts)), key=lambda at: counts[at])
    described = (
        f"{sum(counts):,} in all, from {number(edges[0])} to {number(edges[-1] - 1)}; "
        f"most, {counts[most]:,}, are at {spans[most]}"
    )
    rows = [[span, f"{count:,}"] for span, count in zip(spans, counts, strict=True)]
    return _figure(title, Html(), _HEIGHT, parts, described, table(title, [x_label, y_label], rows))


def stacked_bars(
    title: str, parts: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]], show: Format
) -> Html:
    """A bar for each row, from left to right made of the same parts."""
    most = max((sum(values) for _, values in rows), default=0) or 1
    span, height = _WIDTH - 78, 40
    drawn: list[Html] = []
    for at, (label, values) in enumerate(rows):
        left, top = 0.0, at * height
        drawn.append(element("text", _shortened(label), x=0, y=top + 13, class_="label"))
        for colour, (part, value) in enumerate(zip(parts, values, strict=True)):
            width = span * value / most
            if value:
                drawn.append(
                    _bar(f"{label}, {part}: {show(value)}", left, top + 18, width, 14, colour)
                )
            left += width
        drawn.append(element("text", show(sum(values)), x=_at(left + 6), y=top + 29.5))
    described = "; ".join(
        f"{label}: "
        + ", ".join(f"{part} {show(value)}" for part, value in zip(parts, values, strict=True))
        for label, values in rows
    )
    figures = [[label, *map(show, values), show(sum(values))] for label, values in rows]
    legend = _legend([(part, colour, False) for colour, part in enumerate(parts)])
    shown = table(title, ["what", *parts, "together"], figures)
    return _figure(title, legend, len(rows) * height, drawn, described, shown)


def _shortened(label: str) -> str:
    return label if len(label) <= _MOST_LETTERS else f"{label[: _MOST_LETTERS - 1].rstrip()}…"


def _bar(title: str, x: float, y: float, width: float, height: float, colour: int = 0) -> Html:
    return element(
        "rect", element("title", title), x=_at(x), y=_at(y), width=_at(max(width, 0.5)),
        height=_at(height), class_=f"bar c{colour % _COLOURS}",
    )  # fmt: skip


def _figure(
    title: str, legend: Html, height: float, parts: Sequence[Html], described: str, figures: Html
) -> Html:
    picture = element(
        "svg",
        *parts,
        viewBox=f"0 0 {_WIDTH:g} {height:g}",
        role="img",
        aria_label=f"{title}. {described}.",
    )
    caption = element("figcaption", title)
    return element("figure", caption, legend, picture, folded("The figures", figures))


def _frame(across: Axis, up: Axis) -> Html:
    """Rules, ticks and names of both axes."""
    right, bottom = across.end, up.start
    parts: list[Html] = []
    figures = up.labels()
    for value in up.ticks():
        y = _at(up.place(value))
        parts.append(
            element("line", x1=_at(across.start), x2=_at(right), y1=y, y2=y, class_="rule")
        )
        shown = element(
            "text", figures[value], x=_at(across.start - 6), y=y, text_anchor="end", dy="0.35em"
        )
        parts.append(shown)
    parts.append(
        element(
            "line",
            x1=_at(across.start),
            x2=_at(right),
            y1=_at(bottom),
            y2=_at(bottom),
            class_="axis",
        )
    )
    for value in across.ticks():
        x = _at(across.place(value))
        parts.append(element("line", x1=x, x2=x, y1=_at(bottom), y2=_at(bottom + 4), class_="axis"))
        parts.append(element("text", number(value), x=x, y=_at(bottom + 17), text_anchor="middle"))
    middle = (across.start + right) / 2
    parts.append(
        element("text", across.label, x=_at(middle), y=_at(bottom + 36), text_anchor="middle")
    )
    if up.label:
        half = (up.start + up.end) / 2
        turned = f"rotate(-90 11 {half:g})"
        parts.append(
            element("text", up.label, x=11, y=_at(half), text_anchor="middle", transform=turned)
        )
    return joined(*parts)


def _line(one: Series, across: Axis, up: Axis) -> Html:
    places = [(_at(across.place(x)), _at(up.place(y))) for x, y in one.points]
    path = "M" + "L".join(f"{x} {y}" for x, y in places)
    if len(places) == 1:
        path += "h0.01"
    colour = f"c{one.colour % _COLOURS}"
    under = " under" if one.under else ""
    line = element("path", d=path, class_=f"line {colour}{under}")
    if one.under or len(places) > _MOST_DOTS:
        return line
    return joined(
        line, *(element("circle", cx=x, cy=y, r=3.5, class_=f"dot {colour}") for x, y in places)
    )


def _tips(series: Sequence[Series], across: Axis, up: Axis) -> list[Html]:
    """What is shown where the mouse is, by the style sheet alone."""
    shown = _thinned(sorted({x for one in series for x, _ in one.points}), _MOST_TIPS)
    half = (across.end - across.start) / max(2 * (len(shown) - 1), 1)
    values = [dict(one.points) for one in series]
    tips = []
    for x in shown:
        at = across.place(x)
        found = [number(points[x]) for points in values if x in points]
        label = f"{number(x)}: {', '.join(dict.fromkeys(found))}"
        width = 7.0 * len(label) + 12
        left = min(max(at - width / 2, 0.0), _WIDTH - width)
        tip = element(
            "g",
            element(
                "line", x1=_at(at), x2=_at(at), y1=_at(up.end), y2=_at(up.start), class_="axis"
            ),
            element("rect", x=_at(left), y=0, width=_at(width), height=20, rx=4),
            element("text", label, x=_at(left + width / 2), y=14, text_anchor="middle"),
            class_="tip",
        )
        hit = element(
            "rect", x=_at(at - half), y=_at(up.end), width=_at(2 * half),
            height=_at(up.start - up.end), fill="transparent",
        )  # fmt: skip
        tips.append(element("g", hit, tip, class_="at"))
    return tips


def _legend(entries: Sequence[tuple[str, int, bool]]) -> Html:
    if len(entries) < 2:
        return Html()
    items = []
    for name, colour, under in entries:
        height, faint = (9, "0.4") if under else (5, None)
        swatch = element(
            "svg",
            element("rect", x=0, y=_at(5 - height / 2), width=20, height=height, rx=2,
                    class_=f"swatch c{colour % _COLOURS}", opacity=faint),
            viewBox="0 0 20 10",
            aria_hidden="true",
        )  # fmt: skip
        items.append(element("li", swatch, element("span", name)))
    return element("ul", *items, class_="legend")


def _described(one: Series, x_label: str) -> str:
    (first, begin), (last, end) = one.points[0], one.points[-1]
    if first == last:
        return f"{one.name}: {number(begin)} at {x_label} {number(first)}"
    return (
        f"{one.name}: from {number(begin)} at {x_label} {number(first)} "
        f"to {number(end)} at {number(last)}"
    )


def _rows(series: Sequence[Series]) -> list[list[str]]:
    values = [dict(one.points) for one in series]
    shown = _thinned(sorted({x for points in values for x in points}), _MOST_ROWS)
    return [
        [number(x), *(number(points[x]) if x in points else "–" for points in values)]
        for x in shown
    ]


def _thinned(values: list[float], most: int) -> list[float]:
    """Every n-th, and the last."""
    every = math.ceil(len(values) / most) or 1
    return [*values[:-1:every], *values[-1:]]


def _range(values: Sequence[float], *, from_zero: bool) -> tuple[float, float]:
    """A little more than the figures take, so that no line lies on the frame."""
    low, high = min(values), max(values)
    spread = (high - low) or abs(high) or 1.0
    return (0.0 if from_zero else low - 0.06 * spread), high + 0.06 * spread


def _step(spread: float, most: int) -> float:
    """1, 2 or 5 times a power of ten."""
    rough = spread / most
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * nice for nice in (1, 2, 5, 10) if power * nice >= rough * (1 - 1e-9))


def _powers(low: float, high: float, most: int) -> list[float]:
    """1, 2 and 5 times powers of ten, or, where these are too many, powers alone; where these are
    too few, even steps, or both ends."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [10.0**power * nice for power in powers for nice in (1, 2, 5)]
    inside = [value for value in fine if low <= value <= high]
    if len(inside) > most:
        inside = [value for value in inside if f"{value:.0e}".startswith("1")]
    if len(inside) > 2:
        return inside
    step = _step(high - low, most)
    even = [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return even if len(even) > 2 else [low, high]


def _at(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
