"""Metrics against ranx, and means that do not depend on who adds them up, and in which order."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.evaluation import (
    METRICS,
    EvaluationError,
    evaluate,
    mean_from_fixed_point,
    per_user,
    to_fixed_point,
    top_items,
)

KS = (1, 5, 20)


@dataclass(frozen=True)
class Listing:
    offsets: np.ndarray
    items: np.ndarray


@dataclass(frozen=True)
class World:
    users: torch.Tensor
    items: torch.Tensor
    masked: Listing
    heldout: Listing


def world(seed: int, n_users: int = 60, n_items: int = 120, share: float = 0.05) -> World:
    """Random vectors; a tenth of the users has nothing held out; held-out items are not masked."""
    draw = np.random.default_rng(seed)
    kind = draw.random((n_users, n_items))
    heldout = (kind < share) & (draw.random((n_users, 1)) > 0.1)

    def listing(pairs: np.ndarray) -> Listing:
        users, items = np.nonzero(pairs)
        return Listing(np.searchsorted(users, np.arange(n_users + 1)), items)

    vectors = torch.from_numpy(draw.standard_normal((n_users + n_items, 8), dtype=np.float32))
    return World(vectors[:n_users], vectors[n_users:], listing(kind > 0.8), listing(heldout))


def ranked(given: World, k: int) -> np.ndarray:
    masked = given.masked
    return top_items(given.users, given.items, masked.offsets, masked.items, k)[0].numpy()


def test_equal_to_ranx(monkeypatch: pytest.MonkeyPatch) -> None:
    # Compiling ranx takes a minute, interpreting it here a second.
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")
    given = world(1)
    import ranx

    top, heldout = ranked(given, max(KS)), given.heldout
    relevant, run = {}, {}
    for user in np.flatnonzero(np.diff(heldout.offsets)):
        own = heldout.items[heldout.offsets[user] : heldout.offsets[user + 1]]
        relevant[str(user)] = {str(item): 1 for item in own}
        run[str(user)] = {str(item): 1 / rank for rank, item in enumerate(top[user], start=1)}
    names = [f"{metric}@{k}" for metric in METRICS for k in KS]
    expected = ranx.evaluate(
        ranx.Qrels(relevant),
        ranx.Run(run),
        [name.replace("hitrate", "hit_rate") for name in names],
    )
    measured = evaluate(given.users, given.items, given.masked, heldout, KS)
    assert measured.n_users == len(relevant) < len(given.users)
    assert set(measured.values) == set(names)
    for name in names:
        assert measured.values[name] == pytest.approx(
            expected[name.replace("hitrate", "hit_rate")], abs=2**-32
        )


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from([0.01, 0.05, 0.7]))
def test_a_federation_gets_the_same_bits(seed: int, share: float) -> None:
    """Every user ranks and measures alone; masked integers are added in any order, modulo 2^64."""
    given = world(seed, n_users=12, n_items=50, share=share)
    masked, heldout = given.masked, given.heldout
    names = [f"{metric}@{k}" for metric in METRICS for k in KS]
    draw = np.random.default_rng(seed)
    members = draw.permutation(np.flatnonzero(np.diff(heldout.offsets)))
    secrets = draw.integers(0, 2**64, (len(members), len(names)), dtype=np.uint64)
    uploads = secrets - np.roll(secrets, 1, axis=0)
    for upload, user in zip(uploads, members, strict=True):
        own = masked.items[masked.offsets[user] : masked.offsets[user + 1]]
        kept = heldout.items[heldout.offsets[user] : heldout.offsets[user + 1]]
        top, _ = top_items(
            given.users[user : user + 1], given.items, np.array([0, len(own)]), own, max(KS)
        )
        values = per_user(top.numpy(), np.array([0, len(kept)]), kept, KS)
        upload += to_fixed_point(np.concatenate([values[name] for name in names]))
    if not len(members):
        with pytest.raises(EvaluationError, match="no user with held-out items"):
            evaluate(given.users, given.items, masked, heldout, KS)
        return
    together = evaluate(given.users, given.items, masked, heldout, KS)
    assert together.n_users == len(members)
    assert together.values == {
        name: mean_from_fixed_point(int(total), len(members))
        for name, total in zip(names, uploads.sum(axis=0), strict=True)
    }


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32))
def test_values_of_a_user_have_the_same_bits_alone_and_among_all(seed: int) -> None:
    given = world(seed, n_users=30, n_items=70, share=0.3)
    heldout, top = given.heldout, ranked(given, 20)
    together = per_user(top, heldout.offsets, heldout.items, KS)
    for user in range(30):
        own = heldout.items[heldout.offsets[user] : heldout.offsets[user + 1]]
        alone = per_user(top[user : user + 1], np.array([0, len(own)]), own, KS)
        assert all(alone[name][0] == values[user] for name, values in together.items())


def test_values_worked_out_by_hand() -> None:
    """Hits at ranks 2 and 3 of one user with 3 held-out items, no hit, and a list with padding."""
    top = np.array([[9, 4, 7, 1], [0, 1, 2, 3], [5, -1, -1, -1], [1, 2, 3, 4]])
    measured = per_user(top, np.array([0, 3, 4, 6, 6]), np.array([7, 2, 4, 9, 5, 6]), (1, 3))
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


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1), st.randoms())
def test_a_mean_is_exact_and_has_no_order(values: list[float], shuffle: Random) -> None:
    total = int(to_fixed_point(np.array(values)).sum())
    mean = mean_from_fixed_point(total, len(values))
    shuffle.shuffle(values)
    assert mean_from_fixed_point(int(to_fixed_point(np.array(values)).sum()), len(values)) == mean
    assert abs(Fraction(mean) - sum(map(Fraction, values)) / len(values)) <= Fraction(1, 2**32)


@pytest.mark.parametrize("ks", [(), (0,), (3,)])
def test_cutoffs_outside_the_ranks_are_refused(ks: tuple[int, ...]) -> None:
    with pytest.raises(EvaluationError, match="cutoffs"):
        per_user(np.array([[0, 1]]), np.array([0, 1]), np.array([0]), ks)


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan])
def test_values_outside_the_range_are_refused(value: float) -> None:
    with pytest.raises(EvaluationError, match="outside 0 to 1"):
        to_fixed_point(np.array([0.5, value]))


def test_held_out_items_of_other_users_are_refused() -> None:
    given = world(3)
    with pytest.raises(EvaluationError, match="held-out items of 60 users, expected 59"):
        evaluate(given.users[:-1], given.items, given.masked, given.heldout, KS)
