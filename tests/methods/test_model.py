"""`lpgcn.Model` on data in memory has the bits of a run on files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

import lpgcn
from lpgcn.data import Columns, DataError, Split, Splitting, make_split
from lpgcn.methods.method import MethodError
from lpgcn.runtime.runs.run_folder import RunFolder
from lpgcn.runtime.runs.source import SourceError

SETTINGS: dict[str, Any] = {"layers": 2, "dim": 8, "batch_size": 100, "epochs": 3, "eval_every": 1}


@pytest.fixture(scope="module")
def pairs() -> list[tuple[int, int]]:
    return [
        (user, 3 * ((7 * user + item * item + item) % 41))
        for user in range(30)
        for item in range(9)
    ]


@pytest.fixture(scope="module")
def whole(pairs: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a file."""
    folder = tmp_path_factory.mktemp("file")
    lines = [f"{user},{item}\n" for user, item in sorted(set(pairs))]
    (folder / "mine.csv").write_text("user_id,item_id\n" + "".join(lines))
    source = lpgcn.Source(dataset="mine", train=str(folder / "mine.csv"), split_seed=3)
    lpgcn.train(source, lpgcn.Config(seed=5, **SETTINGS), out=folder / "run")
    return folder / "run"


def every_way(pairs: list[tuple[int, int]]) -> dict[str, Any]:
    distinct = sorted(set(pairs))
    users, items = (np.array(column) for column in zip(*distinct, strict=True))
    named = {"user_id": users, "item_id": items}
    shape = (40, 200)
    return {
        "matrix": scipy.sparse.coo_array((np.ones(len(users)), (users, items)), shape=shape),
        "pandas": pd.DataFrame(named).sample(frac=1, random_state=1),
        "polars": pl.DataFrame(named),
        "pairs": distinct,
        "arrays": (users, items),
    }


@pytest.mark.parametrize("way", ["matrix", "pandas", "polars", "pairs", "arrays", "split"])
def test_bits_of_data_in_memory_are_those_of_a_file(
    pairs: list[tuple[int, int]], whole: Path, way: str
) -> None:
    splitting = Splitting(seed=3)
    model = lpgcn.Model("lightgcn+", seed=5, **SETTINGS)
    if way == "split":
        model.fit(make_split(every_way(pairs)["matrix"], splitting=splitting))
    else:
        model.fit(every_way(pairs)[way], splitting=splitting)
    expected = lpgcn.Recommender.load(whole)
    assert model.vectors.users.tobytes() == expected.vectors.users.tobytes()
    assert model.vectors.items.tobytes() == expected.vectors.items.tobytes()
    assert (model.recommender.user_ids, model.recommender.item_ids) == (
        expected.user_ids,
        expected.item_ids,
    )
    summary = RunFolder(whole).summary()
    assert summary is not None
    assert model.summary.test == summary.test
    assert model.summary.fingerprint == summary.fingerprint
    assert model.recommend(7, 5) == expected.recommend(7, 5)


def test_a_run_on_data_in_memory_can_be_measured_and_resumed(
    pairs: list[tuple[int, int]], tmp_path: Path
) -> None:
    frame = pd.DataFrame([(f"user {u}", f'"{i}", \n') for u, i in pairs], columns=["who", "what"])
    columns = Columns("who", "what")
    config, out = lpgcn.Config(**SETTINGS), tmp_path / "run"
    first = lpgcn.train(frame, config, out=out, columns=columns)
    split = RunFolder(out).describe().source.open()
    assert split.fingerprint == first.fingerprint
    model = lpgcn.Recommender.load(out)
    assert model.evaluate(split, config.cutoffs).values == first.test
    longer = config.changed(epochs=4)
    again = lpgcn.train(frame, longer, out=out, columns=columns, resume=True)
    assert again.epochs == 4
    by_source = lpgcn.train(RunFolder(out).describe().source, longer, out=out, resume=True)
    assert by_source == again
    kept = np.load(out / "test_users.npz")
    for name, value in again.test.items():
        assert kept[name].mean() == pytest.approx(value, abs=1e-9)
    assert kept["user"].tolist() == [split.user_ids[u] for u in np.unique(split.test.users)]


def test_data_that_files_cannot_hold_is_refused(tmp_path: Path) -> None:
    whole = make_split([(user, item) for user in range(4) for item in range(12)])
    more = lpgcn.data.Ids.of(range(13))

    def widened(part: lpgcn.Interactions) -> lpgcn.Interactions:
        return lpgcn.Interactions(part.users, part.items, 4, 13)

    parts = [widened(part) for part in whole.parts.values()]
    strings = lpgcn.data.Ids(np.array(["1", "2", "3", "4"]))
    for split, message in (
        (
            Split("wide", *parts, whole.user_ids, more),
            "1 items of wide have no interactions",
        ),
        (
            Split("s", *whole.parts.values(), strings, whole.item_ids),
            "ids of users of s .* whole numbers as strings",
        ),
    ):
        with pytest.raises(DataError, match=message):
            lpgcn.train(split, out=tmp_path / "run")
    with pytest.raises(SourceError, match="not in memory"):
        lpgcn.train("demo", out=tmp_path / "run", splitting=Splitting(seed=1))
    assert not os.listdir(tmp_path)


def test_save_and_load(pairs: list[tuple[int, int]], whole: Path, tmp_path: Path) -> None:
    model = lpgcn.Model.load(whole)
    assert (model.config.seed, model.config.dim) == (5, 8)
    model.save(tmp_path / "saved")
    again = lpgcn.Model.load(tmp_path / "saved")
    mine = [pairs[0][1], pairs[20][1]]
    for one in (again, model.recommender):
        assert one.recommend(3, 4, exclude=mine) == model.recommend(3, 4, exclude=mine)
        assert one.recommend(history=mine, k=4) == model.recommend(history=mine, k=4)
        assert one.score(3, mine) == model.score(3, mine)
        assert one.similar_items(mine[0], 3) == model.similar_items(mine[0], 3)
        assert one.similar_users(3, 3) == model.similar_users(3, 3)
        found, wanted = one.recommend_batch([3, 9], 4), model.recommend_batch([3, 9], 4)
        assert found.items.tolist() == wanted.items.tolist()
    with pytest.raises(MethodError, match="no summary"):
        _ = again.summary


def test_what_cannot_be_done(whole: Path) -> None:
    with pytest.raises(MethodError, match="has not been fitted"):
        lpgcn.Model().recommend(1)
    with pytest.raises(lpgcn.LpgcnError, match="unknown key 'epoch'"):
        lpgcn.Model(epoch=3)
    with pytest.raises(lpgcn.LpgcnError, match="model is 'lightgnc'"):
        lpgcn.Model("lightgnc")


def test_what_is_computed_in_one_go_is_measured_once_or_never(
    pairs: list[tuple[int, int]],
) -> None:
    everything = Splitting(ratio=(1.0, 0.0, 0.0))
    model = lpgcn.Model("item-knn", eval_every=0).fit(pairs, splitting=everything)
    assert len(model.recommend(pairs[0][0], k=2)) == 2
    with pytest.raises(MethodError, match="eval_every is 5, but item-knn is computed in one go"):
        lpgcn.Model("item-knn", eval_every=5).fit(pairs)
