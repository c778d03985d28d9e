"""What fits the grid is rounded to it; what does not is an error that says where. Nothing wraps."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lpgcn.config import Config
from lpgcn.model.grid import Grid, GridError
from lpgcn.model.kernels import Kernels
from lpgcn.model.kernels.compiled import Compiled
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.kernels.threads import Threads
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.model.propagation import Nodes, building_push
from lpgcn.ragged import Ragged

DTYPES = ["float32", "float64"]
LIMITS = {"float32": 2**31, "float64": 2**53}
"""The smallest integer that does not fit."""

KERNELS: list[Kernels] = [Plain(), Compiled(Threads(1))]

each_dtype = pytest.mark.parametrize("dtype", DTYPES)
each_kernels = pytest.mark.parametrize("kernels", KERNELS, ids=["plain", "compiled"])


def near(limit: int, width: int) -> st.SearchStrategy[float]:
    """Numbers on both sides of both limits, small ones, and what is no number at all."""
    around = st.integers(-8, 8).map(lambda n: limit + n / 4)
    sizes = st.one_of(around, st.floats(0, 3), st.floats(0, 4 * limit, width=64))
    numbers = st.tuples(sizes, st.sampled_from([1, -1])).map(lambda pair: pair[0] * pair[1])
    return st.one_of(numbers, st.sampled_from([math.nan, math.inf, -math.inf])).map(
        lambda number: float(np.float32(number)) if width == 32 else number
    )


def rounded(grid: Grid, values: Any, kernels: Kernels, factor: float = 1.0) -> Any:
    return grid.round(values, np.full(len(values), factor), "here", kernels)


@each_kernels
@each_dtype
@pytest.mark.parametrize("width", [32, 64])
@given(data=st.data())
def test_rounds_to_the_nearest_or_refuses(
    dtype: Any, width: int, kernels: Kernels, data: st.DataObject
) -> None:
    """Python's own integers decide what is right; ties go to the even neighbour."""
    limit = LIMITS[dtype]
    values = data.draw(st.lists(near(limit, width), max_size=6))
    grid = Grid.forward(dtype)
    array = np.array(values, dtype=f"float{width}").reshape(-1, 1)
    fits = all(math.isfinite(value) and abs(round(value)) < limit for value in values)
    if fits:
        found = rounded(grid, array, kernels)
        assert found.dtype == grid.integer
        assert found[:, 0].tolist() == [round(value) for value in values]
    else:
        with pytest.raises(GridError):
            rounded(grid, array, kernels)


@each_dtype
@given(data=st.data())
def test_sums_fit_or_are_refused(dtype: Any, data: st.DataObject) -> None:
    limit, whole = LIMITS[dtype], st.integers(-(2**63), 2**63 - 1)
    around = st.integers(limit - 3, limit + 3).flatmap(lambda n: st.sampled_from([n, -n]))
    numbers = st.one_of(whole, around, st.integers(-limit + 1, limit - 1))
    sums = data.draw(arrays.arrays(np.int64, st.integers(0, 5), elements=numbers))
    grid = Grid.forward(dtype)
    if all(abs(number) < limit for number in sums.tolist()):
        found = grid.fit(sums, "here")
        assert found.dtype == grid.integer
        assert found.tolist() == sums.tolist()
    else:
        with pytest.raises(GridError):
            grid.fit(sums, "here")


@each_kernels
@each_dtype
def test_a_number_on_the_grid_is_as_near_as_half_a_step(dtype: Any, kernels: Kernels) -> None:
    values = np.random.default_rng(0).standard_normal((50, 8))
    for grid in (Grid.forward(dtype), Grid.backward(dtype, 2048)):
        assert grid.unit * grid.steps == 1
        error = np.abs(rounded(grid, values, kernels, grid.steps) * grid.unit - values)
        assert 0 < error.max() <= grid.unit / 2


def test_the_grids_are_the_public_ones() -> None:
    """They are part of the protocol: to change them is to change everybody's bits."""
    assert [Grid.forward(dtype).exponent for dtype in DTYPES] == [24, 44]
    sizes = (1, 32, 2048, 2049, 4096, 4097, 1 << 20, 739_706)
    expected = [25, 25, 25, 24, 24, 23, 16, 16]
    assert [Grid.backward("float32", size).exponent for size in sizes] == expected
    assert [Grid.backward("float64", size).exponent for size in sizes] == [n + 20 for n in expected]
    assert [Grid.backward(dtype, "full").exponent for dtype in DTYPES] == [16, 36]


@each_dtype
def test_full_batches_have_the_grid_of_a_million_samples_however_many_they_are(dtype: Any) -> None:
    assert Grid.backward(dtype, "full") == Grid.backward(dtype, 2**20)
    config = Config(dim=2, batch_size="full", dtype=dtype)
    assert nodes(dtype, batch_size="full").backward_grid == Grid.backward(dtype, config.batch_size)


@each_dtype
@given(size=st.integers(1, 2**40), more=st.integers(0, 2**40))
def test_gradients_of_larger_batches_have_a_coarser_grid_with_more_room(
    dtype: Any, size: int, more: int
) -> None:
    grid, larger = Grid.backward(dtype, size), Grid.backward(dtype, size + more)
    assert larger.exponent <= grid.exponent
    assert (grid.largest + 1) * grid.unit >= size / 32
    assert Grid.backward(dtype, 2 * size + 2048).exponent < Grid.backward(dtype, 2048).exponent


