"""Runs with features: the same in every way to run, kept with the run, noticed when they change."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from msgspec.structs import replace

import lpgcn
from lpgcn.config import Config
from lpgcn.data import DataError
from lpgcn.methods.method import MethodError
from lpgcn.methods.registry import configured
from lpgcn.runtime.runs.run_folder import RunFolder, RunFolderError
from lpgcn.runtime.runs.saved_model import Recommender
from lpgcn.runtime.runs.source import Source, SourceError

USERS, ITEMS = 9, 25
CONFIG = Config(
    model="lightgcn", layers=2, dim=4, lr=0.05, batch_size=16, epochs=2, eval_every=1,
    planner="cover", virtual_items="2", at=(5,),
)  # fmt: skip
PAIRS = sorted({(user, (7 * user + i * i) % ITEMS) for user in range(USERS) for i in range(40)})
Table = npt.NDArray[np.float64]


def drawn(count: int, width: int, seed: int = 0) -> Table:
    return np.random.default_rng(seed).normal(size=(count, width))


def write(path: Path, features: Table) -> str:
    np.savez(path, ids=np.arange(len(features)), features=features)
    return str(path)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    train = tmp_path / "few.csv"
    train.write_text("user_id,item_id\n" + "".join(f"{user},{item}\n" for user, item in PAIRS))
    return Source(
        dataset="few", train=str(train),
        user_features=write(tmp_path / "users.npz", drawn(USERS, 2)),
        item_features=write(tmp_path / "items.npz", drawn(ITEMS, 3, 1)),
    )  # fmt: skip


def vectors(folder: Path) -> tuple[bytes, bytes]:
    found = Recommender.load(folder).vectors
    return found.users.tobytes(), found.items.tobytes()


@pytest.mark.parametrize("model", ["lightgcn", "lightgcn+", "sage"])
def test_all_ways_to_run_end_in_the_same_bits(source: Source, tmp_path: Path, model: str) -> None:
    found, plain = set(), Source(dataset="few", train=source.train)
    for mode, workers in (("centralized", 1), ("simulated", 1), ("federated", 1), ("federated", 2)):
        out = tmp_path / f"{mode}-{workers}"
        lpgcn.train(source, CONFIG.changed(model=model, mode=mode), out=out, workers=workers)
        found.add(vectors(out))
    assert len(found) == 1
    lpgcn.train(plain, CONFIG.changed(model=model), out=tmp_path / "plain")
    assert vectors(tmp_path / "plain") not in found
    config = RunFolder(tmp_path / "simulated-1").describe().config
    assert (config.user_feature_dim, config.item_feature_dim) == (2, 3)
    saved = Recommender.load(tmp_path / "federated-2")
    assert len(saved.recommend(3, 4)) == 4
    if model != "sage":
        assert len(saved.recommend(k=4, history=[1, 2])) == 4


def test_in_memory_they_give_the_bits_of_files(source: Source, tmp_path: Path) -> None:
    for name, features in (
        ("files", (source.user_features, Path(source.item_features or ""))),
        ("arrays", ((np.arange(USERS), drawn(USERS, 2)), (np.arange(ITEMS), drawn(ITEMS, 3, 1)))),
    ):
        lpgcn.train(
            PAIRS, CONFIG, out=tmp_path / name, user_features=features[0], item_features=features[1]
        )
    lpgcn.train(source, CONFIG, out=tmp_path / "source")
    expected = vectors(tmp_path / "source")
    assert vectors(tmp_path / "files") == vectors(tmp_path / "arrays") == expected
    kept = RunFolder(tmp_path / "arrays").describe()
    assert kept.source.open().fingerprint == kept.fingerprint
    model = lpgcn.Model("lightgcn", layers=2, dim=4, epochs=1).fit(
        PAIRS, item_features=(np.arange(ITEMS), drawn(ITEMS, 3, 1))
    )
    assert (
        model.config.item_feature_dim == 0 and model.recommender.card.config.item_feature_dim == 3
    )
    with pytest.raises(SourceError, match="found tuple as user_features of data that is not in"):
        lpgcn.train(source, CONFIG, out=tmp_path / "no", user_features=((0,), (0,)))


def test_a_run_goes_on_with_its_features_and_with_no_others(source: Source, tmp_path: Path) -> None:
    lpgcn.train(source, CONFIG.changed(epochs=4), out=tmp_path / "long")
    out = tmp_path / "out"
    lpgcn.train(source, CONFIG, out=out)
    longer = CONFIG.changed(epochs=4)
    assert source.user_features is not None
    for wrong, features, message in (
        (replace(source, item_features=None), drawn(USERS, 2), "has item_features"),
        (source, drawn(USERS, 2, 5), "the data has changed"),
        (source, drawn(USERS, 3), "has user_feature_dim 2, not 3"),
    ):
        write(Path(source.user_features), features)
        with pytest.raises(RunFolderError, match=message):
            lpgcn.train(wrong, longer, out=out, resume=True)
    write(Path(source.user_features), drawn(USERS, 2))
    lpgcn.train(source, longer, out=out, resume=True)
    assert vectors(out) == vectors(tmp_path / "long")


def test_who_is_missing_in_a_file_stops_a_run_before_it_begins(
    source: Source, tmp_path: Path
) -> None:
    assert source.user_features is not None
    write(Path(source.user_features), drawn(USERS - 1, 2))
    with pytest.raises(DataError, match="1 of 9 users have no features, the first of them 8"):
        lpgcn.train(source, CONFIG, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_methods_without_initial_vectors_refuse_them(source: Source, tmp_path: Path) -> None:
    with pytest.raises(MethodError, match="item-knn has no initial vectors to which features"):
        lpgcn.train(source, configured({"model": "item-knn"}), out=tmp_path / "out")
