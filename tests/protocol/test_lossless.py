"""The federation gives the bits of the centralised model: parameters, loss and metrics."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.data.features import sized
from lpgcn.errors import LpgcnError
from lpgcn.model.backbones import BACKBONES
from lpgcn.model.cooccurrence import Cooccurrence
from lpgcn.model.grid import GridError
from lpgcn.model.sampling import SamplingError, places
from lpgcn.plan import Plan, TokenGraph
from lpgcn.plan.partition import installed
from lpgcn.protocol.client.client import Client
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.server.script import Scope
from lpgcn.ragged import Ragged
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.hosts.one_process import profiles
from lpgcn.runtime.planning import planner_for

Pairs = list[tuple[int, int]]
Make = Callable[..., Any]
Check = Callable[..., None]
Planner = Callable[[TokenGraph], Plan]
SUITES = ("sealed", "paper")
MODELS = ("lightgcn", "lightgcn+", "ngcf")
EVERY_MODEL = tuple(BACKBONES)
TINY = Config(dim=3, layers=2, lr=0.05, reg=0.05, batch_size=7, at=(2,), virtual_items="2", seed=5)
POOLED = TINY.changed(loss="softmax", batch_size="full", negatives=4, answers=3)
TRAIN: Pairs = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 3), (3, 2), (3, 3), (3, 4)]
HELD_OUT: Pairs = [(0, 3), (1, 1), (1, 4), (3, 0)]
some_models = pytest.mark.parametrize("model", MODELS)
every_model = pytest.mark.parametrize("model", EVERY_MODEL)
both_suites = pytest.mark.parametrize("suite", SUITES)
both_losses = pytest.mark.parametrize("base", [TINY, POOLED], ids=["bpr", "softmax"])


@pytest.fixture(scope="session")
def lossless(centralized_of: Make, assert_same: Check) -> Check:
    """After some steps and after one more no parameter, Adam state, loss or metric differs at
    all. The loss is that since the last time. Who diverges does so alike."""

    def check(*federations: Any, steps: int = 3) -> None:
        split, config = federations[0].split, federations[0].config
        reference = centralized_of(split, config)
        parts = [part for part in ("valid", "test") if len(split.parts[part])]
        per_epoch = reference.steps_per_epoch
        for one in federations:
            one.initialise()
            assert one.server.batches.steps == per_epoch
        for first, last in ((0, steps), (steps, steps + 1)):
            for number in range(first, last):
                step = (*divmod(number, per_epoch), config.lr)
                try:
                    reference.step(*step)
                except GridError:
                    # What diverges in a data centre diverges in a federation, in the same step.
                    for one in federations:
                        with pytest.raises(LpgcnError, match="does not fit the grid"):
                            one.server.step(*step)
                    return
                for one in federations:
                    one.server.step(*step)
            state, loss = reference.state(), reference.take_loss()
            measured = [reference.measure(part) for part in parts]
            for one in federations:
                assert_same(one.state(), state)
                assert one.server.take_loss() == loss
                assert [one.server.measure(part) for part in parts] == measured

    return check


@st.composite
def graphs(draw: st.DrawFn) -> tuple[Pairs, int, int, Pairs]:
    """Every user has an item; some items have one user or none; some pairs are held out."""
    n_users, n_items = draw(st.integers(1, 6)), draw(st.integers(4, 10))
    pairs = st.tuples(st.integers(0, n_users - 1), st.integers(0, n_items - 3))
    train = {(user, user % 2) for user in range(n_users)} | draw(st.sets(pairs, max_size=14))
    everything = {(user, item) for user in range(n_users) for item in range(n_items)}
    heldout = draw(st.sets(st.sampled_from(sorted(everything - train)), max_size=5))
    return sorted(train), n_users, n_items, sorted(heldout)


def test_a_federation_diverges_where_a_data_centre_does(
    federation_of: Make, split_of: Make, lossless: Check
) -> None:
    train, heldout = [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (1, 4)], [(0, 3), (1, 6)]
    config = TINY.changed(
        model="ngcf", layers=3, dim=16, dtype="float64", virtual_items="0", batch_size=14,
        seed=39523342,
    )  # fmt: skip
    lossless(federation_of(split_of(train, 2, 7, heldout), config))


@pytest.mark.parametrize("exponent", [0.0, 0.25, 1.0])
def test_predictions_are_ranked_by_the_lengths_that_are_asked_for(
    federation_of: Make, split_of: Make, centralized_of: Make, exponent: float
) -> None:
    split = split_of(TRAIN, 4, 5, HELD_OUT)
    federation = federation_of(split, POOLED.changed(length_exponent=exponent))
    federation.train(2)
    federation.server.predict(range(4))
    reference = centralized_of(split, federation.config)
    for number in range(2):
        reference.step(number, 0, federation.config.lr)
    expected = reference.present()
    lengths = np.linalg.norm(expected.items, axis=1)
    scores = expected.users @ expected.items.T * lengths ** (exponent - 1)
    for user, client in enumerate(federation.clients):
        own, items, seen = client.party.prediction()
        assert own.tobytes() == expected.users[user].tobytes()
        assert items.tobytes() == expected.items.tobytes()
        found = client.party.recommend(5)
        assert {item for item, _ in found} == set(range(5)) - set(seen.tolist())
        assert [score for _, score in found] == sorted((one for _, one in found), reverse=True)
        for item, score in found:
            assert score == pytest.approx(scores[user, item], rel=1e-5)


def any_plan(owners: random.Random) -> Planner:
    """Every item with an owner at random."""

    def plan(graph: TokenGraph) -> Plan:
        drawn = [owners.randrange(graph.n_clients) for _ in range(graph.n_tokens)]
        return Plan(np.array(drawn, dtype=np.int64), "any")

    return plan


@settings(max_examples=40, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    graph=graphs(),
    model=st.sampled_from(MODELS),
    suite=st.sampled_from(SUITES),
    layers=st.integers(1, 3),
    dim=st.sampled_from([1, 3, 16]),
    dtype=st.sampled_from(["float32", "float64"]),
    virtual_items=st.sampled_from(["0", "1", "5", "1.0x", "3.0x"]),
    length_exponent=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]),
    virtual_draw=st.sampled_from(["uniform", "popularity"]),
    batch_size=st.integers(1, 20),
    mask=st.sampled_from(["train", "train+valid"]),
    seed=st.integers(0, 2**40),
    owners=st.randoms(use_true_random=False),
    features=st.sampled_from([(0, 0), (0, 0), (0, 4), (9, 0), (1, 1)]),
)
def test_any_federation_gives_the_bits_of_the_centralised_model(
    federation_of: Make,
    split_of: Make,
    described: Make,
    lossless: Check,
    graph: tuple[Pairs, int, int, Pairs],
    owners: random.Random,
    features: tuple[int, int],
    **settings: Any,
) -> None:
    """With the paper's plan, and with any: what holds for arbitrary owners holds for planners."""
    split = described(split_of(*graph), *features)
    config = sized(TINY.changed(**settings), split)
    lossless(federation_of(split, config), federation_of(split, config, any_plan(owners)))