@each_kernels
@pytest.mark.parametrize("value", [math.nan, math.inf, 128.0, -3e12])
def test_an_error_says_where_and_how_much_and_what_to_do(value: float, kernels: Kernels) -> None:
    """What is no number counts as infinite."""
    grid, values = Grid.forward("float32"), np.array([[1.0, value], [2.0, 0.5]])
    factor = np.full(2, grid.steps)
    with pytest.raises(GridError) as refused:
        grid.round(values, factor, "layer 2 forward, the items of user 7", kernels)
    found = "inf" if math.isnan(value) else f"{abs(value):.6g}"
    message = str(refused.value)
    assert message.startswith(f"layer 2 forward, the items of user 7: a number of {found} does")
    assert "expected less than 128" in message
    assert "lower the learning rate" in message and "choose --dtype float64" in message


# Where a pass can leave the grid, and what the error calls the place.


def nodes(dtype: Any = "float32", degree: int = 1, **changes: Any) -> Nodes:
    """One node with so many neighbours."""
    config = Config(dim=2, layers=3, dtype=dtype, **changes)
    segments = Ragged.from_arrays([np.arange(degree)])
    return Nodes("the users", np.array([degree]), segments, config, Plain())


def loss_of(size: float) -> LossGradient:
    """B·∂Loss/∂e_0, so many steps of the grid in one number."""
    return LossGradient(np.array([0]), np.array([[0, -int(size)]]), np.array([1.0]))


def begun(number: float = 0.0) -> Any:
    return nodes().begin(np.array([[0.0, number]]))


def full(sign: int, rows: int = 1) -> Any:
    return np.full((rows, 2), sign * (2**31 - 1), np.int32)


def update_too_large() -> Any:
    """A gradient at the limit, and a regulariser that goes the same way."""
    some = nodes(reg=1.0)
    backward = some.begin(np.full((1, 2), 50.0)).backward(loss_of(0))
    return replace(backward, push=full(1)).push_to_built()


PLACES: dict[str, Callable[[], Any]] = {
    "layer 0 forward, the users: a number of 200 ": lambda: begun(-200.0),
    "layer 0 forward, the users: a number of inf ": lambda: begun(math.nan),
    "building users, the users: a number of 128 ": lambda: building_push(
        np.array([[128.0, 0]], np.float32), nodes()
    ),
    "layer 3 backward, the users: a number of 128 ": lambda: begun().backward(loss_of(2**34)),
    "layer 2 backward, the users: a number of 72 ": lambda: (
        begun().backward(loss_of(2**30)).absorb(full(-1))
    ),
    "update, the users: a number of 114 ": update_too_large,
}


@pytest.mark.parametrize("place", PLACES)
def test_an_error_names_the_layer_the_party_and_the_number(place: str) -> None:
    with pytest.raises(GridError) as refused:
        PLACES[place]()
    assert str(refused.value).startswith(place)


@each_kernels
@each_dtype
@given(data=st.data())
def test_a_sum_of_what_fits_is_right_to_the_last_bit(
    dtype: Any, kernels: Kernels, data: st.DataObject
) -> None:
    """Rows at the limits; in 64 bits there is room for a thousand of them."""
    limit = LIMITS[dtype]
    edge = st.sampled_from([limit - 1, limit - 2, 1 - limit, limit // 2, 0])
    shape = st.tuples(st.integers(1, 9), st.just(3))
    few = data.draw(arrays.arrays(Grid.forward(dtype).integer, shape, elements=edge))
    rows = np.tile(few, (data.draw(st.sampled_from([1, 100])), 1))
    segments = Ragged.from_arrays([np.arange(len(rows))])
    total = kernels.sums(segments, rows)[0].tolist()
    assert total == [sum(column) for column in rows.T.tolist()]
    means = kernels.averages(segments, rows, np.array([1 / len(rows)]))[0].tolist()
    for mean, exact in zip(means, total, strict=True):
        # Two roundings of a float64, where a mean has more than 53 bits, and one to the grid.
        assert abs(mean * len(rows) - exact) <= len(rows) / 2 + abs(exact) * 2**-52
        assert abs(mean) <= np.abs(rows).max() * (1 + 2**-52)


@given(neighbours=st.integers(1, 5000), size=st.integers(2**50, 2**53 - 1), sign=st.booleans())
@example(neighbours=1024, size=2**53 - 1, sign=True)
@example(neighbours=1025, size=2**53 - 1, sign=False)
def test_more_neighbours_than_64_bits_have_room_for_are_refused(
    neighbours: int, size: int, sign: bool
) -> None:
    """In 32 bits there is always room: 2^32 neighbours would be needed to fill 64."""
    some = nodes("float64", neighbours)
    arrived = np.full((neighbours, 2), size if sign else -size)
    grid, where = Grid.backward("float64", 2048), "layer 2 backward"
    if neighbours * size < 2**62:
        exact = size if sign else -size
        found = some.averages(arrived, grid, where)[0].tolist()
        assert all(abs(mean - exact) <= 2 for mean in found)
    else:
        largest = f"{size * grid.unit:.6g}"
        told = rf"^layer 2 backward, the users: {neighbours} numbers of up to {re.escape(largest)} "
        with pytest.raises(GridError, match=told):
            some.averages(arrived, grid, where)
