"""Pools and groups against an oracle in plain Python, and the steps of full batches."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.model.batches import (
    SMALLEST_GROUP,
    Batches,
    PooledBatch,
    PooledBatches,
    batches_of,
    group_count,
    groups,
    pool_sizes,
    smallest_group,
    weighted,
)
from lpgcn.model.kernels.plain import Plain
from lpgcn.model.losses.softmax import Softmax
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, integers

SEED = st.integers(0, 2**63 - 1)
SOFTMAX = Config(dim=8, loss="softmax", batch_size="full")


def pooled(
    listed: list[int], negatives: int, *, seed: int = 0, groups: int = 1, answers: int = 1
) -> PooledBatches:
    """A client a group, and so many lists that a place is on."""
    return PooledBatches(seed, 9, np.arange(groups), negatives, answers, np.array(listed))


def pool_of(seed: int, epoch: int, group: int, listed: list[int], negatives: int) -> list[int]:
    """One draw after the other: from all lists behind one another, then from all places."""
    on_lists = [place for place, count in enumerate(listed) for _ in range(count)]
    pool: list[int] = []
    number = 0
    while len(pool) < negatives:
        among = on_lists if number % 2 == 0 else list(range(len(listed)))
        [drawn] = integers(seed, Purpose.POOL, number, len(among), epoch, draw=group)
        if among[drawn] not in pool:
            pool.append(among[drawn])
        number += 1
    return pool


@st.composite
def listings(draw: st.DrawFn) -> list[int]:
    """At least one place is on a list; some are on none."""
    listed = draw(st.lists(st.integers(0, 9), min_size=1, max_size=20))
    listed[draw(st.integers(0, len(listed) - 1))] += 1
    return listed


@settings(max_examples=60)
@given(data=st.data(), seed=SEED, epoch=st.integers(0, 10**6), n_groups=st.integers(1, 4))
def test_pools_and_what_is_answered_are_those_of_the_oracle(
    data: st.DataObject, seed: int, epoch: int, n_groups: int
) -> None:
    listed = data.draw(listings())
    negatives = data.draw(st.integers(1, len(listed)))
    answers = data.draw(st.integers(1, negatives))
    batch = pooled(listed, negatives, seed=seed, groups=n_groups, answers=answers).draw(epoch, 0)
    assert (batch.epoch, batch.size, batch.answered) == (epoch, 9, answers)
    assert batch.pools.lengths.tolist() == [negatives] * n_groups
    assert len(batch.answers) == n_groups
    for group in range(n_groups):
        pool = batch.pools[group].tolist()
        assert pool == pool_of(seed, epoch, group, listed, negatives)
        assert len(set(pool)) == negatives
        assert batch.answers[group].tolist() == pool[:answers]


@given(listed=listings(), seed=SEED)
def test_a_pool_as_large_as_the_catalogue_has_every_place(listed: list[int], seed: int) -> None:
    [*pool] = pooled(listed, len(listed), seed=seed).draw(0, 0).pools[0].tolist()
    assert sorted(pool) == list(range(len(listed)))


def test_another_epoch_group_or_seed_has_another_pool() -> None:
    batches = pooled([1] * 1000, 50, groups=2)
    drawn = [
        *(batches.draw(epoch, 0).pools[group] for epoch in (0, 1) for group in (0, 1)),
        *(replace(batches, seed=seed).draw(0, 0).pools[0] for seed in (1, 2**40)),
    ]
    sets = [frozenset(pool.tolist()) for pool in drawn]
    # Two pools of 50 among 1,000 have 2.5 places in common, on average.
    assert all(len(sets[i] & sets[j]) < 15 for i in range(len(sets)) for j in range(i))
    again = batches.draw(1, 0).pools
    assert again[1].tolist() == drawn[3].tolist()


def test_half_of_the_draws_are_by_lists_and_half_are_uniform() -> None:
    """The first of a pool is drawn by lists; the second uniformly, and if it is the first once
    more, by lists, and so on. So its probability is a geometric series."""
    listed, n_pools = [0, 1, 2, 3, 14], 10_000
    batches = pooled(listed, 2, groups=n_pools, seed=3)
    drawn = Counter(map(tuple, batches.draw(5, 0).pools.values.reshape(-1, 2).tolist()))
    by_lists, uniform = [count / sum(listed) for count in listed], 1 / len(listed)
    square = 0.0
    for first, likely in enumerate(by_lists):
        again = uniform * likely
        for second, other in enumerate(by_lists):
            if first == second or not likely:
                assert (first, second) not in drawn
                continue
            expected = n_pools * likely * (uniform + uniform * other) / (1 - again)
            square += (drawn[first, second] - expected) ** 2 / expected
    # 16 outcomes: χ² with 15 degrees of freedom exceeds 45 once in 13,000 times.
    assert square < 45


def test_places_that_nobody_lists_are_in_pools_as_often_as_uniform_draws_say() -> None:
    """900 places nobody lists, 100 that all list: of N = 40 draws about half are uniform."""
    listed = [0] * 900 + [50] * 100
    pools = pooled(listed, 40, groups=200).draw(0, 0).pools
    unlisted = int((pools.values < 900).sum())
    draws = pools.values.size / 2
    # A draw that repeats a place gives way to the next one, of either kind.
    assert 0.9 * draws <= unlisted <= 1.15 * draws
    assert len(np.unique(pools.values[pools.values < 900])) > 850


def test_an_epoch_is_one_step_and_then_over() -> None:
    batches = pooled([1, 2, 3], 2, groups=2)
    assert batches.steps == 1
    first, second = batches.draw(4, 0), batches.draw(4, 1)
    assert isinstance(second, PooledBatch)
    assert (first.size, second.size) == (9, 0)
    assert first.group is batches.group


@given(n_clients=st.integers(1, 700), wanted=st.integers(1, 40), dim=st.integers(1, 99), seed=SEED)
def test_groups_are_of_about_equal_sizes_and_large_enough(
    n_clients: int, wanted: int, dim: int, seed: int
) -> None:
    config = SOFTMAX.changed(groups=wanted, dim=dim, seed=seed)
    group, smallest = groups(config, n_clients), max(SMALLEST_GROUP, 2 * dim)
    sizes = np.bincount(group)
    assert len(group) == n_clients
    assert sizes.max() - sizes.min() <= 1
    assert len(sizes) == 1 or sizes.min() >= smallest
    assert len(sizes) == wanted or len(sizes) == max(1, n_clients // smallest) < wanted
    assert len(sizes) == group_count(config, n_clients)
    assert np.array_equal(groups(config, n_clients), group)


def test_groups_of_the_next_term_are_others_whoever_left() -> None:
    """Or two sums over a group would differ by the one who left, and tell what that one said."""
    config = SOFTMAX.changed(groups=4, dim=16)
    before, after = groups(config, 1000)[:999], groups(config, 999, term=1)
    together = np.array(
        [[np.count_nonzero((before == a) & (after == b)) for b in range(4)] for a in range(4)]
    )
    assert together.max() < 100


@pytest.mark.parametrize("n_users", [8, 32])
def test_a_sum_over_more_than_d_users_has_no_trace_of_their_number(n_users: int) -> None:
    """In a sum over d users or fewer there are as many dimensions as users, and their directions
    are short vectors in it; over 2d users all d dimensions are filled, whoever they are."""
    random, d, size = np.random.default_rng(n_users), 16, 60
    softmax, kernels = Softmax(0.2, 8.0, "float32", d), Plain()
    users, items = (
        softmax.directions(random.standard_normal((count, d)).astype(np.float32), kernels).rows
        for count in (n_users, size)
    )
    positives = Ragged.from_lengths(np.full(n_users, 1), random.integers(0, size, n_users))
    nothing = Ragged.from_lengths(np.zeros(n_users, dtype=np.int64), positives.values[:0])
    found = softmax.gradients(positives, users, items, items, nothing, size, kernels)
    assert np.linalg.matrix_rank(found.answers.astype(np.float64)) == min(n_users, d)
    smallest = smallest_group(SOFTMAX.changed(dim=d))
    assert (n_users >= smallest) == (n_users == 32)


def test_who_is_with_whom_is_drawn_by_the_seed() -> None:
    first, second = (groups(SOFTMAX.changed(groups=10, dim=16, seed=seed), 1000) for seed in (0, 1))
    # Of 1,000 clients 100 are in the same group twice, by chance.
    assert 50 < (first == second).sum() < 150
    assert 50 < (first == np.sort(first)).sum() < 150


@pytest.mark.parametrize(
    ("negatives", "answers", "n_items", "expected"),
    [
        (100, None, 500, (100, 100)),
        (100, 30, 500, (100, 30)),
        (100, 30, 20, (20, 20)),
        (100, None, 20, (20, 20)),
        (20, 5, 20, (20, 5)),
    ],
)
def test_a_pool_is_no_larger_than_the_catalogue_nor_answers_than_a_pool(
    negatives: int, answers: int | None, n_items: int, expected: tuple[int, int]
) -> None:
    config = SOFTMAX.changed(negatives=negatives, answers=answers)
    assert pool_sizes(config, n_items) == expected


@given(
    answers=st.lists(st.integers(-(2**52), 2**52), min_size=1),
    sizes=st.tuples(st.integers(1, 2**13), st.integers(1, 2**13)),
)
def test_answers_about_some_count_for_all(answers: list[int], sizes: tuple[int, int]) -> None:
    negatives, answered = max(sizes), min(sizes)
    found = weighted(np.array(answers), (negatives, answered))
    expected = [answer * negatives / answered for answer in answers]
    assert np.allclose(found, expected, rtol=2**-51, atol=0)
    assert weighted(np.array(answers), (negatives, negatives)).tolist() == answers


def listing(n_users: int, n_items: int) -> Ragged:
    lists: list[Int64] = [np.arange(1 + user % 3) + user % n_items for user in range(n_users)]
    return Ragged.from_arrays([one % n_items for one in lists])


def test_pools_are_drawn_from_what_is_listed() -> None:
    listed = listing(100, 7)
    config = SOFTMAX.changed(groups=2, negatives=5, answers=3, seed=8)
    batches = batches_of(config, 60, listed, 9)
    assert isinstance(batches, PooledBatches)
    batch = batches.draw(2, 0)
    assert (batch.size, batch.answered, len(batch.pools)) == (60, 3, 2)
    assert np.array_equal(batch.group, groups(config, 100))
    counts = Counter(listed.values.tolist())
    on_lists = [counts[place] for place in range(9)]
    assert on_lists[7:] == [0, 0]
    for group in range(2):
        assert batch.pools[group].tolist() == pool_of(8, 2, group, on_lists, 5)


@given(total=st.integers(1, 300), seed=SEED, epoch=st.integers(0, 99))
def test_a_full_batch_of_bpr_is_one_step_of_all_samples(total: int, seed: int, epoch: int) -> None:
    """And the one that so many samples in a batch would make."""
    listed = listing(20, 50)
    config = Config(batch_size="full", seed=seed)
    full = batches_of(config, total, listed, 50)
    counted = batches_of(config.changed(batch_size=total), total, listed, 50)
    assert isinstance(full, Batches) and isinstance(counted, Batches)
    assert full.steps == counted.steps == 1
    batch, other = full.draw(epoch, 0), counted.draw(epoch, 0)
    assert batch.size == total
    assert batch.positions.tolist() == list(range(total))
    assert batch.users.tolist() == other.users.tolist()
    assert batch.negatives.tolist() == other.negatives.tolist()
    assert full.draw(epoch, 1).size == 0


@given(total=st.integers(1, 300), batch_size=st.integers(1, 300))
def test_batches_of_a_number_cover_an_epoch(total: int, batch_size: int) -> None:
    batches = batches_of(Config(batch_size=batch_size), total, listing(20, 50), 50)
    assert isinstance(batches, Batches)
    assert batches.steps == math.ceil(total / batch_size)
    positions = [batches.draw(0, step).positions for step in range(batches.steps)]
    assert np.concatenate(positions).tolist() == list(range(total))
