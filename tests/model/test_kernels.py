"""Compiled kernels have the bits of plain ones, and a row alone those that it has in a table."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.model.kernels import LINE, Kernels, Lookup, Pooled
from lpgcn.model.kernels.compiled import Compiled
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.kernels.threads import Threads
from lpgcn.ragged import Ragged

DIMS = [1, 3, 16, 20, 64, 65]
PRECISIONS = [(np.float32, np.int32), (np.float64, np.int64)]
STEPS = 2.0**24

PLAIN: Kernels = Plain()
ALONE: Kernels = Compiled(Threads(1))
THREADED: Kernels = Compiled(Threads(3))

each_precision = pytest.mark.parametrize(("floating", "integer"), PRECISIONS)


@dataclass(frozen=True)
class Case:
    """Segments of any lengths over rows of any numbers, and all that the kernels take with them."""

    segments: Ragged
    integers: Any
    floats: Any
    weights: Any
    factor: Any
    present: Any

    @classmethod
    def drawn(cls, segments: Ragged, n_rows: int, d: int, kinds: Any, seed: int) -> Case:
        floating, integer = kinds
        random = np.random.default_rng(seed)
        present = random.random(n_rows) < 0.3
        floats = random.standard_normal((n_rows, d)).astype(floating)
        return cls(
            segments,
            random.integers(-(2**30), 2**30, (n_rows, d)).astype(integer),
            floats,
            random.standard_normal(len(segments.values)).astype(floating),
            random.random(len(segments)) / np.maximum(1, segments.lengths),
            present,
        )

    @property
    def few(self) -> Any:
        """The integers, 0 where a row is not present."""
        return self.integers * self.present[:, None].astype(self.integers.dtype)

    def averages_by_bound(self, kernels: Kernels, bits: int) -> Any:
        """Of numbers so many bits smaller: they are added up in parts of about 2^(bits + 1)."""
        rows = self.few >> bits
        largest = int(np.abs(rows).max(initial=0))
        return kernels.averages(
            self.segments, rows, self.factor, largest=largest, present=self.present
        )

    def only(self, rows: Any) -> Case:
        """What somebody has who has these segments and no others."""
        entries = Ragged(self.segments.offsets, np.arange(len(self.weights))).only(rows).values
        return Case(
            self.segments.only(rows),
            self.integers,
            self.floats,
            self.weights[entries],
            self.factor[rows],
            self.present,
        )

    def results(self, kernels: Kernels) -> list[Any]:
        return [
            kernels.sums(self.segments, self.integers),
            kernels.averages(self.segments, self.integers, self.factor),
            kernels.averages(self.segments, self.few, self.factor, present=self.present),
            *(self.averages_by_bound(kernels, bits) for bits in (3, 4, 12)),
            kernels.weighted_sums(self.segments, self.floats, self.weights, STEPS),
        ]


@st.composite
def ragged(draw: st.DrawFn) -> tuple[Ragged, int]:
    """Any rows, in any order and more than once; some segments with none, perhaps no segment."""
    n_rows = draw(st.integers(1, 30))
    index = st.integers(0, n_rows - 1)
    lists = draw(st.lists(st.lists(index, max_size=40), max_size=12))
    return Ragged.from_arrays([np.array(one, dtype=np.int64) for one in lists]), n_rows


def large(n_segments: int = 3000, n_rows: int = 2000, entries: int = 60_000) -> Ragged:
    """As skewed as real popularity, so that parts of equal entries have unequal rows."""
    random = np.random.default_rng(5)
    segment = (n_segments * random.random(entries) ** 3).astype(np.int64)
    return Ragged.from_pairs(segment, random.integers(0, n_rows, entries), n_segments)


def assert_same_bits(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def assert_same_results(found: list[Any], expected: list[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert_same_bits(one, other)


@settings(max_examples=60)
@given(
    given_segments=ragged(),
    d=st.sampled_from(DIMS),
    kinds=st.sampled_from(PRECISIONS),
    seed=st.integers(0, 99),
)
def test_sums_of_any_segments(
    given_segments: tuple[Ragged, int], d: int, kinds: Any, seed: int
) -> None:
    segments, n_rows = given_segments
    case = Case.drawn(segments, n_rows, d, kinds, seed)
    assert_same_results(case.results(ALONE), case.results(PLAIN))


@each_precision
@pytest.mark.parametrize("d", DIMS)
def test_sums_over_a_table_on_any_number_of_threads(d: int, floating: Any, integer: Any) -> None:
    case = Case.drawn(large(), 2000, d, (floating, integer), seed=d)
    expected = case.results(PLAIN)
    assert_same_results(case.results(ALONE), expected)
    assert_same_results(case.results(THREADED), expected)


@each_precision
def test_sums_for_one_segment_and_for_none(floating: Any, integer: Any) -> None:
    case = Case.drawn(large(), 2000, 64, (floating, integer), seed=0)
    for rows in (np.array([7]), np.empty(0, dtype=np.int64)):
        part = case.only(rows)
        assert_same_results(part.results(THREADED), part.results(PLAIN))


@pytest.mark.parametrize("n_rows", [1, 9000])
def test_tables_that_are_summed_next_begin_where_a_line_of_memory_does(n_rows: int) -> None:
    segments, ones = Ragged.identity(n_rows), np.ones(n_rows)
    rows, _ = THREADED.rounded(np.ones((n_rows, 64)), ones, np.int32)
    averages = THREADED.averages(segments, rows, ones)
    assert [table.ctypes.data % LINE for table in (rows, averages)] == [0, 0]
    assert (averages == 1).all() and averages.shape == (n_rows, 64)


@each_precision
@pytest.mark.parametrize("kernels", [PLAIN, THREADED], ids=["plain", "compiled"])
@pytest.mark.parametrize("rows", [[0], [2999], [5, 3, 5, 2500, 0]])
def test_a_row_alone_has_the_bits_that_it_has_in_the_table(
    rows: list[int], kernels: Kernels, floating: Any, integer: Any
) -> None:
    case = Case.drawn(large(), 2000, 20, (floating, integer), seed=1)
    whole = case.results(kernels)
    assert_same_results(case.only(np.array(rows)).results(kernels), [all_[rows] for all_ in whole])


@pytest.mark.parametrize("kernels", [PLAIN, ALONE], ids=["plain", "compiled"])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("d", [3, 64])
def test_the_largest_numbers_do_not_overflow(d: int, sign: int, kernels: Kernels) -> None:
    largest = sign * (2**31 - 1)
    rows = np.full((2, d), largest, dtype=np.int32)
    segments = Ragged.from_lengths([1000, 3], np.arange(1003) % 2)
    assert (kernels.sums(segments, rows) == [[1000 * largest], [3 * largest]]).all()
    for known in (None, *((2**31 - 1) >> bits for bits in range(5))):
        number = largest if known is None else sign * known
        averages = kernels.averages(
            segments, np.full_like(rows, number), 1 / segments.lengths, largest=known
        )
        assert (averages == number).all()


@each_precision
@pytest.mark.parametrize("kernels", [PLAIN, ALONE], ids=["plain", "compiled"])
def test_an_average_is_rounded_to_the_nearest_even_one(
    kernels: Kernels, floating: Any, integer: Any
) -> None:
    rows = np.array([[0, 1, -1, 2], [1, 2, -2, 5]], dtype=integer)
    segments = Ragged.from_lengths([2, 0], np.array([0, 1]))
    averages = kernels.averages(segments, rows, np.array([0.5, 1.0]))
    np.testing.assert_array_equal(averages, [[0, 2, -2, 4], [0, 0, 0, 0]])


@each_precision
@pytest.mark.parametrize("d", DIMS)
@pytest.mark.parametrize("count", [0, 1, 9000])
def test_rows_are_added_where_they_belong(count: int, d: int, floating: Any, integer: Any) -> None:
    random = np.random.default_rng(count + d)
    table, rows = random.integers(-(2**29), 2**29, (2, 9001, d)).astype(integer)
    at, rows = random.permutation(len(table))[:count], rows[:count]
    expected = table.astype(object)
    for row, number in zip(rows.astype(object), at.tolist(), strict=True):
        expected[number] += row
    largest = max((abs(one) for one in expected[at].flat), default=0)
    for kernels in (PLAIN, ALONE, THREADED):
        found = table.copy()
        assert kernels.add(found, at, rows) == largest
        assert_same_bits(found, expected.astype(integer))


@pytest.mark.parametrize("kernels", [PLAIN, ALONE], ids=["plain", "compiled"])
@pytest.mark.parametrize("sign", [1, -1])
def test_added_rows_tell_when_they_do_not_fit(sign: int, kernels: Kernels) -> None:
    table, rows = np.full((2, 3, 20), sign * (2**31 - 1), dtype=np.int32)
    assert kernels.add(table, np.array([2, 0]), rows[:2]) == 2 * (2**31 - 1)


@each_precision
@pytest.mark.parametrize("d", DIMS)
@pytest.mark.parametrize("pairs", [0, 1, 9000])
def test_dots(pairs: int, d: int, floating: Any, integer: Any) -> None:
    random = np.random.default_rng(pairs)
    left = random.standard_normal((300, d)).astype(floating)
    right = random.standard_normal((500, d)).astype(floating)
    # A product of -0 stays what it is.
    left[:, 0] = -0.0
    lefts, rights = random.integers(0, 300, pairs), random.integers(0, 500, pairs)
    expected = PLAIN.dots(left, right, lefts, rights)
    assert_same_bits(ALONE.dots(left, right, lefts, rights), expected)
    assert_same_bits(THREADED.dots(left, right, lefts, rights), expected)
    assert_same_bits(THREADED.dots(left, right, lefts[:1], rights[:1]), expected[:1])


@each_precision
@pytest.mark.parametrize("digits", [1, 2, 3])
@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (1, 4096), (700, 1), (300, 1024)])
def test_exponentials(shape: tuple[int, int], digits: int, floating: Any, integer: Any) -> None:
    """Distances of all sizes; those beyond 2^24 are rounded, if products are float32."""
    random = np.random.default_rng(digits)
    bits = {1: 12, 2: 13, 3: 9}[digits]
    largest = 2 ** (bits * digits - 2)
    tables = np.sort(random.random((digits, 2**bits)))[:, ::-1].copy()
    lookup = Lookup(largest, tables)
    products = random.integers(-largest, largest, shape, endpoint=True).astype(floating)
    expected = PLAIN.exponentials(products, lookup)
    below = (largest - products).astype(np.int64)
    exact = np.ones(shape)
    for table in tables:
        exact *= table[below % 2**bits]
        below //= 2**bits
    assert not below.any()
    assert np.array_equal(expected, np.rint(exact * 2.0**40) * 2.0**-40)
    assert_same_bits(ALONE.exponentials(products, lookup), expected)
    assert_same_bits(THREADED.exponentials(products, lookup), expected)
    for kernels in (PLAIN, THREADED):
        alone = kernels.exponentials(products[-1:].copy(), lookup)
        assert_same_bits(alone, expected[-1:])


@each_precision
@pytest.mark.parametrize("d", DIMS)
@pytest.mark.parametrize(("n_users", "size"), [(1, 1), (31, 33), (65, 32), (200, 95)])
def test_compare(n_users: int, size: int, d: int, floating: Any, integer: Any) -> None:
    """Users in whole and in broken blocks, pools in whole and in broken strips; the same bits, and
    sums that are those of whole numbers of any length."""
    random = np.random.default_rng(n_users + d)
    users, pool = (
        random.integers(-99, 100, (count, d)).astype(floating) for count in (n_users, size)
    )
    largest = 99 * 99 * d
    bits = (2 * largest).bit_length() // 2 + 1
    powers = [2.0 ** (bits * digit) for digit in range(2)]
    tables = np.exp(-np.arange(2**bits) * np.array(powers)[:, None] / largest)
    own = Ragged.from_lengths(np.full(n_users, 1), random.integers(0, size, n_users))
    lengths = random.integers(0, 4, n_users)
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    positive = random.random(offsets[-1])
    settings = Pooled(Lookup(float(largest), tables), 3.0, 2.0**16, max(1, size // 2))
    expected = PLAIN.compare(users, pool, own, offsets, positive, settings)
    for kernels in (ALONE, THREADED):
        found = kernels.compare(users, pool, own, offsets, positive, settings)
        for one, other in zip(found, expected, strict=True):
            assert_same_bits(one, other)
    alone = [
        PLAIN.compare(
            users[row : row + 1],
            pool,
            Ragged.single(own[row]),
            np.array([0, lengths[row]]),
            positive[offsets[row] : offsets[row + 1]],
            settings,
        )
        for row in range(n_users)
    ]
    assert_same_bits(np.concatenate([one.sums for one in alone]), expected.sums)
    assert np.array_equal(sum(one.answers for one in alone), expected.answers)
    x = PLAIN.exponentials(
        (users.astype(np.int64) @ pool.T.astype(np.int64)).astype(floating), settings.lookup
    )
    x[np.arange(n_users), own.values] = 0
    factor = [
        float(np.cumsum([0.0, *expected.f[offsets[r] : offsets[r + 1]]])[-1])
        for r in range(n_users)
    ]
    slopes = np.rint(x * (np.array(factor) * (3.0 * 2.0**16))[:, None]).astype(np.int64)
    assert np.array_equal(expected.sums, slopes @ pool.astype(np.int64))
    half = slopes[:, : settings.answered]
    assert np.array_equal(expected.answers, half.T @ users.astype(np.int64))


@each_precision
@pytest.mark.parametrize("d", DIMS)
@pytest.mark.parametrize("n_rows", [0, 1, 9000])
def test_tangents(n_rows: int, d: int, floating: Any, integer: Any) -> None:
    random = np.random.default_rng(d)
    rows = random.integers(-(2**40), 2**40, (n_rows, d)).astype(np.float64)
    along = random.integers(-(2**12), 2**12, (n_rows, d)).astype(floating)
    along[random.random(n_rows) < 0.1] = 0
    factor = np.where(random.random(n_rows) < 0.1, 0, 2.0 ** -random.integers(0, 30, n_rows))
    expected, largest = PLAIN.tangents(rows, along, factor)
    assert largest == np.abs(expected).max(initial=0)
    length, square = ((one * along.astype(np.float64)).sum(axis=1) for one in (rows, along))
    share = length / np.where(square > 0, square, 1)
    apart = (rows - share[:, None] * along) * factor[:, None]
    assert (np.abs(expected - apart) <= 0.5 + 2.0**40 * d * 1e-14 * factor[:, None]).all()
    for kernels in (ALONE, THREADED):
        found, also = kernels.tangents(rows, along, factor)
        assert_same_bits(found, expected)
        assert also == largest
    for kernels in (PLAIN, THREADED):
        last = kernels.tangents(rows[-1:].copy(), along[-1:].copy(), factor[-1:])[0]
        assert_same_bits(last, expected[-1:])


@dataclass
class Optimised:
    """A table in the hands of Adam."""

    parameter: Any
    mean: Any
    square: Any

    @classmethod
    def drawn(cls, n_rows: int, d: int, floating: Any) -> Optimised:
        parameter = np.random.default_rng(n_rows).standard_normal((n_rows, d)).astype(floating)
        return cls(parameter, np.zeros_like(parameter), np.zeros_like(parameter))

    def steps(self, kernels: Kernels, integer: Any, rows: Any) -> list[Any]:
        """Three steps on some of the rows; the same gradients for everybody."""
        parameter, mean, square = self.parameter[rows], self.mean[rows], self.square[rows]
        for step in range(1, 4):
            random = np.random.default_rng(step)
            gradient = random.integers(-(2**30), 2**30, self.parameter.shape).astype(integer)
            gradient[random.random(len(gradient)) < 0.5] = 0
            factor = random.random(len(gradient)) * 2.0**-30
            decay = random.random(len(gradient)) * 1e-3
            rate, root = 1e-3 / (1 - 0.9**step), 1 / np.sqrt(1 - 0.999**step)
            given = gradient[rows], factor[rows], decay[rows]
            kernels.adam(parameter, mean, square, *given, rate, float(root))
        return [parameter, mean, square]


@pytest.mark.parametrize("integer", [np.int32, np.int64])
@pytest.mark.parametrize("floating", [np.float32, np.float64])
@pytest.mark.parametrize("d", DIMS)
def test_adam(d: int, floating: Any, integer: Any) -> None:
    table = Optimised.drawn(9000, d, floating)
    every = np.arange(9000)
    expected = table.steps(PLAIN, integer, every)
    assert_same_results(table.steps(ALONE, integer, every), expected)
    assert_same_results(table.steps(THREADED, integer, every), expected)
    few = np.array([8999, 0, 17])
    for kernels in (PLAIN, THREADED):
        for rows in (few, few[:1], few[:0]):
            alone = table.steps(kernels, integer, rows)
            assert_same_results(alone, [part[rows] for part in expected])


def test_a_client_needs_no_numba() -> None:
    names = "lpgcn.model.kernels, lpgcn.model.kernels.plain, lpgcn.model.kernels.threads"
    found = f"import sys, {names}; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", found], check=False).returncode == 0


@pytest.mark.parametrize("count", [1, 3])
def test_threads_do_every_part_once(count: int) -> None:
    threads, done = Threads(count), []
    threads.each(lambda first, last: done.append((first, last)), [0, 3, 4, 9])
    assert sorted(done) == [(0, 3), (3, 4), (4, 9)]
    threads.each(lambda first, last: done.append((first, last)), [0])
    assert len(done) == 3


@pytest.mark.parametrize("count", [1, 3])
def test_what_goes_wrong_in_a_thread_is_heard_of(count: int) -> None:
    def work(first: int, last: int) -> None:
        if first == 4:
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        Threads(count).each(work, list(range(20)))


@given(lengths=st.lists(st.integers(0, 50), max_size=40), least=st.integers(0, 100))
def test_parts_cover_all_rows_in_order(lengths: list[int], least: int) -> None:
    segments = Ragged.from_lengths(lengths, np.empty(0, dtype=np.int64))
    bounds = Threads(3).bounds(segments.offsets, least)
    assert bounds == sorted(set(bounds))
    assert (bounds[0], bounds[-1]) == (0, len(lengths))