@settings(max_examples=40, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    graph=graphs(),
    model=st.sampled_from(MODELS),
    suite=st.sampled_from(SUITES),
    layers=st.integers(1, 3),
    dim=st.sampled_from([1, 3, 16]),
    dtype=st.sampled_from(["float32", "float64"]),
    virtual_items=st.sampled_from(["0", "1", "5", "1.0x", "3.0x"]),
    length_exponent=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]),
    sizes=st.integers(1, 13).flatmap(
        lambda negatives: st.tuples(st.just(negatives), st.none() | st.integers(1, negatives))
    ),
    temperature=st.sampled_from([0.08, 0.12, 0.5, 1.0, 100.0]),
    negative_weight=st.sampled_from([0.25, 1.0, 300.0]),
    smallest_group=st.integers(1, 3),
    groups=st.integers(1, 4),
    seed=st.integers(0, 2**40),
    owners=st.randoms(use_true_random=False),
)
def test_any_federation_with_pools_gives_the_bits_of_the_centralised_model(
    federation_of: Make,
    split_of: Make,
    lossless: Check,
    graph: tuple[Pairs, int, int, Pairs],
    sizes: tuple[int, int | None],
    smallest_group: int,
    owners: random.Random,
    **settings: Any,
) -> None:
    """Pools with the users' own items in them, of all items there are, and of a single one. A group
    of one has nobody to hide among, and is no group outside of this test."""
    pools = dict(zip(("negatives", "answers"), sizes, strict=True))
    split, config = split_of(*graph), POOLED.changed(**pools, **settings)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("lpgcn.model.batches.smallest_group", lambda _: smallest_group)
        lossless(federation_of(split, config), federation_of(split, config, any_plan(owners)))


