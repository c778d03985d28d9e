"""Figures are where the axes say."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.report.charts import Axis, Series, histogram, line_chart, stacked_bars
from lpgcn.report.units import size

finite = st.floats(-1e6, 1e6).map(lambda value: round(value, 6))


def picture(html: str) -> ElementTree.Element:
    """The drawing itself; it is XML."""
    tree = ElementTree.fromstring(html)
    found = tree.find("svg")
    assert found is not None
    return found


def tick_places(drawn: ElementTree.Element, *, axis: str) -> list[tuple[float, float]]:
    """(place, figure) of every tick, read off the picture."""
    found = []
    for text in drawn.iter("text"):
        is_y = text.get("text-anchor") == "end"
        label = (text.text or "").replace(",", "")
        if is_y == (axis == "y") and re.fullmatch(r"-?[\d.]+(e[-+]?\d+)?", label):
            found.append((float(text.get("y" if is_y else "x") or 0), float(label)))
    return found


@given(finite, st.floats(1e-3, 1e6))
def test_ticks_are_round_few_and_on_the_axis(low: float, spread: float) -> None:
    axis = Axis("x", low, low + spread, 0, 100)
    ticks = axis.ticks()
    assert 2 <= len(ticks) <= 7
    assert all(low - 1e-6 * spread <= tick <= low + spread * (1 + 1e-6) for tick in ticks)
    steps = [b - a for a, b in pairwise(ticks)]
    assert steps == pytest.approx([max(steps, default=0.0)] * len(steps), rel=1e-5)


@given(st.floats(-1e3, 1e3), st.floats(1e-4, 1e4))
def test_figures_of_an_axis_are_alike_and_told_apart(low: float, spread: float) -> None:
    axis = Axis("x", low, low + spread, 0, 100)
    labels = axis.labels()
    assert len(set(labels.values())) == len(labels)
    assert len({len(text.partition(".")[2]) for text in labels.values()}) == 1
    for value, text in labels.items():
        assert float(text.replace(",", "")) == pytest.approx(value, abs=1e-9 + 1e-6 * spread)


@given(st.floats(1, 1e6), st.floats(1.01, 1e5))
def test_logarithmic_ticks_are_few_and_on_the_axis(low: float, ratio: float) -> None:
    ticks = Axis("x", low, low * ratio, 0, 100, logarithmic=True).ticks()
    assert 2 <= len(ticks) <= 8
    assert all(low * (1 - 1e-9) <= tick <= low * ratio * (1 + 1e-9) for tick in ticks)


@given(st.lists(st.tuples(st.integers(1, 500), finite), min_size=2, unique_by=lambda p: p[0]))
def test_a_line_goes_through_its_points(points: list[tuple[int, float]]) -> None:
    points.sort()
    series = Series("run", [(float(x), y) for x, y in points])
    drawn = picture(line_chart("title", [series], "epoch"))
    path = next(one for one in drawn.iter("path") if "line" in (one.get("class") or ""))
    places = [tuple(map(float, pair.split())) for pair in (path.get("d") or "")[1:].split("L")]
    assert len(places) == len(points)
    # Places and figures are in one proportion, whatever the axis is.
    x0, x1 = places[0][0], places[-1][0]
    assert x0 < x1
    lowest, highest = min(points, key=lambda p: p[1]), max(points, key=lambda p: p[1])
    spread = highest[1] - lowest[1]
    for (x, y), (across, down) in zip(points, places, strict=True):
        assert across == pytest.approx(
            x0 + (x1 - x0) * (x - points[0][0]) / (points[-1][0] - points[0][0]), abs=0.02
        )
        if spread > 1e-3:
            top, bottom = places[points.index(highest)][1], places[points.index(lowest)][1]
            share = (y - lowest[1]) / spread
            assert down == pytest.approx(bottom + (top - bottom) * share, abs=0.02)
            assert top < bottom


def test_ticks_stand_where_their_figures_are() -> None:
    drawn = picture(line_chart("t", [Series("a", [(1.0, 0.25), (9.0, 0.75)])], "epoch"))
    path = next(one for one in drawn.iter("path"))
    (x0, y0), (x1, y1) = (map(float, pair.split()) for pair in (path.get("d") or "")[1:].split("L"))
    ys = tick_places(drawn, axis="y")
    assert len(ys) >= 3
    for place, figure in ys:
        assert place == pytest.approx(y0 + (y1 - y0) * (figure - 0.25) / 0.5, abs=0.05)
    for place, figure in tick_places(drawn, axis="x"):
        assert place == pytest.approx(x0 + (x1 - x0) * (figure - 1) / 8, abs=0.05)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12).filter(any))
def test_bars_of_a_histogram_are_as_high_as_their_counts(counts: list[int]) -> None:
    edges = [2**n for n in range(len(counts) + 1)]
    html = histogram("title", edges, counts, "load", "clients")
    bars = [one for one in picture(html).iter("rect") if one.get("class") == "bar c0"]
    heights = [float(bar.get("height") or 0) for bar in bars]
    wanted = [count for count in counts if count]
    assert len(heights) == len(wanted)
    scale = max(heights) / max(wanted)
    assert heights == pytest.approx([count * scale for count in wanted], abs=0.02)
    assert f"{sum(counts):,} in all" in html


@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 1e9)), min_size=1, max_size=5))
def test_stacked_bars_are_as_long_as_their_sums(values: list[tuple[float, float]]) -> None:
    rows = [(f"row {at}", pair) for at, pair in enumerate(values)]
    html = stacked_bars("title", ("up", "down"), rows, size)
    longest = max(map(sum, values)) or 1
    lengths: dict[str, float] = {}
    for bar in picture(html).iter("rect"):
        title = bar.find("title")
        assert title is not None
        row = (title.text or "").partition(",")[0]
        lengths[row] = lengths.get(row, 0.0) + float(bar.get("width") or 0)
    for name, pair in rows:
        # What is too thin to be seen is half a unit wide all the same.
        assert lengths.get(name, 0.0) == pytest.approx(322 * sum(pair) / longest, abs=1.1)


def test_a_chart_says_in_words_what_it_shows() -> None:
    points = [(1.0, 0.5), (2.0, 0.25)]
    html = line_chart("Loss", [Series("a", points), Series("b", points, 1, silent=True)], "epoch")
    label = picture(html).get("aria-label")
    assert label == "Loss. a: from 0.5 at epoch 1 to 0.25 at 2."
    assert html.count("<tr>") == 3


def test_a_label_stays_within_its_chart() -> None:
    """And is whole where it is pointed at, and in the table."""
    label = "owner, heaviest: the means of final vectors → who has its own items elsewhere"
    html = str(stacked_bars("title", ("AUC",), [(label, [0.5])], "{:.3f}".format))
    [shown] = re.findall(r'<text[^>]*class="label"[^>]*>([^<]*)</text>', html)
    assert shown.endswith("…") and label.startswith(shown[:-1].rstrip())
    assert len(shown) * 6.5 < 400
    assert html.count(label) >= 3
