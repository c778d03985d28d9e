from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given

from lpgcn.plan import TokenGraph, cost, cover
from lpgcn.plan.sweep import Measure, load_limits, sweep_candidates, sweep_loads
from lpgcn.report.picture import PictureError
from lpgcn.report.plans import plot_loads, plot_sweep


@pytest.fixture(scope="module")
def graph() -> TokenGraph:
    generator = np.random.default_rng(1)
    clients, tokens = generator.integers(0, 200, 3000), (generator.random(3000) ** 3 * 150)
    return TokenGraph.from_pairs(clients, tokens.astype(int), n_clients=200, n_tokens=150)


def measured(graph: TokenGraph) -> Measure:
    return partial(cost, graph, layers=3)


def test_who_is_excused_is_no_candidate(graph: TokenGraph) -> None:
    excused = frozenset(range(0, 200, 2))
    points = sweep_candidates(graph, 0, measured(graph), never_convolve=excused, points=3)
    assert points[-1].convolution_clients <= 100


def test_more_candidates_more_owners_and_less_reuse(graph: TokenGraph) -> None:
    points = sweep_candidates(graph, 0, measured(graph), points=4)
    assert [p.convolution_clients for p in points] == sorted(p.convolution_clients for p in points)
    assert points[0].utilization > points[-1].utilization
    assert points[0].kilobytes < points[-1].kilobytes


def test_traffic_falls_as_the_load_limit_rises(graph: TokenGraph) -> None:
    most = int(graph.degrees.max())
    points = sweep_loads(graph, "greedy", [1, most, 200], 0, measured(graph))
    assert [point.max_load for point in points] == [most, 200], "nobody can keep a limit of 1"
    assert all(point.cost.load_max <= point.max_load for point in points)
    assert points[1].cost.neighbours <= points[0].cost.neighbours


@given(...)
def test_limits_of_a_sweep_rise_and_are_possible(graph: TokenGraph) -> None:
    limits = load_limits(graph, heaviest=int(graph.degrees.max()))
    assert sorted(set(limits)) == limits
    assert limits[0] >= graph.degrees.max()


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_pictures_are_written_whole(graph: TokenGraph, tmp_path: Path, suffix: str) -> None:
    plot_loads(graph, [cover(graph, 0)], tmp_path / f"loads{suffix}", "title")
    curves = {"greedy": sweep_loads(graph, "greedy", [200], 0, measured(graph))}
    over_k = sweep_candidates(graph, 0, measured(graph), points=2)
    plot_sweep(over_k, curves, tmp_path / f"k{suffix}", "title")
    assert {p.name for p in tmp_path.iterdir()} == {f"loads{suffix}", f"k{suffix}"}
    assert all(path.stat().st_size > 5000 for path in tmp_path.iterdir())


def test_an_unknown_kind_of_picture_is_refused(graph: TokenGraph, tmp_path: Path) -> None:
    with pytest.raises(PictureError, match=r"use one of \.png"):
        plot_loads(graph, [cover(graph, 0)], tmp_path / "loads.xyz", "title")
    assert not list(tmp_path.iterdir())