@pytest.mark.any_two
@both_losses
@both_suites
@every_model
def test_defences_lose_nothing(
    federation_of: Make, split_of: Make, lossless: Check, tmp_path: Path, base: Config, suite: str,
    model: str,
) -> None:  # fmt: skip
    """Coherent virtual items, lists of few sizes, and items with one user out of the exchange."""
    path = tmp_path / "together.npz"
    profiles = [np.array(one) for one in ([0, 1, 2], [2, 3, 4], [5, 6, 7, 8])]
    Cooccurrence.counted(Ragged.from_arrays(profiles), 30).write(path)
    split = split_of(TRAIN, 4, 30, HELD_OUT)
    config = base.changed(
        model=model, suite=suite, virtual_items="1", virtual_draw="coherent",
        cooccurrence=str(path), list_sizes="bucketed", min_degree=2,
    )  # fmt: skip
    federation = federation_of(split, config)
    lossless(federation)
    assert set(federation.server.topology.listed.lengths.tolist()) == {8}
    without = federation_of(split, config.changed(min_degree=1))
    without.train(3)
    changed = without.state()["items.parameter"]
    assert not np.array_equal(changed, federation.state()["items.parameter"])


@both_suites
def test_an_item_of_one_user_says_nothing_forward_with_a_smallest_degree_of_two(
    federation_of: Make, split_of: Make, suite: str
) -> None:
    """Its final vector is its own parameter's share, and no user's vector is in it."""
    config = TINY.changed(suite=suite, min_degree=2, virtual_items="0", model="lightgcn")
    federation = federation_of(split_of(TRAIN, 4, 9, [(0, 3)]), config)
    federation.train(1)
    federation.server.measure("valid")
    for client in federation.clients:
        owned = client.party.owned_items()
        for row in np.flatnonzero(np.isin(owned, [1, 4])):
            initial = client.party.tables()["items"].parameter[row]
            final = client.party.finals()["items"][row]
            assert np.allclose(final, initial / (config.layers + 1), atol=1e-6)


@both_suites
@pytest.mark.parametrize("answers", [None, 2])
def test_groups_of_different_sizes_with_a_pool_each(
    federation_of: Make, split_of: Make, lossless: Check, suite: str, answers: int | None
) -> None:
    """Of 32 clients and more, some of whose pools have a place in common."""
    n_users, n_items = 97, 30
    train = [(user, (5 * user + way * way) % n_items) for user in range(n_users) for way in (0, 1)]
    split = split_of(train, n_users, n_items, [(0, 29)])
    config = POOLED.changed(
        suite=suite, layers=1, dim=2, groups=3, negatives=12, answers=answers, virtual_items="1"
    )
    federation = federation_of(split, config)
    lossless(federation, steps=1)
    batch = federation.server.batches.draw(0, 0)
    assert sorted(Counter(batch.group.tolist()).values()) == [32, 32, 33]
    answered = [pool[: answers or 12].tolist() for pool in batch.pools]
    assert len(set(map(tuple, answered))) == 3
    assert len({place for pool in batch.pools for place in pool.tolist()}) < 3 * 12


