"""Dense maps: a row alone has the bits of a row in a table, by NumPy and by the compiled kernel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.model.kernels import Kernels
from lpgcn.model.kernels.compiled import Compiled
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.kernels.threads import Threads

PLAIN: Kernels = Plain()
COMPILED: tuple[Kernels, ...] = (Compiled(Threads(1)), Compiled(Threads(3)))
EVERY = (PLAIN, *COMPILED)
dims = st.sampled_from([1, 2, 5, 9, 64, 65])


def drawn(rows: int, columns: int, seed: int) -> Any:
    """Of very different sizes, with zeros of both signs."""
    random = np.random.default_rng(seed)
    numbers = random.standard_normal((rows, columns)) * 2.0 ** random.integers(-20, 3, (rows, 1))
    numbers[random.random(numbers.shape) < 0.2] = 0.0
    return np.copysign(numbers, random.standard_normal(numbers.shape))


@settings(max_examples=60)
@given(n=st.sampled_from([0, 1, 3, 8, 9, 600]), inner=dims, columns=dims, seed=st.integers(0, 99))
def test_products_are_added_up_from_the_first_to_the_last(
    n: int, inner: int, columns: int, seed: int
) -> None:
    rows, matrix = drawn(n, inner, seed), drawn(inner, columns, seed + 1)
    expected = np.zeros((n, columns))
    for k in range(inner):
        expected = expected + rows[:, k : k + 1] * matrix[k]
    for kernels in EVERY:
        assert kernels.products(rows, matrix).tobytes() == expected.tobytes()
        alone = [kernels.products(rows[[r]], matrix) for r in range(min(n, 5))]
        assert b"".join(one.tobytes() for one in alone) == expected[:5].tobytes()


@settings(max_examples=40)
@given(n=st.sampled_from([0, 1, 3, 8, 9, 600]), inner=dims, columns=dims, seed=st.integers(0, 99))
def test_sums_of_outer_products_are_those_of_any_parts(
    n: int, inner: int, columns: int, seed: int
) -> None:
    left, right, steps = drawn(n, inner, seed), drawn(n, columns, seed + 1), 2.0**30
    expected, largest = np.zeros((inner, columns), dtype=object), 0
    for a, b in zip(left, right, strict=True):
        part = np.rint(np.outer(a, b * steps))
        expected += part.astype(np.int64).astype(object)
        largest = max(largest, float(np.abs(part).max()))
    for kernels in EVERY:
        sums, found = kernels.outer_sums(left, right, steps)
        assert sums.tolist() == expected.tolist() and found == largest
        halves = [
            kernels.outer_sums(left[s], right[s], steps)[0] for s in np.s_[: n // 2, n // 2 :]
        ]
        assert np.array_equal(sum(halves), sums)


@pytest.mark.parametrize("kernels", EVERY)
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_infinitely_large(kernels: Kernels, wrong: float) -> None:
    numbers, others = np.array([[1.0, wrong]]), np.zeros((1, 3))
    with np.errstate(invalid="ignore"):
        assert kernels.outer_sums(numbers, others, 4.0)[1] == math.inf
        assert kernels.outer_sums(others, numbers, 4.0)[1] == math.inf
