"""Softmax against pools: autograd on unrounded cosines, and the exactness that its sums rely on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import inspect
from torch import Tensor

from lpgcn.config import Config, Dtype
from lpgcn.model.grid import Grid, GridError
from lpgcn.model.kernels import Kernels
from lpgcn.model.kernels.compiled import Compiled
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.kernels.pool import BLOCK
from lpgcn.model.kernels.threads import Threads
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.model.losses.softmax import SLOPES, PoolGradients, Softmax, columns
from lpgcn.ragged import Ragged

Lists = tuple[tuple[int, ...], ...]
KERNELS: dict[str, Kernels] = {"plain": Plain(), "compiled": Compiled(Threads(1))}
N_ITEMS = 12
LARGEST = {"float32": 2**12, "float64": 2**16}
"""No direction is longer."""
TINIEST = 2.0**-41
"""By how much rounding to multiples of 2^-40 moves a number."""

each_dtype = pytest.mark.parametrize("dtype", LARGEST)
each_kernels = pytest.mark.parametrize("kernels", KERNELS.values(), ids=KERNELS)


@dataclass(frozen=True)
class Case:
    """Users with their positives, a pool of some items, and vectors for all of them."""

    softmax: Softmax
    positives: Lists
    pool: tuple[int, ...]
    answered: int
    users: Any
    items: Any

    @property
    def lists(self) -> Ragged:
        return Ragged.from_arrays([np.array(one, dtype=np.int64) for one in self.positives])

    def gradients(self, kernels: Kernels) -> PoolGradients:
        at_users = self.softmax.directions(self.users, kernels).rows
        at_items = self.softmax.directions(self.items, kernels).rows
        pool, lists = np.array(self.pool, dtype=np.int64), self.lists
        own = columns(lists, pool, N_ITEMS)
        return self.softmax.gradients(
            lists, at_users, at_items, at_items[pool], own, self.answered, kernels
        )

    def at_nodes(self, found: PoolGradients, kernels: Kernels) -> tuple[LossGradient, LossGradient]:
        """What users and items make of it, as an engine adds it up."""
        at_users = self.softmax.directions(self.users, kernels)
        at_items = self.softmax.directions(self.items, kernels)
        lists, grid = self.lists, self.grid
        order = np.argsort(lists.values, kind="stable")
        by_item = Ragged.from_rows(lists.values[order], lists.rows[order], N_ITEMS)
        weighted = kernels.weighted_sums
        user_sums = found.users + weighted(lists, at_items.rows, found.coefficient, SLOPES.steps)
        item_sums = weighted(by_item, at_users.rows, found.coefficient[order], SLOPES.steps)
        item_sums[list(self.pool[: self.answered])] += found.answers
        of = self.softmax.tangent_gradient
        return (
            of(user_sums, lists.lengths.astype(np.float64), at_users, grid, kernels),
            of(item_sums, by_item.lengths.astype(np.float64), at_items, grid, kernels),
        )

    @property
    def grid(self) -> Grid:
        dtype: Any = self.softmax.dtype
        return Grid.backward(dtype, "full")

    def only(self, rows: list[int]) -> Case:
        """These users, in this order, without the others."""
        return replace(
            self, positives=tuple(self.positives[row] for row in rows), users=self.users[rows]
        )

    def entries(self, rows: list[int]) -> Any:
        """Where the positives of these users are."""
        offsets = self.lists.offsets
        parts = [np.arange(offsets[row], offsets[row + 1]) for row in rows]
        return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def cone(rows: int, softmax: Softmax, seed: int) -> Any:
    """Vectors of any lengths, so near one another that no x of two of them is below e^-18."""
    random = np.random.default_rng(seed)
    dim, least = softmax.dim, max(-1.0, 1 - 18 * softmax.temperature)
    axis = np.eye(dim)[0]
    if dim == 1:
        directions = axis * random.choice([1, -1 if least == -1 else 1], (rows, 1))
    else:
        across = random.standard_normal((rows, dim))
        across[:, 0] = 0
        across /= np.linalg.norm(across, axis=1, keepdims=True)
        angle = random.random((rows, 1)) * np.arccos(least) / 2
        directions = np.cos(angle) * axis + np.sin(angle) * across
    return (directions * 10 ** random.uniform(-2, 2, (rows, 1))).astype(softmax.dtype)


@st.composite
def cases(draw: st.DrawFn, dtype: str) -> Case:
    """Positives that are drawn twice, in the pool or not; users with one; what has no length."""
    softmax = Softmax(
        temperature=draw(st.floats(0.05, 0.5)),
        weight=draw(st.sampled_from([1.0, 0.3, 7.5])),
        dtype=dtype,
        dim=draw(st.sampled_from([1, 2, 3, 8, 20, 64])),
    )
    item = st.integers(0, N_ITEMS - 1)
    one_user = st.lists(item, min_size=1, max_size=6).map(tuple)
    positives = tuple(draw(st.lists(one_user, min_size=1, max_size=7)))
    pool = tuple(draw(st.lists(item, min_size=1, max_size=N_ITEMS, unique=True)))
    seed = draw(st.integers(0, 999))
    users, items = cone(len(positives), softmax, seed), cone(N_ITEMS, softmax, seed + 1000)
    for rows in (users, items):
        rows[sorted(draw(st.sets(st.integers(0, len(rows) - 1), max_size=1)))] = 0
    return Case(softmax, positives, pool, draw(st.integers(1, len(pool))), users, items)


@dataclass(frozen=True)
class Slopes:
    """Derivatives by cosines: Σ|s| of every node, and how many s there are."""

    sizes: Any
    terms: Any


class Oracle:
    """The formula, by autograd, and how far the rounding of directions and slopes can lead."""

    def __init__(self, case: Case) -> None:
        self.case, softmax, lists = case, case.softmax, case.lists
        self.vectors = [
            torch.from_numpy(rows.astype(np.float64)).requires_grad_()
            for rows in (case.users, case.items)
        ]
        users, items = (_directions(rows) for rows in self.vectors)
        pool, entries = items[list(case.pool)], (lists.rows, lists.values)
        self.told = torch.cat((pool[: case.answered], pool[case.answered :].detach()))
        positive, negative = (users @ items.T)[entries], users @ self.told.T
        others = [[item not in own for item in case.pool] for own in case.positives]
        x, among = (torch.exp(cosines / softmax.temperature) for cosines in (positive, negative))
        z = softmax.weight * (among * torch.tensor(others)).sum(1)
        loss = -torch.log(x / (x + z[lists.rows]))
        wanted = (*self.vectors, positive, negative)
        *self.gradients, by_positive, by_negative = torch.autograd.grad(loss.sum(), wanted)
        self.loss = loss.detach().numpy()
        self.smallest = min(float(x.detach().min()), float(among.detach().min()))
        self._add_up(by_positive.numpy(), by_negative.numpy(), users.detach().numpy())

    def _add_up(self, by_positive: Any, by_negative: Any, users: Any) -> None:
        case, lists, answered = self.case, self.case.lists, self.case.answered
        n_users, by_answer = len(case.positives), by_negative[:, :answered]
        of_users = np.bincount(lists.rows, np.abs(by_positive), n_users)
        of_items = np.bincount(lists.values, np.abs(by_positive), N_ITEMS)
        in_lists = np.bincount(lists.values, minlength=N_ITEMS)
        asked, told = np.abs(by_negative).sum(1), np.abs(by_answer).sum(0)
        of_items[list(case.pool[:answered])] += told
        in_lists[list(case.pool[:answered])] += n_users
        self.at_pool = Slopes(asked, len(case.pool)), Slopes(told, n_users)
        self.at_nodes = (
            Slopes(of_users + asked, lists.lengths + len(case.pool)),
            Slopes(of_items, in_lists),
        )
        self.pool_sums = by_negative @ self.told.detach().numpy(), by_answer.T @ users

    @property
    def direction_error(self) -> float:
        """|q/S − ê|: half a unit in every coordinate."""
        return 0.5000001 * math.sqrt(self.case.softmax.dim) / self.case.softmax.radius

    @property
    def log_error(self) -> float:
        """Of ln x: two directions, a unit of n in float32, and the last of 40 bits."""
        softmax, of = self.case.softmax, self.direction_error
        farther = (LARGEST[softmax.dtype] / softmax.radius) ** 2
        least = self.smallest * math.exp(-farther / softmax.temperature) - TINIEST
        cosine = of * (2 + of) + softmax.radius**-2
        return cosine / softmax.temperature + TINIEST / least

    def sums_allowed(self, slopes: Slopes) -> Any:
        """s is off by e^(2·log error); it is then rounded to 2^-16, and multiplied by ê."""
        grown = math.exp(2 * self.log_error) * (1 + self.direction_error) - 1
        return slopes.sizes * (grown + 1e-12) + slopes.terms * SLOPES.unit * 0.5001

    def allowed(self, node: int) -> Any:
        """The sums, made orthogonal to another direction, divided, and rounded to the grid."""
        slopes, dim = self.at_nodes[node], self.case.softmax.dim
        turned = 2 * self.direction_error * slopes.sizes
        off = (self.sums_allowed(slopes) + turned) / _lengths(self.vectors[node]).detach().numpy()
        return off + 0.5001 * math.sqrt(dim) * self.case.grid.unit


def _lengths(vectors: Tensor) -> Tensor:
    """1 for what has none."""
    squares = vectors.pow(2).sum(1)
    return (squares + (squares == 0)).sqrt()


def _directions(vectors: Tensor) -> Tensor:
    return vectors / _lengths(vectors)[:, None]


@each_kernels
@each_dtype
@settings(max_examples=60)
@given(data=st.data())
def test_loss_and_gradients_are_those_of_autograd(
    dtype: str, kernels: Kernels, data: st.DataObject
) -> None:
    case = data.draw(cases(dtype))
    oracle, found = Oracle(case), case.gradients(kernels)
    assert oracle.log_error < {"float32": 0.06, "float64": 0.005}[dtype], "a bound that says little"
    assert np.abs(found.loss - oracle.loss).max() <= 2 * oracle.log_error + 1e-12
    assert found.coefficient.dtype == dtype
    steps = found.coefficient.astype(np.float64) * SLOPES.steps
    assert np.array_equal(steps, np.rint(steps)), "what is multiplied is on the grid of slopes"
    unit = SLOPES.unit / case.softmax.radius
    for at_pool, sums in enumerate((found.users, found.answers)):
        error = np.linalg.norm(sums * unit - oracle.pool_sums[at_pool], axis=1)
        assert (error <= oracle.sums_allowed(oracle.at_pool[at_pool])).all()
    for node, at in enumerate(case.at_nodes(found, kernels)):
        vectors, expected = oracle.vectors[node].detach().numpy(), oracle.gradients[node].numpy()
        gradient, has_length = at.sums * case.grid.unit, vectors.any(axis=1)
        assert at.rows.tolist() == list(range(len(vectors)))
        assert not gradient[~has_length].any()
        error = np.linalg.norm(gradient - expected, axis=1)
        assert (error <= oracle.allowed(node))[has_length].all()


@each_dtype
@given(data=st.data())
def test_a_gradient_is_orthogonal_to_its_vector(dtype: str, data: st.DataObject) -> None:
    case = data.draw(cases(dtype))
    of = Oracle(case).direction_error
    for at, vectors in zip(
        case.at_nodes(case.gradients(Plain()), Plain()), (case.users, case.items), strict=True
    ):
        gradient, wide = at.sums * case.grid.unit, vectors.astype(np.float64)
        along = np.abs((gradient * wide).sum(axis=1))
        sizes, lengths = np.linalg.norm(gradient, axis=1), np.linalg.norm(wide, axis=1)
        rounding = case.grid.unit * math.sqrt(case.softmax.dim)
        assert (along <= lengths * (2 * of * sizes + rounding)).all()


@each_kernels
@each_dtype
def test_what_has_no_length_gives_and_gets_no_direction(dtype: str, kernels: Kernels) -> None:
    """Its cosine with anything is 0; and so all are alike to it, and to the others."""
    case = Case(
        Softmax(0.2, 1.0, dtype, 4),
        ((0,), (1, 2)),
        (3, 4, 5),
        3,
        np.zeros((2, 4), dtype),
        np.zeros((N_ITEMS, 4), dtype),
    )
    found = case.gradients(kernels)
    assert found.loss == pytest.approx(math.log(4), abs=1e-12)
    assert not found.users.any() and not found.answers.any()
    assert not any(at.sums.any() for at in case.at_nodes(found, kernels))


def test_a_user_whose_pool_is_its_own_items_has_nothing_to_learn() -> None:
    softmax = Softmax(0.2, 1.0, "float64", 3)
    case = Case(softmax, ((4, 7),), (7, 4), 2, cone(1, softmax, 0), cone(N_ITEMS, softmax, 1))
    found = case.gradients(Plain())
    assert not found.loss.any() and not found.coefficient.any()
    assert not found.users.any() and not found.answers.any()


@given(
    lists=st.lists(st.sets(st.integers(0, N_ITEMS - 1)), min_size=1, max_size=5),
    pool=st.lists(st.integers(0, N_ITEMS - 1), min_size=1, max_size=N_ITEMS, unique=True),
)
def test_columns_are_where_the_pool_has_a_users_items(
    lists: list[set[int]], pool: list[int]
) -> None:
    positives = Ragged.from_arrays([np.array(sorted(own), dtype=np.int64) for own in lists])
    found = columns(positives, np.array(pool), N_ITEMS)
    assert len(found) == len(lists)
    for user, own in enumerate(lists):
        expected = [row for row, item in enumerate(pool) if item in own]
        assert sorted(found[user].tolist()) == expected


def assert_same_bits(found: PoolGradients, expected: PoolGradients) -> None:
    for name in ("coefficient", "loss", "users", "answers"):
        one, other = getattr(found, name), getattr(expected, name)
        assert one.dtype == other.dtype, name
        assert one.tobytes() == other.tobytes(), name


def part(found: PoolGradients, case: Case, rows: list[int]) -> PoolGradients:
    """What was found about these users; the answers are for others to say."""
    entries = case.entries(rows)
    return PoolGradients(
        found.coefficient[entries], found.loss[entries], found.users[rows], found.answers[:0]
    )


@each_dtype
@settings(max_examples=50)
@given(data=st.data())
def test_bits_depend_on_no_kernels_company_or_order(dtype: str, data: st.DataObject) -> None:
    case = data.draw(cases(dtype))
    everybody = list(range(len(case.positives)))
    found = case.gradients(KERNELS["compiled"])
    for kernels in KERNELS.values():
        assert_same_bits(case.gradients(kernels), found)

    one = data.draw(st.sampled_from(everybody))
    alone = case.only([one]).gradients(Plain())
    nobody = replace(alone, answers=alone.answers[:0])
    assert_same_bits(nobody, part(found, case, [one]))

    order = data.draw(st.permutations(everybody))
    permuted = case.only(order).gradients(Plain())
    assert_same_bits(permuted, replace(part(found, case, order), answers=found.answers))

    some = sorted(data.draw(st.sets(st.sampled_from(everybody))))
    rest = [row for row in everybody if row not in some]
    both = [case.only(rows).gradients(Plain()).answers for rows in (some, rest)]
    assert np.array_equal(both[0] + both[1], found.answers)


@each_dtype
@given(data=st.data())
def test_the_order_of_the_pool_is_that_of_the_answers(dtype: str, data: st.DataObject) -> None:
    case = data.draw(cases(dtype))
    case = replace(case, answered=len(case.pool))
    order = data.draw(st.permutations(range(len(case.pool))))
    permuted = replace(case, pool=tuple(case.pool[row] for row in order)).gradients(Plain())
    found = case.gradients(Plain())
    assert_same_bits(permuted, replace(found, answers=found.answers[order]))
    few = data.draw(st.integers(1, len(case.pool)))
    fewer = replace(case, answered=few).gradients(Plain())
    assert_same_bits(fewer, replace(found, answers=found.answers[:few]))


@each_dtype
def test_a_user_among_hundreds_has_the_bits_that_it_has_alone(dtype: str) -> None:
    """Products of matrices of this size are made by other parts of a BLAS than those of a row."""
    softmax, random = Softmax(0.1, 1.0, dtype, 64), np.random.default_rng(7)
    users, items = (random.standard_normal((rows, 64)).astype(dtype) for rows in (600, N_ITEMS))
    negatives = softmax.directions(random.standard_normal((1000, 64)).astype(dtype), Plain()).rows
    at_users, at_items = (softmax.directions(rows, Plain()).rows for rows in (users, items))
    lists = Ragged.from_lengths(np.full(600, 3), random.integers(0, N_ITEMS, 1800))
    own = Ragged.from_lengths(np.ones(600), random.integers(0, 1000, 600))
    found = softmax.gradients(lists, at_users, at_items, negatives, own, 10, KERNELS["compiled"])
    total = np.zeros_like(found.answers)
    for row in range(600):
        only = np.array([row])
        alone = softmax.gradients(
            lists.only(only), at_users[only], at_items, negatives, own.only(only), 10, Plain()
        )
        entries = slice(3 * row, 3 * row + 3)
        assert alone.users.tobytes() == found.users[only].tobytes()
        assert alone.loss.tobytes() == found.loss[entries].tobytes()
        assert alone.coefficient.tobytes() == found.coefficient[entries].tobytes()
        total += alone.answers
    assert np.array_equal(total, found.answers)


def equal_coordinates(count: int, dim: int, random: np.random.Generator) -> Any:
    """All rounded alike: up, all of them, if the coordinate of the direction ends in a half."""
    row = np.zeros(dim)
    row[:count] = random.choice([-1.0, 1.0], count)
    return row


def at_halves(radius: int, dim: int, random: np.random.Generator) -> Any:
    """Coordinates that end in a half, of about the length of a direction."""
    row = random.standard_normal(dim)
    return np.floor(row * radius / np.linalg.norm(row)) + 0.5


@st.composite
def any_vectors(draw: st.DrawFn, dtype: str, dim: int) -> Any:
    """Drawn at random, at the edges of rounding, along an axis, without length; of any size."""
    softmax, random = Softmax(0.1, 1.0, dtype, dim), np.random.default_rng(draw(st.integers(0, 99)))
    rows = [
        random.standard_normal(dim),
        at_halves(softmax.radius, dim, random),
        equal_coordinates(dim, dim, random),
        *(
            equal_coordinates(draw(st.integers(1, dim)), dim, random)
            * 10.0 ** draw(st.integers(-30, 30))
            for _ in range(4)
        ),
        np.zeros(dim),
    ]
    return np.stack(rows).astype(dtype)


@each_dtype
@given(data=st.data(), dim=st.integers(1, 512))
def test_products_of_directions_are_whole_numbers_that_their_precision_holds(
    dtype: str, data: st.DataObject, dim: int
) -> None:
    """So that they are exact however they are added up."""
    softmax = Softmax(0.1, 1.0, dtype, dim)
    vectors = data.draw(any_vectors(dtype, dim))
    rows = softmax.directions(vectors, Plain()).rows
    whole = rows.astype(np.int64)
    exact = whole @ whole.T
    assert rows.dtype == dtype and np.array_equal(rows, whole)
    assert np.array_equal(whole.astype(softmax.number), whole)
    assert (np.abs(whole) @ np.abs(whole).T).max() <= LARGEST[dtype] ** 2
    assert LARGEST[dtype] ** 2 <= 2 ** np.finfo(dtype).nmant * 2
    assert np.array_equal(rows @ rows.T, exact)
    assert np.array_equal(rows[:, ::-1] @ rows[:, ::-1].T, exact)
    one_by_one = np.cumsum(rows * rows[:1], axis=1, dtype=dtype)[:, -1]
    assert np.array_equal(one_by_one, exact[:, 0])
    assert softmax.are_directions(rows)
    assert np.array_equal(softmax.directions(vectors, KERNELS["compiled"]).rows, rows)


@each_dtype
@given(data=st.data(), dim=st.integers(1, 512))
def test_directions_point_where_the_vectors_do(dtype: str, data: st.DataObject, dim: int) -> None:
    softmax = Softmax(0.1, 1.0, dtype, dim)
    vectors = data.draw(any_vectors(dtype, dim)).astype(np.float64)
    found = softmax.directions(vectors.astype(dtype), Plain())
    lengths = np.linalg.norm(vectors, axis=1)
    np.testing.assert_allclose(found.lengths, lengths, rtol=1e-13)
    pointing = vectors / np.where(lengths > 0, lengths, 1)[:, None] * softmax.radius
    assert np.abs(found.rows - pointing).max() <= 0.5 + 1e-9


@each_dtype
@pytest.mark.parametrize("dim", [4, 16, 64, 256])
def test_the_longest_direction_is_as_long_as_may_be(dtype: str, dim: int) -> None:
    """Every coordinate of it is rounded up from a half, so that no radius could be larger."""
    softmax = Softmax(0.1, 1.0, dtype, dim)
    rows = softmax.directions(np.ones((1, dim), dtype), Plain()).rows
    assert softmax.radius / math.sqrt(dim) % 1 == 0.5
    assert (rows @ rows.T).tolist() == [[LARGEST[dtype] ** 2]]
    assert softmax.are_directions(rows)


@each_dtype
@given(dim=st.integers(1, 512), seed=st.integers(0, 99))
def test_what_is_longer_than_a_direction_is_none(dtype: str, dim: int, seed: int) -> None:
    softmax, random = Softmax(0.1, 1.0, dtype, dim), np.random.default_rng(seed)
    rows = softmax.directions(random.standard_normal((5, dim)).astype(dtype), Plain()).rows
    assert softmax.are_directions(rows)
    column = random.integers(dim)
    rest = np.delete(rows[3].astype(np.int64), column)
    room = math.isqrt(LARGEST[dtype] ** 2 - int((rest * rest).sum()))
    for sign in (1, -1):
        rows[3, column] = sign * room
        assert softmax.are_directions(rows)
        for longer in (room + 1, np.nan, np.inf):
            rows[3, column] = sign * longer
            assert not softmax.are_directions(rows)


@each_kernels
@each_dtype
@given(
    temperature=st.floats(0.02, 100),
    dim=st.integers(1, 512),
    cosines=st.lists(st.floats(-1, 1), max_size=50),
)
@example(temperature=0.02, dim=64, cosines=[1.0, 0.99, 0.5])
@example(temperature=100.0, dim=1, cosines=[-1.0, -0.9999])
def test_exponentials_are_exact_to_forty_bits_and_never_fall(
    dtype: str, kernels: Kernels, temperature: float, dim: int, cosines: list[float]
) -> None:
    """A product below zero is one of 25 bits from the largest, of which a float32 has 24."""
    softmax = Softmax(temperature, 1.0, dtype, dim)
    largest, scale = LARGEST[dtype] ** 2, softmax.radius**2 * temperature
    drawn = np.rint(np.array([*cosines, -1.0, 0.0, 1.0]) * largest)
    # Neighbours, also where a digit of the distance changes.
    edges = largest - np.arange(1, 40) * 2.0**13
    products = np.unique(np.concatenate((drawn, drawn - 1, drawn + 1, edges, edges + 1)))
    products = products[np.abs(products) <= largest].astype(dtype)
    found = kernels.exponentials(products[:, None], softmax._lookup)[:, 0]
    exact = np.exp((products.astype(np.float64) - largest) / scale)
    lost = (products < 0) / scale if dtype == "float32" else 0
    assert (np.abs(found - exact) <= TINIEST + exact * (1e-12 + 1.01 * lost)).all()
    assert (np.diff(found) >= 0).all()
    assert np.array_equal(found * 2.0**40, np.rint(found * 2.0**40))
    assert found[-1] == 1


@pytest.mark.parametrize("fits", [True, False])
def test_slopes_that_may_not_add_up_exactly_are_refused(fits: bool) -> None:
    """Those of positives have 1/τ each, if negatives weigh much, and are doubled by rounding."""
    softmax = Softmax(0.02, 1e9, "float64", 1)
    count = 2**53 / (2 * SLOPES.steps / 0.02 * LARGEST["float64"])
    positives = Ragged.single(np.zeros(int(count) + (0 if fits else 2), dtype=np.int64))
    row = np.full((1, 1), float(softmax.radius))
    nothing = Ragged.single(np.empty(0, dtype=np.int64))
    given_rows = positives, row, row, row, nothing, 1, Plain()
    if fits:
        found = softmax.gradients(*given_rows)
        each = round(SLOPES.steps / 0.02)
        assert found.answers[0, 0] == pytest.approx(each * len(positives.values) * row[0, 0])
    else:
        with pytest.raises(
            GridError, match=r"may add up to 2\.097\d+e\+06, expected .*; raise the temperature"
        ):
            softmax.gradients(*given_rows)


@pytest.mark.parametrize("fits", [True, False])
def test_as_many_users_as_are_added_up_at_once_are_bounded(fits: bool) -> None:
    softmax = Softmax(0.02, 1e9, "float64", 1)
    each = int(2**53 / (2 * SLOPES.steps / 0.02 * LARGEST["float64"]) / BLOCK) + (not fits)
    positives = Ragged.from_arrays([np.zeros(each, dtype=np.int64)] * BLOCK)
    users, row = (np.full((count, 1), float(softmax.radius)) for count in (BLOCK, 1))
    nothing = Ragged.from_arrays([np.empty(0, dtype=np.int64)] * BLOCK)
    given_rows = positives, users, row, row, nothing, 1
    if fits:
        plain, compiled = (softmax.gradients(*given_rows, by) for by in (Plain(), Compiled()))
        assert plain.answers[0, 0] == compiled.answers[0, 0] > 0
    else:
        with pytest.raises(GridError, match=r"the slopes of a pool may add up to"):
            softmax.gradients(*given_rows, Compiled())


def test_a_vector_too_short_for_its_gradient_is_refused() -> None:
    softmax, grid = Softmax(0.1, 1.0, "float32", 2), Grid.backward("float32", "full")
    at = softmax.directions(np.array([[1e-20, 1e-20]], dtype=np.float32), Plain())
    with pytest.raises(GridError, match=r"the gradient of the loss, last layer: .* may not add up"):
        softmax.tangent_gradient(np.array([[2**40, 0]]), np.ones(1), at, grid, Plain())


@each_dtype
def test_opposite_vectors_have_a_loss_at_every_temperature_that_may_be_asked_for(
    dtype: Dtype,
) -> None:
    described = inspect.type_info(Config)
    assert isinstance(described, inspect.StructType)
    [field] = [field for field in described.fields if field.name == "temperature"]
    assert isinstance(field.type, inspect.Metadata)
    assert isinstance(field.type.type, inspect.FloatType)
    lowest = field.type.type.ge
    assert lowest is not None
    config = Config(loss="softmax", batch_size="full", temperature=lowest, dim=2, dtype=dtype)
    items = np.repeat([[-1.0, 0.0]], N_ITEMS, axis=0).astype(dtype)
    users = np.array([[1.0, 0.0]], dtype)
    case = Case(Softmax.of(config), ((0,),), (1, 2), 2, users, items)
    assert case.gradients(Plain()).loss == pytest.approx(math.log(3), rel=0.5)
