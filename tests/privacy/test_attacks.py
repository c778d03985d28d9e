"""Every attack succeeds where it must, and is at chance where there is nothing to find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.model.sampling import VirtualItems, union, virtual_items
from lpgcn.privacy import coalition_audit, server_audit
from lpgcn.privacy.attacks import (
    after_validation,
    attributes,
    final_vectors,
    first_push,
    linear_bits,
    means_of_finals,
    membership,
    popularity_matching,
    rows_over_steps,
    token_graph,
    wishes,
)
from lpgcn.privacy.audit import adversaries, audit
from lpgcn.privacy.deployment import Deployment
from lpgcn.privacy.measures import Guess, user_auc
from lpgcn.privacy.solvers import least_squares, non_negative, sparsest
from lpgcn.privacy.views import Adversary, view_of
from lpgcn.protocol.suite import SUITES, Key, Kind, Suite
from lpgcn.ragged import Ragged

Make = Callable[..., Any]
TASTES = 4
SERVER = Adversary("server", server=True)


def auc(lists: Ragged, scores: np.ndarray, real: np.ndarray) -> float:
    return float(np.nanmean(user_auc(Guess(lists, scores, real))))


def lists_and_truth(deployment: Deployment) -> tuple[Ragged, np.ndarray]:
    topology = deployment.record.topology
    lists = server_audit.rising(topology.listed)
    return lists, server_audit.is_real(lists, deployment.real, topology.n_items)


# The token graph.


def with_uniform_decoys(split: Split) -> tuple[Ragged, np.ndarray]:
    real, n_items = split.train.by_user, split.n_items
    virtual = virtual_items(3, np.arange(len(real)), real, n_items, VirtualItems(0, 1.0))
    lists = union(real, virtual, n_items)
    return lists, server_audit.is_real(lists, real, n_items)


@pytest.mark.parametrize("name", [*token_graph.SCORES, "combined"])
def test_real_items_are_told_from_uniform_ones_and_nothing_is_told_from_chance(
    split_with_tastes: Split, shuffled_within: Make, name: str
) -> None:
    lists, real = with_uniform_decoys(split_with_tastes)
    nonsense = shuffled_within(lists, real)
    labelled = np.arange(0, len(lists), 4)
    others = np.setdiff1d(np.arange(len(lists)), labelled)
    scores = token_graph.all_scores(lists, split_with_tastes.n_items)
    scores["svd"] = token_graph.svd(lists, split_with_tastes.n_items, rank=TASTES)
    for truth, low, high in ((real, 0.62, 1.0), (nonsense, 0.42, 0.58)):
        score = scores.get(name)
        if score is None:
            score = token_graph.combined(lists, scores, truth, labelled)
        guess = Guess(lists, score, truth).only(others)
        assert low < np.nanmean(user_auc(guess)) <= high


def test_scores_of_the_token_graph_are_their_formulas(split_with_tastes: Split) -> None:
    lists, _ = with_uniform_decoys(split_with_tastes)
    n_items = split_with_tastes.n_items
    graph = np.zeros((len(lists), n_items))
    graph[lists.rows, lists.values] = 1
    degrees = np.maximum(graph.sum(axis=0), 1)
    for power, found in (
        (0.5, token_graph.cosine(lists, n_items)),
        (1.0, token_graph.lift(lists, n_items) / len(lists)),
    ):
        for entry in range(0, len(found), 37):
            user, token = lists.rows[entry], lists.values[entry]
            without = np.delete(graph, user, axis=0)
            together = without[:, token] @ without
            others = np.setdiff1d(lists[user], token)
            expected = np.mean(together[others] * (degrees[others] * degrees[token]) ** -power)
            assert np.isclose(found[entry], expected)
    normalised = graph / np.sqrt(np.outer(np.maximum(graph.sum(axis=1), 1), degrees))
    left, values, right = np.linalg.svd(normalised, full_matrices=False)
    expected = ((left[:, :8] * values[:8]) @ right[:8])[lists.rows, lists.values]
    expected = expected / normalised[lists.rows, lists.values]
    found = token_graph.svd(lists, n_items, rank=8)
    assert np.corrcoef(found, expected)[0, 1] > 0.95


# Popularity.


def test_different_degrees_name_all_tokens_and_equal_ones_none() -> None:
    popularity = np.array([9, 4, 7, 1])
    place = np.array([2, 0, 3, 1])
    names = popularity_matching.named(popularity[place], popularity)
    assert names.tolist() == place.tolist()
    real = Ragged.from_arrays([np.array([0, 1]), np.array([2])])
    assert popularity_matching.share_named(names, place, real).tolist() == [1, 1]
    many = np.random.default_rng(2).permutation(1000)
    blind = popularity_matching.named(np.ones(1000), np.ones(1000))
    everything = Ragged.single(np.arange(1000))
    assert popularity_matching.share_named(blind, many, everything)[0] < 0.01


# What suite `paper` leaves in the clear.


def test_the_server_reads_wishes_in_the_clear_and_they_are_all_right(deployment_of: Make) -> None:
    deployment = deployment_of("paper")
    found = wishes.read(view_of(deployment, SERVER))
    assert len(found) > 60
    real = {
        (user, place) for user in range(len(deployment.real)) for place in deployment.real[user]
    }
    assert set(map(tuple, found.tolist())) <= real
    assert not len(wishes.read(view_of(deployment_of("sealed"), SERVER)))


def test_the_server_solves_for_the_bits_in_the_clear(
    deployment_of: Make, shuffled_within: Make
) -> None:
    deployment = deployment_of("paper")
    lists, real = lists_and_truth(deployment)
    found = linear_bits.scores(view_of(deployment, SERVER), lists, np.arange(len(lists)))
    assert found is not None
    assert auc(lists, found, real) > 0.97
    assert 0.42 < auc(lists, found, shuffled_within(lists, real)) < 0.58
    sealed = deployment_of("sealed")
    assert linear_bits.scores(view_of(sealed, SERVER), lists, np.arange(len(lists))) is None


FINDS = {
    Kind.WISH: {"wishes"},
    Kind.USER_FINAL: set[str](),
    Kind.ITEM_FINAL: {"likeness of final vectors"},
}
"""What attacks of the server make of one kind of row, besides reading it."""


@pytest.mark.parametrize("kind", FINDS)
def test_the_audit_finds_a_suite_out_that_leaves_one_kind_of_row_clear(
    split_with_tastes: Split, monkeypatch: pytest.MonkeyPatch, kind: Kind
) -> None:
    """A deliberately broken suite: the server's lines name what leaks, and nothing else."""
    sealed = SUITES["sealed"]
    config = Config(
        model="lightgcn", dim=4, layers=2, batch_size=48, virtual_items="1.0x", planner="greedy"
    )

    def found() -> tuple[set[str], set[str]]:
        lines = audit(split_with_tastes, config, steps=1, parties=["server"]).lines
        clear = {line.about for line in lines if line.attack == "rows in the clear"}
        attacks = {line.attack for line in lines} - {"rows in the clear"}
        return clear, {one for one in attacks if not one.startswith(("token graph", "matching"))}

    assert found() == (set(), set())
    broken = Suite(sealed.owner_push, {**sealed.keys, kind: Key.CLEAR})
    monkeypatch.setitem(SUITES, "sealed", broken)
    assert found() == ({kind.name}, FINDS[kind])