@both_suites
def test_as_many_groups_as_items_with_an_answer_each(
    federation_of: Make,
    split_of: Make,
    lossless: Check,
    monkeypatch: pytest.MonkeyPatch,
    suite: str,
) -> None:
    """A table of sums by group has then the shape of one by item."""
    monkeypatch.setattr("lpgcn.model.batches.smallest_group", lambda _: 2)
    split = split_of([(user, user % 3) for user in range(8)], 8, 4)
    config = POOLED.changed(suite=suite, groups=4, negatives=2, answers=1, virtual_items="0")
    federation = federation_of(split, config)
    lossless(federation, steps=3)
    about = [federation.server.batches.draw(epoch, 0).answers.values.tolist() for epoch in range(4)]
    assert any(places != [0, 1, 2, 3] for places in about)


@some_models
@pytest.mark.parametrize("planner", ["cover", "greedy", "partition"])
def test_our_planners_lose_nothing(
    federation_of: Make, split_of: Make, lossless: Check, planner: str, model: str
) -> None:
    if planner == "partition" and not installed():
        pytest.skip("Mt-KaHyPar is not installed")
    train = [(user, (5 * user + 3 * way) % 30) for user in range(20) for way in range(6)]
    split = split_of(sorted(set(train)), 20, 30, [(0, 29)])
    config = TINY.changed(model=model, planner=planner, max_load="12", virtual_items="1")
    federation = federation_of(split, config, planner_for(split, config))
    lossless(federation)
    assert federation.server.plan.planner == planner


@some_models
@both_suites
def test_other_handles_and_mask_peers_give_the_same_bits(
    federation_of: Make,
    split_of: Make,
    lossless: Check,
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    suite: str,
) -> None:
    """They are drawn anew in every run, and here known to be different."""
    seeds = count(1)
    monkeypatch.setattr("lpgcn.protocol.server.term.secrets.randbits", lambda _: next(seeds))
    train = [(user, (user + way) % 9) for user in range(8) for way in (0, 1, 4)]
    split, config = split_of(train, 8, 11, [(0, 10)]), TINY.changed(model=model, suite=suite)
    made = [federation_of(split, config) for _ in range(3)]
    lossless(*made)
    for order in ("neighbours", "by_client"):
        known = {tuple(getattr(one.server.topology, order).values.tolist()) for one in made}
        assert len(known) == len(made)


@some_models
@both_suites
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_items_of_one_user_and_items_that_nobody_lists(
    federation_of: Make, split_of: Make, lossless: Check, model: str, suite: str, dtype: str
) -> None:
    """Items 1 and 4 have one user; with α = 0 nobody lists 5 to 8, but some are negatives."""
    split = split_of(TRAIN, 4, 9, HELD_OUT)
    config = TINY.changed(model=model, suite=suite, dtype=dtype, virtual_items="0")
    federation = federation_of(split, config)
    lossless(federation, steps=4)
    listed = np.unique(federation.server.topology.listed.values)
    assert len(listed) == 5


def owned_by(split: Split, config: Config, owner_of: Callable[[Sampler, int], int]) -> Planner:
    """A planner that knows items by their ids, as no server could."""
    sampler = Sampler(split.train, config)

    def planner(graph: TokenGraph) -> Plan:
        owners = [owner_of(sampler, int(item)) for item in sampler.catalogue]
        return Plan(np.array(owners, dtype=np.int64), "test")

    return planner


def lists(sampler: Sampler, user: int, item: int) -> str:
    if item in sampler.real[user]:
        return "real"
    return "virtual" if item in sampler.virtual[user] else "not listed"


RELATIONS = ("real", "virtual", "not listed")


def last_to_whom(sampler: Sampler, item: int, relation: str) -> int:
    """The last client to which the item is so; an item without one goes to client 0."""
    users = range(len(sampler.real))
    return max((user for user in users if lists(sampler, user, item) == relation), default=0)


