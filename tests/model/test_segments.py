"""Sums of segments against plain Python, and the same bits for a segment alone or among all."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.model.segments import Graph, Segments

DIMS = [1, 3, 7, 8, 16, 20, 33, 64, 65, 100, 128]
DTYPES = [torch.float32, torch.float64]


@st.composite
def segments(draw: st.DrawFn) -> tuple[Segments, int]:
    """Rows with any indices, in any order and more than once, some rows with none."""
    n_vectors = draw(st.integers(1, 30))
    index = st.integers(0, n_vectors - 1)
    rows = draw(st.lists(st.lists(index, max_size=40), min_size=1, max_size=12))
    offsets = np.cumsum([0, *map(len, rows)])
    indices = np.array([index for row in rows for index in row], dtype=np.int64)
    return Segments.from_arrays(offsets, indices), n_vectors


@pytest.mark.parametrize("dtype", DTYPES)
@settings(deadline=None, max_examples=60)
@given(case=segments(), dim=st.sampled_from(DIMS), seed=st.integers(0, 99), data=st.data())
def test_a_sum_is_added_one_after_the_other(
    dtype: torch.dtype,
    case: tuple[Segments, int],
    dim: int,
    seed: int,
    data: st.DataObject,
) -> None:
    whole, n_vectors = case
    random = np.random.default_rng(seed)
    arrived = torch.from_numpy(random.standard_normal((n_vectors, dim))).to(dtype)
    weights = torch.from_numpy(random.standard_normal(len(whole.indices))).to(dtype)
    total, weighted = whole.sum(arrived), whole.weighted_sum(arrived, weights)
    row = data.draw(st.integers(0, len(whole.counts) - 1))
    entries = slice(int(whole.offsets[row]), int(whole.offsets[row + 1]))
    # What a party that owns only this row has: the vectors that it got, in its order.
    got = arrived[whole.indices[entries]]
    alone = Segments.from_arrays(np.array([0, len(got)]), np.arange(len(got)))
    if len(got):
        assert torch.equal(alone.sum(got)[0], total[row])
        assert torch.equal(alone.weighted_sum(got, weights[entries])[0], weighted[row])
    expected, expected_weighted = np.zeros(dim), np.zeros(dim)
    for vector, weight in zip(got.double().numpy(), weights[entries].double().numpy(), strict=True):
        expected += vector
        expected_weighted += weight * vector
    tolerance = 1e-4 if dtype == torch.float32 else 1e-12
    np.testing.assert_allclose(total[row].double(), expected, atol=tolerance)
    np.testing.assert_allclose(weighted[row].double(), expected_weighted, atol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", DIMS)
def test_the_order_of_a_plain_sum_is_that_of_the_entries(dim: int, dtype: torch.dtype) -> None:
    arrived = torch.from_numpy(np.random.default_rng(dim).standard_normal((500, dim))).to(dtype)
    expected = torch.zeros(dim, dtype=dtype)
    for vector in arrived:
        expected += vector
    whole = Segments.from_arrays(np.array([0, 500]), np.arange(500))
    assert torch.equal(whole.sum(arrived)[0], expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_and_the_layout_of_memory_do_not_matter(dtype: torch.dtype) -> None:
    """A row of 20 numbers may lie in a row of 32, as Adam's do."""
    random = np.random.default_rng(0)
    rows = np.sort(random.integers(0, 3000, 40_000))
    whole = Segments.from_sorted_rows(rows, random.integers(0, 2000, 40_000), 3000)
    padded = torch.from_numpy(random.standard_normal((2000, 32))).to(dtype)
    threads = torch.get_num_threads()
    try:
        totals = []
        for n in (1, 2, 3):
            torch.set_num_threads(n)
            totals += [whole.sum(padded[:, :20]), whole.sum(padded[:, :20].contiguous())]
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(total, totals[0]) for total in totals)


@given(st.sets(st.tuples(st.integers(0, 9), st.integers(0, 14)), max_size=60))
def test_both_directions_of_a_graph_ascend(pairs: set[tuple[int, int]]) -> None:
    users, items = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
    graph = Graph.from_pairs(users, items, 10, 15)
    for direction, listed in (
        (graph.items_of_users, [sorted(i for u, i in pairs if u == user) for user in range(10)]),
        (graph.users_of_items, [sorted(u for u, i in pairs if i == item) for item in range(15)]),
    ):
        assert direction.counts.tolist() == [len(row) for row in listed]
        assert direction.indices.tolist() == [index for row in listed for index in row]