# Coalitions.


def test_known_bits_are_the_truth_about_what_members_list_or_own(
    deployment_of: Make, heaviest: Make
) -> None:
    deployment = deployment_of("sealed")
    topology = deployment.record.topology
    owner = heaviest(deployment)
    lists, real = lists_and_truth(deployment)
    both = Adversary("both", server=True, clients=(owner,))
    bits = coalition_audit.known_bits(view_of(deployment, both), lists)
    expected = (lists.rows == owner) | (topology.owner[lists.values] == owner)
    assert np.array_equal(bits >= 0, expected)
    assert np.array_equal(bits[expected] == 1, real[expected])


@pytest.mark.parametrize("suite", ["sealed", "paper"])
def test_no_coalition_is_weaker_than_the_server_alone(deployment_of: Make, suite: str) -> None:
    """And with an owner it is stronger, in suite `sealed`; in `paper` nothing is left to find."""
    deployment = deployment_of(suite)
    lists, real = lists_and_truth(deployment)
    scores = token_graph.all_scores(lists, deployment.split.n_items)
    alone = max(auc(lists, score, real) for score in scores.values())
    solved = linear_bits.scores(view_of(deployment, SERVER), lists, np.arange(len(lists)))
    found = {
        one.name: [
            line.auc.value
            for line in coalition_audit.lines(deployment, one, lists, scores, solved)
            if line.auc is not None
        ]
        for one in adversaries(deployment)
        if one.server
    }
    # Nobody forgets: with every moment it knows as much, or more.
    assert all(values == sorted(values) for values in found.values())
    last = {name: values[-1] for name, values in found.items()}
    assert len(last) == 5
    assert all(value > alone - 0.03 for value in last.values())
    assert last["server + heaviest owner"] > (0.97 if suite == "paper" else alone + 0.02)


# Final vectors.