@some_models
@both_suites
@pytest.mark.parametrize("relation", RELATIONS)
def test_owners_whose_items_are_all_real_or_virtual_to_them_or_not_listed(
    federation_of: Make, split_of: Make, lossless: Check, model: str, suite: str, relation: str
) -> None:
    split = split_of(TRAIN, 4, 9, HELD_OUT)
    config = TINY.changed(model=model, suite=suite, virtual_items="3")
    planner = owned_by(split, config, lambda sampler, item: last_to_whom(sampler, item, relation))
    federation = federation_of(split, config, planner)
    lossless(federation, steps=4)
    sampler, owner = Sampler(split.train, config), federation.server.plan.owner
    place = places(sampler.catalogue)
    found = [{lists(sampler, u, i) for i in range(9) if owner[place[i]] == u} for u in range(4)]
    assert sum(kinds == {relation} for kinds in found) >= 2


def situations(split: Split, config: Config, owner: np.ndarray, steps: int) -> Counter[str]:
    """What happened in the batches of a run, by kind."""
    sampler, found = Sampler(split.train, config), Counter[str]()
    place, n_items = places(sampler.catalogue), split.n_items
    for done in range(steps):
        batch = sampler.batches.draw(*divmod(done, sampler.batches.steps))
        pairs = sampler.pairs(batch)
        for user, first, second in zip(batch.users, pairs.positive, pairs.negative, strict=True):
            positive, negative = int(pairs.items[first]), int(pairs.items[second]) - n_items
            owners = owner[place[positive]], owner[negative]
            found["positive of its own"] += owners[0] == user
            found["negative of its own"] += owners[1] == user
            found["both of one owner"] += owners[0] == owners[1] != user
            found["user of one item"] += len(sampler.real[int(user)]) == 1
            found["negative that nobody has"] += not split.train.item_degrees[
                sampler.catalogue[negative]
            ]
        found["repeated positive"] += len(pairs.positive) - len(np.unique(pairs.positive))
        found["repeated negative"] += len(pairs.negative) - len(np.unique(pairs.negative))
        found["client outside the batch"] += split.n_users - len(np.unique(batch.users))
    return found


@pytest.mark.any_two
@every_model
@both_suites
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_everything_that_can_happen_in_a_batch(
    federation_of: Make, split_of: Make, lossless: Check, model: str, suite: str, layers: int
) -> None:
    """Users of a single item, repeated samples, positives and negatives of the client's own."""
    split = split_of([*TRAIN, (4, 1), (5, 5)], 6, 10, HELD_OUT)
    config = TINY.changed(model=model, suite=suite, layers=layers, virtual_items="1")

    def owner_of(sampler: Sampler, item: int) -> int:
        return last_to_whom(sampler, item, RELATIONS[0 if item < 4 else 2])

    federation = federation_of(split, config, owned_by(split, config, owner_of))
    lossless(federation, steps=6)
    found = situations(split, config, federation.server.plan.owner, 6)
    assert all(found.values()), found
    assert len(found) == 8


@some_models
@both_suites
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_owners_that_a_batch_does_not_touch(
    federation_of: Make, split_of: Make, lossless: Check, model: str, suite: str, layers: int
) -> None:
    """Each of three clients owns an item that it really has; a batch is about one user."""
    split = split_of([(0, 0), (1, 0), (2, 1), (3, 1), (4, 2), (5, 2)], 6, 6)
    config = TINY.changed(model=model, suite=suite, layers=layers, virtual_items="0", batch_size=1)
    planner = owned_by(split, config, lambda _, item: 2 * (item % 3))
    federation = federation_of(split, config, planner)
    lossless(federation, steps=8)
    touched = Counter[int]()
    topology, batches = federation.server.topology, federation.server.batches
    for done in range(8):
        batch = batches.draw(*divmod(done, batches.steps))
        owners = topology.owner[Scope.of_batch(topology, batch).items]
        touched.update({*owners.tolist(), *batch.users.tolist()})
    assert all(0 < touched[owner] < 8 for owner in (0, 2, 4)), touched


