"""Philox against its published vectors, and the one property everything stands on: a row asked for
alone has the same bits as that row among all rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.random import Purpose, bits, integers, permutation, philox, uniform, words

WORD = st.integers(0, 2**32 - 1)
SEED = st.integers(0, 2**63 - 1)
PURPOSE = st.sampled_from(Purpose)


KNOWN_ANSWERS = """
00000000 00000000 00000000 00000000  00000000 00000000  6627e8d5 e169c58d bc57ac4c 9b00dbd8
ffffffff ffffffff ffffffff ffffffff  ffffffff ffffffff  408f276d 41c83b0e a20bc7c6 6d5451fd
243f6a88 85a308d3 13198a2e 03707344  a4093822 299f31d0  d16cfe09 94fdcceb 5001e420 24126ea1
"""
"""Counter, key, result: the lines `philox4x32 10` of kat_vectors in the authors' Random123."""


@pytest.mark.parametrize("line", KNOWN_ANSWERS.strip().splitlines())
def test_known_answers_of_random123(line: str) -> None:
    numbers = [int(word, 16) for word in line.split()]
    key = numbers[4], numbers[5]
    assert list(philox(*numbers[:4], key)) == numbers[6:]
    arrays = [np.array([word, 1], dtype=np.uint64) for word in numbers[:4]]
    assert [int(word[0]) for word in philox(*arrays, key)] == numbers[6:]


@given(SEED, PURPOSE, WORD, WORD, st.integers(0, 2**20))
def test_a_draw_is_a_word_of_the_block_that_its_counter_names(
    seed: int, purpose: Purpose, entity: int, step: int, draw: int
) -> None:
    block = philox(draw // 4, entity, step, int(purpose), (seed % 2**32, seed >> 32))
    assert bits(seed, purpose, entity, step, draw, 1)[0, 0] == block[draw % 4]


@given(SEED, PURPOSE, st.lists(WORD, min_size=1, max_size=20), WORD, st.data())
def test_a_part_has_the_bits_that_it_has_within_the_whole(
    seed: int, purpose: Purpose, entities: list[int], step: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(1, 30))
    first = data.draw(st.integers(0, count - 1))
    length = data.draw(st.integers(0, count - first))
    row = data.draw(st.integers(0, len(entities) - 1))
    part = slice(first, first + length)
    for draw in (words, uniform):
        whole = draw(seed, purpose, entities, step, count=count)
        alone = draw(seed, purpose, entities[row], step, first=first, count=length)
        assert whole.shape == (len(entities), count)
        assert np.array_equal(alone[0], whole[row, part])
    bounds = np.array(entities) // 2 + 1
    drawn = integers(seed, purpose, entities, bounds, step, draw=first)
    assert integers(seed, purpose, entities[row], bounds[row], step, draw=first)[0] == drawn[row]


def test_more_rows_than_are_computed_at_once() -> None:
    entities = np.arange(100_003)
    whole = words(7, Purpose.SPLIT, entities, 3, count=3)
    for row in (0, 1, 32_767, 32_768, 65_535, 65_536, 100_002):
        assert np.array_equal(words(7, Purpose.SPLIT, row, 3, count=3)[0], whole[row])


def test_seed_purpose_entity_step_and_draw_each_change_the_number() -> None:
    drawn = {
        int(words(seed, purpose, entity, step, first=draw)[0, 0])
        for seed in (0, 1, 2**32)
        for purpose in (Purpose.POSITIVE, Purpose.NEGATIVE)
        for entity in (0, 1)
        for step in (0, 1)
        for draw in (0, 1)
    }
    assert len(drawn) == 3 * 2**4


@given(SEED, st.lists(st.tuples(WORD, st.integers(1, 2**32 - 1)), min_size=1, max_size=50))
def test_integers_are_the_high_half_of_an_exact_product(
    seed: int, rows: list[tuple[int, int]]
) -> None:
    entities, bounds = zip(*rows, strict=True)
    drawn = integers(seed, Purpose.NEGATIVE, entities, bounds)
    exact = words(seed, Purpose.NEGATIVE, entities)[:, 0]
    assert drawn.tolist() == [int(w) * b >> 64 for w, b in zip(exact, bounds, strict=True)]
    assert (drawn < bounds).all()


def deviation_from_uniform(counts: npt.NDArray[np.int64]) -> float:
    """χ² of equal expected counts, as a number of its own standard deviations from its mean."""
    expected = counts.sum() / counts.size
    statistic = float(((counts - expected) ** 2 / expected).sum())
    degrees = counts.size - 1
    return (statistic - degrees) / (2 * degrees) ** 0.5


@pytest.mark.parametrize("bound", [2, 3, 10, 1000])
@pytest.mark.parametrize("seed", [0, 1, 2**40])
def test_integers_are_uniform_over_entities_steps_and_draws(seed: int, bound: int) -> None:
    entities = np.arange(100_000)
    for step, draw in ((0, 0), (0, 1), (5, 0)):
        drawn = integers(seed, Purpose.BATCH_USER, entities, bound, step, draw=draw)
        assert abs(deviation_from_uniform(np.bincount(drawn, minlength=bound))) < 4


def test_uniform_numbers_fill_the_unit_interval() -> None:
    drawn = uniform(3, Purpose.DEMO_DATA, np.arange(500), count=400)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert abs(deviation_from_uniform(np.histogram(drawn, 100, (0, 1))[0])) < 4
    # Neighbouring draws and neighbouring entities are not correlated.
    for left, right in ((drawn[:, :-1], drawn[:, 1:]), (drawn[:-1], drawn[1:])):
        assert abs(np.corrcoef(left.reshape(-1), right.reshape(-1))[0, 1]) < 4 / left.size**0.5


@given(SEED, st.integers(0, 200))
def test_permutation_is_one(seed: int, size: int) -> None:
    order = permutation(seed, Purpose.CATALOGUE_ORDER, size)
    assert sorted(order.tolist()) == list(range(size))


def test_every_place_of_a_permutation_is_equally_likely_for_every_element() -> None:
    orders = np.stack([permutation(seed, Purpose.CATALOGUE_ORDER, 6) for seed in range(3000)])
    for place in range(6):
        assert abs(deviation_from_uniform(np.bincount(orders[:, place], minlength=6))) < 4


@pytest.mark.parametrize(("entity", "step"), [(2**32, 0), (0, 2**32), (0, -1), (np.array([-1]), 0)])
def test_what_does_not_fit_a_counter_is_refused(entity: int, step: int) -> None:
    with pytest.raises(ValueError, match="words of a counter"):
        bits(0, Purpose.SPLIT, entity, step, 0, 1)


def test_a_bound_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="below 2\\^32"):
        integers(0, Purpose.SPLIT, 0, 2**32)
