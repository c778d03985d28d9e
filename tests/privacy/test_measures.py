"""Measures against their definitions."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.privacy.measures import Guess, Measured, caught, user_auc, user_f1
from lpgcn.ragged import Ragged


def guess_of(users: list[list[tuple[float, bool]]]) -> Guess:
    lists = Ragged.from_arrays([np.arange(len(one)) for one in users])
    pairs = [pair for one in users for pair in one]
    return Guess(
        lists,
        np.array([score for score, _ in pairs], dtype=np.float64),
        np.array([real for _, real in pairs], dtype=np.bool_),
    )


entries = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.booleans()), max_size=8)


@given(st.lists(entries, min_size=1, max_size=4))
def test_auc_is_the_share_of_pairs_in_order_with_ties_half(
    users: list[list[tuple[float, bool]]],
) -> None:
    for found, own in zip(user_auc(guess_of(users)), users, strict=True):
        real, others = ([s for s, is_real in own if is_real == flag] for flag in (True, False))
        pairs = [(a > b) + 0.5 * (a == b) for a in real for b in others]
        assert np.isnan(found) if not pairs else np.isclose(found, np.mean(pairs))


@given(st.lists(entries, min_size=1, max_size=4))
def test_f1_counts_the_real_ones_among_as_many_best(users: list[list[tuple[float, bool]]]) -> None:
    for found, own in zip(user_f1(guess_of(users)), users, strict=True):
        count = sum(real for _, real in own)
        best = sorted(own, key=lambda pair: -pair[0])[:count]
        expected = sum(real for _, real in best) / count if count else np.nan
        assert np.isclose(found, expected, equal_nan=True)


def test_tpr_is_above_the_threshold_that_one_in_a_thousand_others_reach() -> None:
    others = [(float(score), False) for score in range(1000)]
    own = [(998.5, True), (999.0, True), (1000.0, True), (5.0, True)]
    assert caught(guess_of([others + own])).tolist() == [3 / 4]


def test_the_bootstrap_has_about_the_error_of_a_mean() -> None:
    per_user = np.append(np.random.default_rng(0).normal(0.7, 0.1, 400), np.nan)
    found = Measured.of(per_user)
    assert found is not None
    assert np.isclose(found.value, np.nanmean(per_user))
    assert np.isclose(found.high - found.low, 4 * 0.1 / 20, rtol=0.2)
    assert Measured.of(np.array([np.nan])) is None
