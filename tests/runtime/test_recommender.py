"""A trained model: what it recommends, and that a folder is either whole or an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.config import Config
from lpgcn.data import DataError, Ids, Interactions
from lpgcn.evaluation import Vectors
from lpgcn.runtime.runs.saved_model import FORMAT, ModelCard, ModelError, Recommender

FILES = ("config.json", "ids.json", "scorer.safetensors")


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
    )


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(0, 4))
def test_recommends_the_best_items_that_a_user_does_not_have(seed: int, k: int, user: int) -> None:
    model = made(seed)
    scores = (model.vectors.items @ model.vectors.users[user]).tolist()
    unseen = set(range(9)) - set(model.seen.items_of(user).tolist())
    best = sorted(unseen, key=lambda item: -scores[item])[:k]
    found = model.recommend(f"user {user}", k)
    assert [one.item for one in found] == [10 * item for item in best]
    assert [one.score for one in found] == pytest.approx([scores[item] for item in best])


def test_a_user_that_is_not_there() -> None:
    with pytest.raises(DataError, match="did you mean 'user 3'"):
        made().recommend("User 3")


def test_a_model_survives_its_folder(tmp_path: Path) -> None:
    model = made()
    model.save(tmp_path / "model")
    for folder in (tmp_path, tmp_path / "model", str(tmp_path)):
        loaded = Recommender.load(folder)
        assert loaded.card == model.card
        assert (loaded.user_ids, loaded.item_ids) == (model.user_ids, model.item_ids)
        assert np.array_equal(loaded.vectors.users, model.vectors.users)
        assert np.array_equal(loaded.vectors.items, model.vectors.items)
        assert np.array_equal(loaded.seen.keys, model.seen.keys)
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
    with pytest.raises(ModelError, match=f"no finished model .*{name}"):
        Recommender.load(tmp_path)


def test_a_model_of_another_version_is_an_error(tmp_path: Path) -> None:
    made().save(tmp_path)
    (tmp_path / "config.json").write_text('{"format": 99, "new": true}')
    with pytest.raises(ModelError, match=f"has format 99, expected {FORMAT}"):
        Recommender.load(tmp_path)