def planted(split: Split) -> np.ndarray:
    """Vectors of items that say which users have them."""
    train = split.train
    graph = np.zeros((split.n_items, split.n_users))
    graph[train.items, train.users] = 1
    return graph @ np.random.default_rng(4).normal(size=(split.n_users, 24))


def test_items_with_the_same_users_are_alike(split_with_tastes: Split) -> None:
    lists, real = with_uniform_decoys(split_with_tastes)
    vectors = planted(split_with_tastes)
    assert auc(lists, final_vectors.likeness(lists, vectors), real) > 0.8
    permuted = vectors[np.random.default_rng(1).permutation(len(vectors))]
    assert abs(auc(lists, final_vectors.likeness(lists, permuted), real) - 0.5) < 0.08


def test_one_client_opens_final_vectors_for_the_server(deployment_of: Make) -> None:
    deployment = deployment_of("sealed")
    alone = final_vectors.latest(view_of(deployment, SERVER))
    assert alone is None
    both = Adversary("both", server=True, clients=(1,))
    found = final_vectors.latest(view_of(deployment, both))
    assert found is not None
    assert np.isfinite(found).all()


def test_sums_of_pushes_name_the_items_that_they_are_made_of() -> None:
    draw = np.random.default_rng(3)
    finals = draw.normal(size=(50, 24))
    real = [np.sort(draw.choice(50, 6, replace=False)) for _ in range(5)]
    totals = {user: finals[own].mean(axis=0) for user, own in enumerate(real)}
    candidates = Ragged.from_arrays([np.arange(50)] * 5)
    found = means_of_finals.solved(totals, finals, candidates, np.arange(5))
    truth = np.concatenate([np.isin(np.arange(50), own) for own in real])
    assert auc(candidates, found, truth) > 0.95
    other = means_of_finals.solved(totals, draw.normal(size=(50, 24)), candidates, np.arange(5))
    assert abs(auc(candidates, other, truth) - 0.5) < 0.15


# Owners.


@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+"])
def test_first_pushes_name_short_lists_to_who_knows_the_initial_vectors(
    deployment_of: Make, heaviest: Make, model: str
) -> None:
    deployment = deployment_of("sealed", model)
    owner = heaviest(deployment)
    view = view_of(deployment, Adversary("owner", server=False, clients=(owner,)))
    topology = deployment.record.topology
    neighbours, owned = topology.neighbours[owner], topology.owned[owner]
    builds = model == "lightgcn+"
    initial = deployment.initial["item_users" if builds else "items"]
    elsewhere = np.setdiff1d(np.arange(topology.n_items), owned)

    def found(known: np.ndarray) -> float:
        solved = first_push.solved(
            view, initial, known, np.arange(len(neighbours)), builds_users=builds
        )
        tables = []
        for one in solved:
            scores = np.zeros(topology.n_items)
            scores[one.candidates] = one.scores
            tables.append(scores[elsewhere])
        lists = Ragged.from_arrays([elsewhere] * len(solved))
        truth = [np.isin(elsewhere, deployment.real[user]) for user in neighbours]
        return auc(lists, np.concatenate(tables), np.concatenate(truth))

    # Of LightGCN the factors |U_i|^-½ are not known.
    assert found(np.ones(topology.n_items, dtype=np.bool_)) > (0.8 if builds else 0.7)
    assert found(np.isin(np.arange(topology.n_items), owned)) == 0.5


def test_the_step_after_a_validation_names_positives_of_others(
    deployment_of: Make, heaviest: Make
) -> None:
    """All that is called is right; with the vectors of other items nothing is called."""
    deployment = deployment_of("sealed")
    owner = heaviest(deployment)
    view = view_of(deployment, Adversary("owner", server=False, clients=(owner,)))
    finals = final_vectors.latest(view.before(deployment.validated + 1))
    pushed = after_validation.gradients(view, deployment.validated + 1)
    assert finals is not None
    assert pushed is not None
    users = deployment.record.topology.neighbours[owner]
    called = [
        (int(users[one.whose]), place)
        for one in after_validation.positives(finals, *pushed)
        for place in one.called.tolist()
    ]
    assert len(called) > 5
    assert all(place in deployment.real[user] for user, place in called)
    stale = finals + np.random.default_rng(1).normal(size=finals.shape) * 0.1 * finals.std()
    wrong = after_validation.positives(stale, *pushed)
    assert not any(len(one.called) for one in wrong)


