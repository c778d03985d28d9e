"""Adam: one written-down order of IEEE operations, the same bits for rows alone or in a table."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.model.adam import STATE, Adam, Gradient
from lpgcn.model.kernels import BETA1, BETA2, EPSILON, Kernels
from lpgcn.model.kernels.compiled import Compiled
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.kernels.threads import Threads

KERNELS: list[Kernels] = [Plain(), Compiled(Threads(2))]
PRECISIONS = [(np.float32, np.int32), (np.float64, np.int64)]
RATES = (0.01, 0.003, 0.1)

each_kernels = pytest.mark.parametrize("kernels", KERNELS, ids=["plain", "compiled"])
each_precision = pytest.mark.parametrize(("floating", "integer"), PRECISIONS)


def drawn(rows: int, dim: int, integer: Any, seed: int = 0) -> Gradient:
    """Of many magnitudes; some rows zero, as those of nodes that no sample touches."""
    random = np.random.default_rng((seed, rows, dim))
    integers = random.integers(-(2**31), 2**31, (rows, dim)) >> random.integers(0, 30, (rows, 1))
    integers[random.random(rows) < 0.3] = 0
    decay = np.where(random.random(rows) < 0.5, random.random(rows) * 1e-3, 0.0)
    factor = np.sqrt(random.integers(1, 2000, rows)) * 2.0**-25 / 2048
    return Gradient(integers.astype(integer), factor, decay)


def start(rows: int, dim: int, floating: Any) -> Any:
    return np.random.default_rng(rows).standard_normal((rows, dim)).astype(floating)


def only(gradient: Gradient, rows: Any) -> Gradient:
    return Gradient(gradient.integers[rows], gradient.factor[rows], gradient.decay[rows])


def same_bits(found: dict[str, Any], expected: dict[str, Any], rows: Any = ...) -> bool:
    return found.keys() == expected.keys() and all(
        found[name].dtype == value.dtype and found[name].tobytes() == value[rows].tobytes()
        for name, value in expected.items()
    )


@each_kernels
@each_precision
def test_every_operation_is_rounded_once_in_the_written_order(
    floating: Any, integer: Any, kernels: Kernels
) -> None:
    """The formulas in the docstring of `Kernels.adam`, number by number."""
    adam = Adam(start(5, 7, floating), kernels)
    θ, m, v = start(5, 7, floating), np.zeros((5, 7), floating), np.zeros((5, 7), floating)
    beta1, rest1, beta2, rest2, epsilon = map(
        floating, (BETA1, 1 - BETA1, BETA2, 1 - BETA2, EPSILON)
    )
    for t, learning_rate in enumerate(RATES, 1):
        given = drawn(5, 7, integer, seed=t)
        rate = floating(learning_rate / (1 - BETA1**t))
        root = floating(1 / math.sqrt(1 - BETA2**t))
        for r, c in np.ndindex(5, 7):
            product = float(given.integers[r, c]) * float(given.factor[r])
            g = floating(product) + floating(given.decay[r]) * θ[r, c]
            m[r, c] = beta1 * m[r, c] + rest1 * g
            v[r, c] = beta2 * v[r, c] + rest2 * (g * g)
            θ[r, c] = θ[r, c] - rate * (m[r, c] / (np.sqrt(v[r, c]) * root + epsilon))
        adam.step(given, learning_rate)
        expected = {"parameter": θ, "mean": m, "square": v, "steps": np.full(5, t)}
        expected["kept"] = start(5, 7, floating)
        assert same_bits(adam.state(), expected)


def decimal_step(θ: Decimal, m: Decimal, v: Decimal, g: Decimal, t: int, rate: float) -> Any:
    """Kingma & Ba, Algorithm 1, in fifty digits."""
    beta1, beta2 = Decimal(BETA1), Decimal(BETA2)
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    corrected = (m / (1 - beta1**t)), (v / (1 - beta2**t)).sqrt()
    return θ - Decimal(rate) * corrected[0] / (corrected[1] + Decimal(EPSILON)), m, v


@given(
    integers=st.lists(st.integers(-(2**52), 2**52), min_size=1, max_size=8),
    factor=st.floats(1e-16, 1e-6),
    decay=st.floats(0, 1e-2),
)
def test_equals_the_paper_in_fifty_digits(integers: list[int], factor: float, decay: float) -> None:
    adam = Adam(np.full((1, 1), 0.75), Plain())
    with localcontext(prec=50):
        θ, m, v = Decimal("0.75"), Decimal(0), Decimal(0)
        for t, number in enumerate(integers, 1):
            g = Decimal(number) * Decimal(factor) + Decimal(decay) * θ
            θ, m, v = decimal_step(θ, m, v, g, t, 0.01)
            gradient = Gradient(np.array([[number]]), np.array([factor]), np.array([decay]))
            adam.step(gradient, 0.01)
        # Where both parts of a gradient cancel, ε keeps what rounding left of it as small as this.
        assert abs(float(θ) - adam.parameter[0, 0]) < 1e-11


@each_kernels
@pytest.mark.parametrize(
    ("floating", "integer", "tolerance"),
    [(np.float32, np.int32, 2e-6), (np.float64, np.int64, 1e-14)],
)
@pytest.mark.parametrize("dim", [3, 64])
def test_equals_torch_to_rounding(
    dim: int, floating: Any, integer: Any, tolerance: float, kernels: Kernels
) -> None:
    ours = Adam(start(50, dim, floating), kernels)
    oracle = torch.from_numpy(start(50, dim, floating)).requires_grad_()
    optimizer = torch.optim.Adam([oracle], lr=0.01, foreach=False, fused=False)
    for number in range(20):
        gradient, rate = drawn(50, dim, integer, seed=number), 0.01 / (number + 1)
        dense = (gradient.integers * gradient.factor[:, None]).astype(floating)
        pull = torch.from_numpy(gradient.decay.astype(floating))[:, None] * oracle.detach()
        optimizer.param_groups[0]["lr"] = rate
        oracle.grad = torch.from_numpy(dense) + pull
        optimizer.step()
        ours.step(gradient, rate)
    assert np.abs(ours.parameter - oracle.detach().numpy()).max() < tolerance


@each_kernels
@each_precision
@pytest.mark.parametrize("dim", [1, 3, 17, 64, 65])
def test_rows_alone_have_the_bits_of_rows_in_a_table(
    dim: int, floating: Any, integer: Any, kernels: Kernels
) -> None:
    """A client's rows are stepped by plain kernels, a table's by either."""
    rows = 503
    table = start(rows, dim, floating)
    owned = [[0], [502], [77, 3], list(range(5, 200, 7)), list(range(300, 401))]
    whole, parts = Adam(table.copy(), kernels), [Adam(table[own], Plain()) for own in owned]
    for number, rate in enumerate(RATES):
        gradient = drawn(rows, dim, integer, seed=number)
        whole.step(gradient, rate)
        for part, own in zip(parts, owned, strict=True):
            part.step(only(gradient, own), rate)
    for part, own in zip(parts, owned, strict=True):
        assert same_bits(part.state(), whole.state(), own)


MOVES = ("step", "step", "step", "keep", "go back")
ROWS = 6


@each_kernels
@given(
    moves=st.lists(
        st.tuples(
            st.sampled_from(MOVES),
            st.one_of(st.none(), st.sets(st.integers(0, ROWS - 1))),
            st.sampled_from(RATES),
        ),
        max_size=12,
    ),
    dim=st.sampled_from([1, 5]),
    precision=st.sampled_from(PRECISIONS),
)
def test_rows_that_come_and_go_have_the_bits_of_rows_alone(
    moves: list[tuple[str, set[int] | None, float]], dim: int, precision: Any, kernels: Kernels
) -> None:
    """Whoever is absent does not step, keep or go back; who joins later begins at step 0."""
    floating, integer = precision
    table = start(ROWS, dim, floating)
    whole, alone = Adam(table.copy(), kernels), [Adam(table[[row]], Plain()) for row in range(ROWS)]
    for number, (move, present, rate) in enumerate(moves):
        gradient = drawn(ROWS, dim, integer, seed=number)
        rows = None if present is None else np.array(sorted(present), dtype=np.int64)
        if move == "step":
            whole.step(gradient, rate, rows)
        else:
            (whole.keep if move == "keep" else whole.go_back)(rows)
        for row in range(ROWS) if present is None else present:
            one = alone[row]
            if move == "step":
                one.step(only(gradient, [row]), rate)
            else:
                (one.keep if move == "keep" else one.go_back)()
    for row, one in enumerate(alone):
        assert same_bits(one.state(), whole.state(), [row])


@each_kernels
@given(before=st.integers(0, 3), after=st.integers(0, 3), kept=st.booleans())
def test_going_back_is_to_what_was_kept_and_leaves_the_means(
    before: int, after: int, kept: bool, kernels: Kernels
) -> None:
    """Or to the initial parameters, if nothing was kept."""
    adam, best = Adam(start(4, 3, np.float32), kernels), start(4, 3, np.float32)
    for number in range(before):
        adam.step(drawn(4, 3, np.int32, seed=number), 0.1)
    if kept:
        adam.keep()
        best = adam.parameter.copy()
    for number in range(after):
        adam.step(drawn(4, 3, np.int32, seed=100 + number), 0.1)
    left = adam.state()
    for _ in range(2):
        adam.go_back()
        assert same_bits(adam.state(), {**left, "parameter": best, "kept": best})
        # What is gone back to is not what the next steps change.
        adam.step(drawn(4, 3, np.int32), 0.1)
        assert adam.state()["kept"].tobytes() == best.tobytes()
        left = adam.state()


@each_kernels
def test_no_rows_at_all_are_stepped_too(kernels: Kernels) -> None:
    """As those of a client that owns nothing."""
    adam = Adam(start(0, 3, np.float32), kernels)
    adam.step(drawn(0, 3, np.int32), 0.1)
    adam.step(drawn(0, 3, np.int32), 0.1, np.empty(0, dtype=np.int64))
    assert {name: len(value) for name, value in adam.state().items()} == dict.fromkeys(STATE, 0)


@each_kernels
def test_a_row_that_no_sample_touches_moves_all_the_same(kernels: Kernels) -> None:
    """Dense Adam: the means decay, and with them a row goes on as it went."""
    adam = Adam(start(1, 4, np.float64), kernels)
    adam.step(Gradient(np.full((1, 4), 2**20), np.array([2.0**-30]), np.zeros(1)), 0.01)
    before = adam.state()
    adam.step(Gradient(np.zeros((1, 4), np.int64), np.ones(1), np.zeros(1)), 0.01)
    after = adam.state()
    assert (after["parameter"] < before["parameter"]).all()
    assert (after["mean"] == BETA1 * before["mean"]).all()


@each_kernels
def test_a_state_is_a_copy_and_a_gradient_is_only_read(kernels: Kernels) -> None:
    adam, gradient = Adam(start(4, 5, np.float32), kernels), drawn(4, 5, np.int32)
    adam.step(gradient, 0.1)
    state, kept = adam.state(), adam.state()
    adam.step(gradient, 0.1)
    assert not np.array_equal(adam.state()["parameter"], kept["parameter"])
    adam.restore(state)
    adam.step(gradient, 0.1)
    assert same_bits(state, kept)
    fresh = drawn(4, 5, np.int32)
    for name in ("integers", "factor", "decay"):
        assert np.array_equal(getattr(gradient, name), getattr(fresh, name))


@each_precision
@pytest.mark.parametrize("dim", [5, 64])
def test_a_restored_state_goes_on_with_the_same_bits(dim: int, floating: Any, integer: Any) -> None:
    """Also in another make of kernels, as a run that goes on in another way to run."""
    uninterrupted = Adam(start(9, dim, floating), KERNELS[0])
    uninterrupted.step(drawn(9, dim, integer, seed=1), 0.1)
    uninterrupted.keep()
    uninterrupted.step(drawn(9, dim, integer, seed=2), 0.1, np.array([0, 3, 8]))
    resumed = Adam(np.zeros((9, dim), floating), KERNELS[1])
    resumed.restore(uninterrupted.state())
    another = Adam.restored(uninterrupted.state(), KERNELS[1])
    for adam in (uninterrupted, resumed, another):
        adam.step(drawn(9, dim, integer, seed=3), 0.1)
    assert same_bits(resumed.state(), uninterrupted.state())
    assert same_bits(another.state(), uninterrupted.state())


@each_kernels
@each_precision
@pytest.mark.parametrize("shapes", [[(3, 4)], [(2, 3), (5, 1), (1, 7)]])
def test_tables_that_step_alike_have_the_bits_of_one_after_the_other(
    floating: Any, integer: Any, kernels: Kernels, shapes: list[tuple[int, int]]
) -> None:
    together, alone = (
        [Adam(start(*shape, floating), kernels) for shape in shapes] for _ in range(2)
    )
    unit = 2.0**-33 / 7
    for number, rate in enumerate(RATES):
        integers = [drawn(*shape, np.int64, seed=number).integers for shape in shapes]
        Adam.step_alike(together, integers, unit, rate)
        for adam, numbers in zip(alone, integers, strict=True):
            rows = len(numbers)
            adam.step(Gradient(numbers, np.full(rows, unit), np.zeros(rows)), rate)
    for one, other in zip(together, alone, strict=True):
        assert same_bits(one.state(), other.state())
    for adam in (*together, *alone):
        adam.go_back()
    assert all(
        same_bits(one.state(), other.state()) for one, other in zip(together, alone, strict=True)
    )