@pytest.mark.any_two
@both_losses
@every_model
@both_suites
def test_one_client_owns_everything(
    federation_of: Make, split_of: Make, lossless: Check, base: Config, model: str, suite: str
) -> None:
    split = split_of(TRAIN, 4, 9, HELD_OUT)
    config = base.changed(model=model, suite=suite)
    federation = federation_of(split, config, owned_by(split, config, lambda _, __: 2))
    lossless(federation)
    assert federation.server.plan.convolution_clients.tolist() == [2]


@some_models
@both_suites
@pytest.mark.parametrize("virtual_items", ["0", "6", "4.0x"])
def test_more_virtual_items_than_items(
    federation_of: Make,
    split_of: Make,
    lossless: Check,
    model: str,
    suite: str,
    virtual_items: str,
) -> None:
    """α exceeds every |I_u| and is cut so that one item stays unlisted."""
    split = split_of(TRAIN, 4, 6, HELD_OUT)
    config = TINY.changed(model=model, suite=suite, virtual_items=virtual_items)
    federation = federation_of(split, config)
    lossless(federation)
    expected = {2, 3} if virtual_items == "0" else {5}
    assert set(federation.server.topology.listed.lengths.tolist()) == expected


@both_losses
@some_models
@both_suites
@pytest.mark.parametrize("layers", [1, 3])
def test_one_client_in_all(
    federation_of: Make,
    split_of: Make,
    lossless: Check,
    base: Config,
    model: str,
    suite: str,
    layers: int,
) -> None:
    split = split_of([(0, 1), (0, 4)], 1, 6, [(0, 2)])
    lossless(federation_of(split, base.changed(model=model, suite=suite, layers=layers)))


@both_losses
@every_model
def test_both_suites_end_in_the_same_bits(
    federation_of: Make, split_of: Make, assert_same: Check, base: Config, model: str
) -> None:
    split, made = split_of(TRAIN, 4, 9, HELD_OUT), []
    for suite in SUITES:
        federation = federation_of(split, base.changed(model=model, suite=suite))
        federation.train(4)
        made.append(federation)
    assert_same(made[0].state(), made[1].state())
    assert made[0].server.measure("test") == made[1].server.measure("test")


@pytest.mark.any_two
@both_losses
@every_model
@both_suites
@pytest.mark.parametrize("features", [(3, 0), (0, 2), (1, 9)])
def test_features_of_users_and_items(
    federation_of: Make,
    split_of: Make,
    described: Make,
    lossless: Check,
    base: Config,
    model: str,
    suite: str,
    features: tuple[int, int],
) -> None:
    """What they are mapped by is stepped like any dense weight."""
    split = described(split_of(TRAIN, 4, 9, HELD_OUT), *features)
    federation = federation_of(split, sized(base.changed(model=model, suite=suite), split))
    lossless(federation)
    maps = {name for name in federation.state() if "_map" in name and "mean" in name}
    expected = {"user_map.mean": features[0], "item_map.mean": features[1]}
    assert maps == {name for name, width in expected.items() if width}
    assert all(federation.state()[name].any(axis=1).all() for name in maps)


def test_the_backbone_of_the_documentation_loses_nothing(
    federation_of: Make, split_of: Make, lossless: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "docs" / "examples")
    split = split_of(TRAIN, 4, 9, HELD_OUT)
    lossless(federation_of(split, TINY.changed(model="residual:Residual")))


def test_who_has_no_items_is_refused_at_the_start_and_not_named(
    federation_of: Make, split_of: Make, centralized_of: Make
) -> None:
    """In all ways to run alike, and by a client on its own."""
    split = split_of([(0, 0), (1, 1), (3, 2)], 4, 9)
    said = set()
    for make in (federation_of, centralized_of):
        with pytest.raises(SamplingError, match="1 of 4 users") as refused:
            make(split, TINY)
        said.add(str(refused.value))
    assert len(said) == 1
    (_, profile), *_ = profiles(split_of(TRAIN, 4, 9), TINY)
    alone = msgspec.structs.replace(msgspec.msgpack.decode(profile, type=Profile), train=b"")
    with pytest.raises(SamplingError, match="a client"):
        Client(msgspec.msgpack.encode(alone))