def test_rows_over_steps_say_who_has_an_item_in_suite_paper(deployment_of: Make) -> None:
    deployment = deployment_of("paper", steps=6)
    elsewhere = deployment.record.topology.listed_elsewhere.lengths
    owner = int(np.argmax(np.where(deployment.record.topology.is_owner, elsewhere, -1)))
    view = view_of(deployment, Adversary("owner", server=False, clients=(owner,)))
    found = rows_over_steps.regressed(view)
    assert found is not None
    topology = deployment.record.topology
    users = topology.neighbours[owner][found.handles]
    items = topology.listed_elsewhere[owner][found.senders]
    lists = Ragged.from_arrays([np.arange(len(users))] * len(items))
    truth = np.concatenate(
        [np.array([item in deployment.real[user] for user in users]) for item in items]
    )
    scores = found.scores.reshape(-1)
    assert auc(lists, scores, truth) > 0.9
    draw = np.random.default_rng(2)
    permuted = [found.scores[:, draw.permutation(len(users))].reshape(-1) for _ in range(30)]
    assert abs(np.mean([auc(lists, one, truth) for one in permuted]) - 0.5) < 0.05


# A finished model.


def test_training_pairs_have_higher_scores_in_vectors_that_were_fitted(
    split_with_tastes: Split,
) -> None:
    train = split_with_tastes.train
    items = planted(split_with_tastes)
    users = np.stack([items[train.by_user[user]].mean(axis=0) for user in range(train.n_users)])
    everybody = np.arange(train.n_users)
    real, popularity = train.by_user, train.item_degrees
    guess = membership.against_alike(everybody, users, items, real, popularity)
    assert np.nanmean(user_auc(guess)) > 0.75
    by_popularity = popularity[guess.candidates.values].astype(np.float64)
    assert abs(auc(guess.candidates, by_popularity, guess.real) - 0.5) < 0.2
    noise = np.random.default_rng(0).normal(size=users.shape)
    guess = membership.against_alike(everybody, noise, items, real, popularity)
    assert abs(np.nanmean(user_auc(guess)) - 0.5) < 0.06


def test_attributes_that_decide_a_vector_are_inferred_and_permuted_ones_are_not() -> None:
    draw = np.random.default_rng(0)
    label = draw.integers(2, size=300)
    vectors = draw.normal(size=(300, 8)) + 1.5 * label[:, None] * np.eye(8)[0]
    words = [("F", "M")[one] for one in label]
    found = attributes.infer("gender", vectors, words)
    assert found.auc > 0.8
    assert found.accuracy > found.majority + 0.1
    permuted = attributes.infer("gender", vectors, list(draw.permutation(words)))
    assert abs(permuted.auc - 0.5) < 0.1


def test_attributes_are_read_and_a_bad_file_is_a_typed_error(tmp_path: Any) -> None:
    path = tmp_path / "u.user"
    path.write_text("1|24|M|technician|85711\n2|53|F|other|94043\n")
    assert attributes.read_movielens(path) == {
        "gender": {"1": "M", "2": "F"},
        "age group": {"1": "0 to 24", "2": "50 to 199"},
        "occupation": {"1": "technician", "2": "other"},
    }
    path.write_text("nothing like it\n")
    with pytest.raises(attributes.AttributeFileError, match="expected lines"):
        attributes.read_movielens(path)


# Solvers.


@given(st.integers(0, 2**31), st.integers(1, 30), st.integers(1, 20))
@settings(max_examples=50)
def test_non_negative_solutions_are_where_no_step_helps(seed: int, count: int, width: int) -> None:
    """The conditions of Karush, Kuhn and Tucker: c ≥ 0, slope ≥ 0, and one of both is zero."""
    draw = np.random.default_rng(seed)
    dictionary, target = draw.normal(size=(count, width)), draw.normal(size=width)
    found = non_negative(dictionary, target, 1e-2)
    ridge = 1e-2 * float((dictionary**2).sum()) / count
    slope = dictionary @ (found @ dictionary - target) + ridge * found
    assert (found >= 0).all()
    assert (slope > -2e-3).all()
    assert np.abs(found * slope).max() < 2e-3


def test_nothing_is_a_combination_of_no_candidates() -> None:
    assert not len(non_negative(np.empty((0, 5)), np.ones(5)))


def test_solvers_find_what_was_put_in() -> None:
    draw = np.random.default_rng(6)
    dictionary, truth = draw.normal(size=(30, 40)), np.zeros(30)
    truth[[3, 8, 20]] = (0.5, 1.0, 2.0)
    assert np.allclose(non_negative(dictionary, truth @ dictionary, 1e-12), truth, atol=1e-6)
    weights = draw.normal(size=(2, 30))
    assert np.allclose(least_squares(dictionary, weights @ dictionary, 1e-12), weights, atol=1e-6)
    wide, sparse = draw.normal(size=(200, 40)), np.zeros(200)
    sparse[[5, 60, 150, 151]] = (1.0, -2.0, 0.3, -0.4)
    assert np.allclose(sparsest(wide, sparse @ wide), sparse, atol=1e-5)
