"""A trained model: what it recommends, and that a folder is either whole or an error."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.data import DataError, Ids, Interactions, make_split
from lpgcn.evaluation import Vectors
from lpgcn.evaluation.scorers.scorer import blocks
from lpgcn.model.kernels import Floats
from lpgcn.runtime.runs import recommendations
from lpgcn.runtime.runs.saved_model import FORMAT, ModelCard, ModelError, Recommender

FILES = ("config.json", "ids.json", "scorer.safetensors")


class Plainly:
    """The same scores from a scorer without vectors."""

    kind = "plainly"

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self.n_users, self.n_items = vectors.n_users, vectors.n_items

    def scores(self, users: Int64) -> Floats:
        return np.stack([self._vectors.items @ self._vectors.users[user] for user in users])


def made(seed: int = 0, n_users: int = 5, n_items: int = 9) -> Recommender:
    draw = np.random.default_rng(seed)
    pairs = draw.random((n_users, n_items)) < 0.3
    card = ModelCard(
        format=FORMAT, dataset="d", fingerprint="f", config=Config(), n_users=n_users,
        n_items=n_items,
    )  # fmt: skip
    return Recommender(
        card,
        Vectors(*(draw.standard_normal((n, 4)) for n in (n_users, n_items))),
        Ids.of([f"user {number}" for number in range(n_users)]),
        Ids(np.arange(n_items) * 10),
        Interactions.from_pairs(*pairs.nonzero(), n_users, n_items),
        draw.standard_normal((n_items, 4)),
    )


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(0, 4))
def test_recommends_the_best_items_that_a_user_does_not_have(seed: int, k: int, user: int) -> None:
    model = made(seed)
    scores = (model.vectors.items @ model.vectors.users[user]).tolist()
    unseen = set(range(9)) - set(model.seen.items_of(user).tolist())
    best = sorted(unseen, key=lambda item: -scores[item])[:k]
    found = model.recommend(f"user {user}", k)
    assert [one.item for one in found] == [10 * item for item in best]
    assert [one.score for one in found] == pytest.approx([scores[item] for item in best])


@given(st.integers(0, 2**32), st.integers(0, 4))
def test_what_was_held_out_is_not_recommended(seed: int, user: int) -> None:
    model = made(seed)
    pairs = np.random.default_rng(seed + 1).random((5, 9)) < 0.3
    heldout = Interactions.from_pairs(*pairs.nonzero(), 5, 9)
    had = {*model.seen.items_of(user).tolist(), *heldout.items_of(user).tolist()}
    knowing = replace(model, heldout=heldout)
    every = {10 * item for item in set(range(9)) - had}
    assert {one.item for one in knowing.recommend(f"user {user}")} == every
    many = knowing.recommend_batch([f"user {user}"])
    assert set(many.items) == every
    assert len(knowing.recommend(f"user {user}", keep_seen=True)) == 9


@pytest.mark.parametrize("ids", ["12", b"12", 10, np.int64(10)])
def test_one_id_is_not_several_and_neither_are_its_letters(ids: Any) -> None:
    model = made()
    for ask in (
        lambda: model.recommend(history=ids),
        lambda: model.recommend("user 0", items=ids),
        lambda: model.recommend("user 0", exclude=ids),
        lambda: model.score("user 0", ids),
        lambda: model.recommend_batch(ids),
    ):
        with pytest.raises(ModelError, match="several ids are expected; give \\["):
            ask()


@pytest.mark.parametrize("kind", [np.array, pd.Series, set, iter])
def test_ids_come_in_any_kind_of_collection(kind: Any) -> None:
    model, ids = made(), [20, 50]
    for ask in (
        lambda given: model.recommend(history=given),
        lambda given: model.recommend("user 0", items=given),
        lambda given: model.recommend("user 0", exclude=given),
        lambda given: model.score("user 0", given),
        lambda given: model.fold_in(given).tolist(),
        lambda given: model.recommend_batch(items=given).items.tolist(),
        lambda given: model.recommend_batch(exclude=given).items.tolist(),
    ):
        asked = ask(kind(ids))
        assert sorted(map(str, asked)) == sorted(map(str, ask(ids)))
    users = ["user 0", "user 3"]
    assert len(model.recommend_batch(kind(users))) == len(model.recommend_batch(users))
    with pytest.raises(ModelError, match="empty history"):
        model.recommend(history=kind([]))


def test_saving_overwrites_nothing_unasked(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "config.json").write_text("my own")
    with pytest.raises(ModelError, match=r"has files already, such as config\.json"):
        made().save(mine)
    assert (mine / "config.json").read_text() == "my own"
    made(1).save(tmp_path / "run" / "model")
    with pytest.raises(ModelError, match="folder of a run"):
        made().save(tmp_path / "run", overwrite=True)
    made(2).save(tmp_path / "run" / "model", overwrite=True)
    assert Recommender.load(tmp_path / "run").recommend("user 0") == made(2).recommend("user 0")


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    seed=st.integers(0, 2**32),
    k=st.sampled_from([1, 3, 10**9]),
    only=st.none() | st.lists(st.integers(0, 8), min_size=1),
    exclude=st.lists(st.integers(0, 8), max_size=4),
    keep_seen=st.booleans(),
    with_vectors=st.booleans(),
)
def test_filters_for_one_and_for_many(
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    k: int,
    only: list[int] | None,
    exclude: list[int],
    keep_seen: bool,
    with_vectors: bool,
) -> None:
    model = made(seed)
    if not with_vectors:
        model = replace(model, scorer=Plainly(model.vectors))  # type: ignore[arg-type]
    scores = model.scorer.scores(np.arange(5))
    left = set(range(9) if only is None else only) - set(exclude)
    options: dict[str, Any] = {
        "items": None if only is None else [10 * item for item in only],
        "exclude": [str(10 * item) for item in exclude],
        "keep_seen": keep_seen,
    }
    users = [3, 0, 3, 1]
    # Two users at a time, where a scorer without vectors ranks.
    monkeypatch.setattr(recommendations, "blocks", partial(blocks, buffer_bytes=2 * 8 * 9))
    names = [f"user {user}" for user in users]
    if not left:
        with pytest.raises(ModelError, match="no item is left"):
            model.recommend_batch(names, k, **options)
        return
    batch = model.recommend_batch(names, k, **options)
    rows = list(zip(batch.users, batch.ranks, batch.items, batch.scores, strict=True))
    for user, name in zip(users, names, strict=True):
        allowed = left - (set() if keep_seen else set(model.seen.items_of(user).tolist()))
        best = sorted(allowed, key=lambda item, user=user: -scores[user, item])[:k]
        found = model.recommend(name, k, **options)
        assert [one.item for one in found] == [10 * item for item in best]
        assert [one.score for one in found] == pytest.approx([scores[user, i] for i in best])
        alone = [(name, rank, one.item, one.score) for rank, one in enumerate(found, 1)]
        assert [row for row in rows if row[0] == name] == alone * users.count(user)
    if not keep_seen and only is None and not exclude:
        everybody = model.recommend_batch(k=k)
        assert len(everybody) == sum(len(model.recommend(f"user {u}", k)) for u in range(5))


def test_a_new_user_is_known_by_its_items() -> None:
    model = made(3)
    assert model.folding is not None
    vector = model.folding[[2, 5]].sum(axis=0) / np.sqrt(2)
    np.testing.assert_allclose(model.fold_in([50, 20, 50]), vector)
    scores = model.vectors.items @ vector
    for keep_seen, left in ((False, {*range(9)} - {2, 5}), (True, {*range(9)})):
        best = sorted(left, key=lambda item: -scores[item])[:4]
        found = model.recommend(history=[20, 50], k=4, keep_seen=keep_seen)
        assert [one.item for one in found] == [10 * item for item in best]
    for wrong, message in (
        ({"history": []}, "empty history"),
        ({"history": [20], "user": "user 1"}, "and a history"),
        ({}, "found no user"),
    ):
        with pytest.raises(ModelError, match=message):
            model.recommend(**wrong)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="unknown item 21"):
        model.recommend(history=[21])
    with pytest.raises(ModelError, match="cannot tell a user by its items"):
        replace(model, folding=None).recommend(history=[20])


def test_items_that_were_not_trained_say_nothing_about_a_user() -> None:
    model = made(3)
    assert model.folding is not None
    model.folding[[2, 5]] = 0
    with pytest.raises(ModelError, match=r"not trained, such as 20: .* expected one trained item"):
        model.recommend(history=[50, 20])
    assert model.recommend(history=[50, 20, 70])


def test_every_model_of_a_backbone_is_ranked_by_another_length_exponent() -> None:
    def named(model: str) -> Recommender:
        one = made(4)
        return replace(one, card=structs.replace(one.card, config=Config(model=model)))

    expected = named("lightgcn+").with_length_exponent(0.5).recommend("user 1")
    assert expected != made(4).recommend("user 1")
    assert named("lp-gcn").with_length_exponent(0.5).recommend("user 1") == expected
    with pytest.raises(ModelError, match="bpr has no length-exponent"):
        named("bpr").with_length_exponent(0.5)


@pytest.mark.parametrize("part", ["train", "validation"])
def test_only_what_was_held_out_is_measured(part: Any) -> None:
    split = make_split([(user, item) for user in range(5) for item in range(9)])
    model = made()
    card = structs.replace(model.card, fingerprint=split.fingerprint)
    assert replace(model, card=card).evaluate(split, [20], "valid").n_users == 5
    with pytest.raises(ModelError, match=f"found the part '{part}'; expected .* valid or test"):
        replace(model, card=card).evaluate(split, [20], part)


def test_scores_and_neighbours() -> None:
    model = made(4)
    users, items = model.vectors.users, model.vectors.items
    wanted = [80, 0, 80, 30]
    found = model.score("user 2", wanted)
    assert [one.item for one in found] == wanted
    expected = items[[8, 0, 8, 3]] @ users[2]
    assert [one.score for one in found] == pytest.approx(expected.tolist())
    assert model.score("user 2", []) == []
    for vectors, ids, near in (
        (items, model.item_ids, model.similar_items(40, 3)),
        (users, model.user_ids, model.similar_users("user 4", 3)),
    ):
        lengths = np.linalg.norm(vectors, axis=1)
        cosines = vectors @ vectors[4] / (lengths * lengths[4])
        best = sorted({*range(len(vectors))} - {4}, key=lambda one: -cosines[one])[:3]
        assert [one.id for one in near] == [ids[one] for one in best]
        assert [one.similarity for one in near] == pytest.approx(cosines[best].tolist())


def test_what_all_users_have_alike_makes_nothing_similar() -> None:
    plain = made(4)
    users, items = plain.vectors.users, plain.vectors.items
    bias = np.hstack((items, 100 * np.arange(9.0)[:, None]))
    biased = replace(plain, scorer=Vectors(np.hstack((users, np.ones((5, 1)))), bias))
    assert biased.similar_items(40) == plain.similar_items(40)
    assert biased.similar_users("user 4") == plain.similar_users("user 4")
    popular = replace(plain, scorer=Vectors(np.ones((5, 1)), items[:, :1]))
    for ask in (lambda: popular.similar_items(40), lambda: popular.similar_users("user 4")):
        with pytest.raises(ModelError, match="same vector for every user"):
            ask()
    alone = replace(plain, scorer=Vectors(users[:1], items))
    assert alone.similar_items(40) == plain.similar_items(40)


def test_no_more_is_ranked_than_there_is() -> None:
    """k of all of these would be a table of hundreds of gigabytes."""
    model = made()
    assert len(model.recommend("user 1", 10**9, keep_seen=True)) == 9
    assert len(model.recommend_batch(k=10**11, keep_seen=True)) == 5 * 9
    assert len(model.similar_items(0, 10**11)) == 8


def test_a_user_that_is_not_there() -> None:
    with pytest.raises(DataError, match="did you mean 'user 3'"):
        made().recommend("User 3")


def test_a_model_survives_its_folder(tmp_path: Path) -> None:
    model = replace(made(), heldout=made(1).seen)
    model.save(tmp_path / "model")
    for folder in (tmp_path, tmp_path / "model", str(tmp_path)):
        loaded = Recommender.load(folder)
        assert loaded.card == model.card
        assert (loaded.user_ids, loaded.item_ids) == (model.user_ids, model.item_ids)
        assert np.array_equal(loaded.vectors.users, model.vectors.users)
        assert np.array_equal(loaded.vectors.items, model.vectors.items)
        assert np.array_equal(loaded.seen.keys, model.seen.keys)
        assert np.array_equal(loaded.heldout.keys, made(1).seen.keys)  # type: ignore[union-attr]
        assert loaded.folding is not None
        assert np.array_equal(loaded.folding, model.folding)
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == list(FILES)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_or_damaged_file_is_an_error(tmp_path: Path, name: str) -> None:
    made().save(tmp_path)
    whole = (tmp_path / name).read_bytes()
    for part in (whole[: len(whole) // 2], b"", b"{}"):
        (tmp_path / name).write_bytes(part)
        with pytest.raises(ModelError, match="damaged"):
            Recommender.load(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ModelError, match=f"no finished model: {name} missing"):
        Recommender.load(tmp_path)


@settings(max_examples=60)
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@pytest.mark.parametrize("name", ["ids.json", "scorer.safetensors"])
def test_a_single_bit_that_flipped_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, place: float, bit: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "flipped"
    made().save(folder, overwrite=True)
    content = bytearray((folder / name).read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    (folder / name).write_bytes(content)
    with pytest.raises(ModelError, match=f"damaged: {name} was changed since it was written"):
        Recommender.load(folder)


def test_a_model_of_another_version_is_an_error(tmp_path: Path) -> None:
    made().save(tmp_path)
    (tmp_path / "config.json").write_text('{"format": 99, "new": true}')
    with pytest.raises(ModelError, match=f"has format 99, expected {FORMAT}"):
        Recommender.load(tmp_path)
