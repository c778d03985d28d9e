"""Metrics against ranx, and means that do not depend on who adds them up, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.array_types import Bits, Int64
from lpgcn.evaluation import (
    METRICS,
    Evaluation,
    EvaluationError,
    Vectors,
    evaluate,
    per_user,
    to_fixed_point,
    top_items,
)
from lpgcn.evaluation.compiled import CompiledRanker
from lpgcn.model.kernels import Floats
from lpgcn.model.kernels.threads import Threads
from lpgcn.ragged import Ragged

KS = (1, 5, 20)
NAMES = [f"{metric}@{k}" for k in KS for metric in METRICS]


@dataclass(frozen=True)
class World:
    users: Floats
    items: Floats
    masked: Ragged
    heldout: Ragged


def world(seed: int, n_users: int = 60, n_items: int = 120, share: float = 0.05) -> World:
    """Random vectors; a tenth of the users has nothing held out; held-out items are not masked."""
    draw = np.random.default_rng(seed)
    kind = draw.random((n_users, n_items))
    heldout = (kind < share) & (draw.random((n_users, 1)) > 0.1)

    def listing(pairs: Bits) -> Ragged:
        users, items = np.nonzero(pairs)
        return Ragged.from_pairs(users, items, n_users)

    vectors = draw.standard_normal((n_users + n_items, 8), dtype=np.float32)
    return World(vectors[:n_users], vectors[n_users:], listing(kind > 0.8), listing(heldout))


def ranked(given: World, k: int) -> Int64:
    return top_items(given.users, given.items, given.masked, k)[0]


def test_equal_to_ranx(monkeypatch: pytest.MonkeyPatch) -> None:
    # Compiling ranx takes a minute, interpreting it here a second.
    monkeypatch.setattr("numba.config.DISABLE_JIT", True)
    given = world(1)
    import ranx

    top, heldout = ranked(given, max(KS)), given.heldout
    relevant, run = {}, {}
    for user in np.flatnonzero(heldout.lengths).tolist():
        relevant[str(user)] = {str(item): 1 for item in heldout[user]}
        run[str(user)] = {str(item): 1 / rank for rank, item in enumerate(top[user], start=1)}
    expected = ranx.evaluate(
        ranx.Qrels(relevant),
        ranx.Run(run),
        [name.replace("hitrate", "hit_rate") for name in NAMES],
    )
    measured = evaluate(Vectors(given.users, given.items), given.masked, heldout, KS)
    assert measured.n_users == len(relevant) < len(given.users)
    assert list(measured.values) == NAMES
    for name in NAMES:
        assert measured.values[name] == pytest.approx(
            expected[name.replace("hitrate", "hit_rate")], abs=2**-32
        )


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.01, 0.05, 0.7]), st.sampled_from([3, 19, 50]))
def test_a_federation_gets_the_same_bits(seed: int, share: float, n_items: int) -> None:
    """Every user ranks and measures alone; masked integers are added in any order, modulo 2^64."""
    given = world(seed, n_users=12, n_items=n_items, share=share)
    masked, heldout = given.masked, given.heldout
    draw = np.random.default_rng(seed)
    members = draw.permutation(np.flatnonzero(heldout.lengths))
    secrets = draw.integers(0, 2**64, (len(members), len(NAMES)), dtype=np.uint64)
    uploads = secrets - np.roll(secrets, 1, axis=0)
    for upload, user in zip(uploads, members, strict=True):
        only = np.array([user])
        top, _ = top_items(given.users[only], given.items, masked.only(only), max(KS))
        values = per_user(top, heldout.only(only), KS)
        upload += to_fixed_point(np.concatenate([values[name] for name in NAMES]))
    ranker = CompiledRanker(Threads(2))
    if not len(members):
        with pytest.raises(EvaluationError, match="no user with held-out items"):
            evaluate(Vectors(given.users, given.items), masked, heldout, KS, ranker)
        with pytest.raises(EvaluationError, match="no user with held-out items"):
            Evaluation.from_totals(NAMES, uploads.sum(axis=0), 0)
        return
    together = evaluate(Vectors(given.users, given.items), masked, heldout, KS, ranker)
    assert together == Evaluation.from_totals(NAMES, uploads.sum(axis=0), len(members))


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_values_of_a_user_have_the_same_bits_alone_and_among_all(seed: int) -> None:
    given = world(seed, n_users=30, n_items=70, share=0.3)
    heldout, top = given.heldout, ranked(given, 20)
    together = per_user(top, heldout, KS)
    for user in range(30):
        alone = per_user(top[user : user + 1], heldout.only(np.array([user])), KS)
        assert all(alone[name][0] == values[user] for name, values in together.items())


def test_ranks_beyond_the_catalogue_hold_no_item() -> None:
    given = world(5, n_items=30, share=0.4)
    narrow = per_user(ranked(given, 100), given.heldout, (1, 20, 100))
    padded = np.pad(ranked(given, 100), ((0, 0), (0, 70)), constant_values=-1)
    wide = per_user(padded, given.heldout, (1, 20, 100))
    assert all(np.array_equal(narrow[name], wide[name]) for name in wide)
    assert (narrow["recall@100"][given.heldout.lengths > 0] == 1).all()


def test_values_worked_out_by_hand() -> None:
    """Hits at ranks 2 and 3 of one user with 3 held-out items, no hit, and a list with padding."""
    top = np.array([[9, 4, 7, 1], [0, 1, 2, 3], [5, -1, -1, -1], [1, 2, 3, 4]])
    heldout = Ragged.from_lengths([3, 1, 2, 0], np.array([7, 2, 4, 9, 5, 6]))
    measured = per_user(top, heldout, (1, 3))
    expected = {
        "recall@1": [0, 0, 1 / 2, 0],
        "recall@3": [2 / 3, 0, 1 / 2, 0],
        "precision@3": [2 / 3, 0, 1 / 3, 0],
        "hitrate@1": [0, 0, 1, 0],
        "hitrate@3": [1, 0, 1, 0],
        "mrr@1": [0, 0, 1, 0],
        "mrr@3": [1 / 2, 0, 1, 0],
        "ndcg@3": [
            (1 / np.log2(3) + 1 / 2) / (1 + 1 / np.log2(3) + 1 / 2),
            0,
            1 / (1 + 1 / np.log2(3)),
            0,
        ],
    }
    for name, values in expected.items():
        assert measured[name] == pytest.approx(values, abs=1e-15)


@given(st.lists(st.floats(0, 1), min_size=1), st.randoms())
def test_a_mean_is_exact_and_has_no_order(values: list[float], shuffle: Random) -> None:
    def mean() -> float:
        total = to_fixed_point(np.array(values)).sum(dtype=np.uint64)
        return Evaluation.from_totals(["one"], [total], len(values)).values["one"]

    before = mean()
    shuffle.shuffle(values)
    assert mean() == before
    exact = sum(map(Fraction, values), Fraction(0)) / len(values)
    assert abs(Fraction(before) - exact) <= Fraction(1, 2**32)


@pytest.mark.parametrize("ks", [(), (0,), (1, -1)])
def test_senseless_cutoffs_are_refused(ks: tuple[int, ...]) -> None:
    given = world(3)
    with pytest.raises(EvaluationError, match="cutoffs"):
        per_user(ranked(given, 2), given.heldout, ks)
    with pytest.raises(EvaluationError, match="cutoffs"):
        evaluate(Vectors(given.users, given.items), given.masked, given.heldout, ks)


@pytest.mark.parametrize("kind", [np.array, pd.Series])
def test_cutoffs_come_in_any_kind_of_sequence(kind: Any) -> None:
    given = world(3)
    model = Vectors(given.users, given.items)
    found = evaluate(model, given.masked, given.heldout, kind([1, 3]))
    assert found == evaluate(model, given.masked, given.heldout, [1, 3])
    with pytest.raises(EvaluationError, match="cutoffs"):
        evaluate(model, given.masked, given.heldout, kind([], dtype=int))


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan])
def test_values_outside_the_range_are_refused(value: float) -> None:
    with pytest.raises(EvaluationError, match="outside 0 to 1"):
        to_fixed_point(np.array([0.5, value]))


@pytest.mark.parametrize("total", [3 * 2**32 + 1, 2**64 - 1, -1])
def test_a_sum_that_cannot_be_one_of_metrics_is_refused(total: int) -> None:
    with pytest.raises(EvaluationError, match="recall@20 of 3 users"):
        Evaluation.from_totals(["recall@20"], [total], 3)


def test_items_of_other_users_are_refused() -> None:
    given = world(3)
    others = given.heldout.only(np.arange(59))
    with pytest.raises(EvaluationError, match="held-out items of 59 users, expected 60"):
        evaluate(Vectors(given.users, given.items), given.masked, others, KS)
    with pytest.raises(EvaluationError, match="masked items of 59 users, expected 60"):
        evaluate(Vectors(given.users, given.items), others, given.heldout, KS)
