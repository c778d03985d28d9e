"""Features by id: files and tables in memory, brought into the order of the ids."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.config import Config
from lpgcn.data import DataError, DataWarning, Ids, Interactions, Split
from lpgcn.data.features import features_of, read_features, sized, with_features
from lpgcn.data.written import write_split

Write = Callable[[Path, list[Any], Any], Path]


def as_npz(folder: Path, ids: list[Any], features: Any) -> Path:
    path = folder / "features.npz"
    np.savez(path, ids=np.array(ids), features=np.array(features))
    return path


def as_parquet(folder: Path, ids: list[Any], features: Any) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = folder / "features.parquet"
    columns = {f"f{at}": list(one) for at, one in enumerate(zip(*features, strict=True))}
    # The ids are not the first column: their name is what counts.
    parquet.write_table(pyarrow.table({"f": [1.5] * len(ids), "item_id": ids} | columns), path)
    return path


both_formats = pytest.mark.parametrize("write", [as_npz, as_parquet])


def split_of(users: int = 2, items: int = 3) -> Split:
    part = Interactions.from_pairs([0, 1], [0, 1], users, items)
    return Split("few", part, part, part, Ids(np.arange(users)), Ids(np.arange(items)))


@both_formats
@pytest.mark.parametrize("ids", [[30, 7, 10], ["b", "a", "c"]])
def test_rows_are_in_the_order_of_the_ids(write: Write, ids: list[Any], tmp_path: Path) -> None:
    path = write(tmp_path, ids, [[1.0, 0.5], [2.0, 0.0], [3.0, 0.25]])
    found = read_features(path, "item_id").of(Ids.of(ids), "items")
    expected = [[1.0, 0.5], [2.0, 0.0], [3.0, 0.25]]
    order = [ids.index(one) for one in Ids.of(ids)]
    assert found[:, -2:].tolist() == [expected[at] for at in order]
    assert found.shape[1] == (3 if write is as_parquet else 2)


@given(st.permutations(range(8)), st.sets(st.integers(0, 7), min_size=1), st.booleans())
def test_every_id_has_its_own_row(order: list[int], wanted: set[int], as_text: bool) -> None:
    """Also where the file has numbers and the data has texts."""
    rows = features_of((np.array(order), np.array(order)[:, None] / 8), "ids")
    ids = Ids(np.array(sorted(map(str, wanted)) if as_text else sorted(wanted)))
    if len(wanted) == 8:
        found = rows.of(ids, "users")
    else:
        with pytest.warns(DataWarning, match=f"{8 - len(wanted)} of 8 ids are no users"):
            found = rows.of(ids, "users")
    assert (found[:, 0] * 8).tolist() == [int(one) for one in ids]


def test_columns_of_yes_and_no_are_numbers(tmp_path: Path) -> None:
    path = as_parquet(tmp_path, [1, 2], [[True, 3], [False, 4]])
    found = read_features(path, "item_id").of(Ids(np.array([1, 2])), "items")
    assert found.tolist() == [[1.5, 1, 3], [1.5, 0, 4]]


@both_formats
@pytest.mark.parametrize(
    ("ids", "features", "message"),
    [
        ([1, 1, 2], [[1.0], [2.0], [3.0]], "line 2: id 1 is there twice"),
        ([1, 2], [[1.0], [np.nan]], "line 2.*'f?0' has nan; expected a number"),
        ([1, 2], [[np.inf], [1.0]], "line 1.*has inf; expected a number"),
        ([1, 2], [[0.5], [1995.0]], "line 2: feature 'f?0' has 1995.0.*scale it"),
        ([1, 2], [["x"], ["y"]], "column 'f?0' has type .*; expected numbers"),
        ([1.5, 2], [[1.0], [1.0]], "line 1.*has 1.5; expected a whole number"),
    ],
)
def test_what_is_no_table_of_features_is_refused(
    write: Write, ids: list[Any], features: Any, message: str, tmp_path: Path
) -> None:
    path = write(tmp_path, ids, features)
    with pytest.raises(DataError, match=message):
        read_features(path, "item_id")


def test_a_missing_cell_is_refused(tmp_path: Path) -> None:
    path = as_parquet(tmp_path, [1, 2], [[1.0], [None]])
    with pytest.raises(DataError, match="line 2: column 'f0' has nan; expected a number"):
        read_features(path, "item_id")


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2,), (2,)), "features of shape"),
        (((2,), (3, 1)), "ids of shape"),
        (((2,), (2, 0)), "no features"),
    ],
)
def test_shapes_that_do_not_fit(shapes: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        features_of((np.arange(shapes[0][0]), np.zeros(shapes[1])), "ids")


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"no archive")
    np.savez(tmp_path / "b.npz", ids=np.arange(2))
    (tmp_path / "c.csv").write_text("item_id,f\n1,2\n")
    (tmp_path / "d.parquet").write_bytes(b"no table")
    for name, message in (
        ("a.npz", "cannot be read as npz"),
        ("b.npz", "expected the arrays 'ids' and 'features'"),
        ("c.csv", "features are read from .parquet, .pq and .npz files"),
        ("d.parquet", "cannot be read as Parquet"),
        ("e.npz", "cannot be read as npz"),
    ):
        with pytest.raises(DataError, match=message):
            read_features(tmp_path / name, "item_id")
    with pytest.raises(DataError, match="no column 'user_id' of ids; the columns are f, item_id"):
        read_features(as_parquet(tmp_path, [1], [[1.0]]), "user_id")
    with pytest.raises(DataError, match="found list as features"):
        features_of([[1.0]], "ids")


def test_an_id_without_features_is_named() -> None:
    rows = features_of((np.array([0, 2]), np.eye(2)), "ids")
    with pytest.raises(DataError, match="1 of 3 items have no features, the first of them 1"):
        with_features(split_of(), items=rows)


def test_features_are_part_of_the_fingerprint_and_of_what_is_written(tmp_path: Path) -> None:
    plain, users, items = split_of(), np.array([[1.0], [2.0]]), np.eye(3)
    rows = features_of((np.arange(2), users), "ids"), features_of((np.arange(3), items), "ids")
    some = [with_features(plain, rows[0]), with_features(plain, None, rows[1])]
    some += [plain, with_features(plain, *rows), with_features(plain, None, features_of(
        (np.arange(3), 2 * items), "ids"))]  # fmt: skip
    assert len({one.fingerprint for one in some}) == 5
    write_split(some[3], tmp_path)
    again = [read_features(tmp_path / f"{kind}_features.npz", "ids") for kind in ("user", "item")]
    assert with_features(plain, *again).fingerprint == some[3].fingerprint


def test_a_configuration_learns_how_many_there_are() -> None:
    plain = split_of()
    described = with_features(plain, None, features_of((np.arange(3), np.eye(3)), "ids"))
    assert sized(Config(), plain) == Config()
    config = sized(Config(), described)
    assert (config.user_feature_dim, config.item_feature_dim) == (0, 3)
    assert sized(config, described) == config
    for wrong, split in ((config, plain), (Config(item_feature_dim=2), described)):
        with pytest.raises(DataError, match="give --item-features FILE with"):
            sized(wrong, split)
    with pytest.raises(ValueError, match="not 3 rows"):
        Split(
            plain.name, plain.train, plain.valid, plain.test, plain.user_ids, plain.item_ids,
            item_features=np.eye(2),
        )  # fmt: skip
