"""Features of users and items by their ids: a Parquet or npz file, or a table in memory.

A Parquet file, or a data frame, has a column of ids, named as in the interactions, and a column of
numbers for each feature. An npz file has an array `ids` and an array `features`, a row for each id;
in memory that is a tuple of both.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

from lpgcn.array_types import Float64
from lpgcn.config import Config
from lpgcn.data.errors import DataError, DataWarning
from lpgcn.data.ids import Ids
from lpgcn.data.memory import column_of_ids, column_of_numbers
from lpgcn.data.parquet import read_columns
from lpgcn.data.rows import Column
from lpgcn.data.split import Split

Values = npt.NDArray[Any]
IDS: Final = "ids"
FEATURES: Final = "features"
LARGEST: Final = 100.0
"""Of a feature: with larger ones vectors would not fit the grid that they travel on."""


@dataclass(frozen=True, eq=False)
class FeatureRows:
    """Row r is about the id ids.ids[ids.codes[r]]; every id has one."""

    where: str
    ids: Column
    values: Float64

    @classmethod
    def checked(cls, where: str, ids: Column, columns: dict[str, Values]) -> FeatureRows:
        if not columns:
            raise DataError(f"{where}: there are no features beside the ids; add a column of them")
        for name, values in columns.items():
            if (large := np.flatnonzero(~(np.abs(values) <= LARGEST))).size:
                row, expected = int(large[0]), f"a number from {-LARGEST:g} to {LARGEST:g}"
                raise DataError(
                    f"{where}, line {row + 1}: feature {name!r} has {values[row].item()!r}; "
                    f"expected {expected}: scale it, such as to mean 0 and deviation 1"
                )
        if (again := np.flatnonzero(np.bincount(ids.codes) > 1)).size:
            line = int(np.flatnonzero(ids.codes == again[0])[1]) + 1
            raise DataError(
                f"{where}, line {line}: id {ids.ids[int(again[0])]!r} is there twice; expected one "
                "row for each id: remove one of them"
            )
        made = np.stack([values.astype(np.float64) for values in columns.values()], axis=1)
        return cls(where, ids, made)

    def of(self, ids: Ids, what: str) -> Float64:
        """The rows of these ids, all of which must be there; others are left out with a warning."""
        kind = np.int64 if ids.are_numbers and self.ids.ids.are_numbers else np.str_
        wanted, given = (one.values.astype(kind) for one in (ids, self.ids.ids))
        if (missing := np.flatnonzero(~np.isin(wanted, given))).size:
            raise DataError(
                f"{self.where}: {missing.size:,} of {len(ids):,} {what} have no features, the "
                f"first of them {ids[int(missing[0])]!r}; expected a row for each: add them, with "
                "zeros if nothing is known"
            )
        if others := int((~np.isin(given, wanted)).sum()):
            warnings.warn(
                f"{self.where}: {others:,} of {len(given):,} ids are no {what} of the data and "
                "were left out",
                DataWarning,
                stacklevel=3,
            )
        by_value = np.argsort(given)
        code = by_value[np.searchsorted(given[by_value], wanted)]
        row_of_code = np.argsort(self.ids.codes)
        return self.values[row_of_code[code]]


def read_features(path: Path, id_column: str) -> FeatureRows:
    """A Parquet or npz file, told by the end of its name."""
    suffix, where = path.suffix.lower(), str(path)
    if suffix in (".parquet", ".pq"):
        return _of_columns(where, read_columns(path), id_column)
    if suffix != ".npz":
        raise DataError(
            f"{path}: features are read from .parquet, .pq and .npz files; convert it to one"
        )
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in (IDS, FEATURES) if name in arrays.files}
    except (OSError, ValueError, BadZipFile) as error:
        raise DataError(f"{path}: cannot be read as npz ({error}); check the file") from error
    if len(found) < 2:
        raise DataError(
            f"{path}: expected the arrays {IDS!r} and {FEATURES!r}; write it with "
            "numpy.savez(path, ids=…, features=…)"
        )
    return _of_matrix(where, found[IDS], found[FEATURES])


def features_of(data: Any, id_column: str) -> FeatureRows:
    """Those of a file, of a data frame, or a tuple of ids and a matrix."""
    if isinstance(data, str | Path):
        return read_features(Path(data), id_column)
    if hasattr(data, "columns"):
        columns = {str(name): np.asarray(data[name].to_numpy()) for name in data.columns}
        return _of_columns("the data frame of features", columns, id_column)
    if isinstance(data, tuple) and len(data) == 2:
        return _of_matrix("the features", *map(np.asarray, data))
    raise DataError(
        f"found {type(data).__name__} as features; expected the path of a Parquet or npz file, a "
        "data frame with a column of ids, or a tuple of ids and a matrix"
    )


def _of_columns(where: str, columns: dict[str, Values], id_column: str) -> FeatureRows:
    if id_column not in columns:
        raise DataError(
            f"{where}: there is no column {id_column!r} of ids; the columns are "
            f"{', '.join(columns)}: name the column of ids as in the interactions"
        )
    ids = column_of_ids(where, id_column, columns.pop(id_column))
    numbers = {name: _numbers(where, name, values) for name, values in columns.items()}
    return FeatureRows.checked(where, ids, numbers)


def _of_matrix(where: str, ids: Values, features: Values) -> FeatureRows:
    if ids.ndim != 1 or features.ndim != 2 or len(ids) != len(features):
        raise DataError(
            f"{where}: found ids of shape {ids.shape} and features of shape {features.shape}; "
            "expected one row of features for each id"
        )
    numbers = {str(at): _numbers(where, str(at), one) for at, one in enumerate(features.T)}
    return FeatureRows.checked(where, column_of_ids(where, IDS, ids), numbers)


def _numbers(where: str, name: str, values: Values) -> Values:
    """Also of yes and no."""
    return column_of_numbers(where, name, values.astype(float) if values.dtype == bool else values)


def with_features(
    split: Split, users: FeatureRows | None = None, items: FeatureRows | None = None
) -> Split:
    """The split with the features of all its users, or items."""
    return replace(
        split,
        user_features=split.user_features if users is None else users.of(split.user_ids, "users"),
        item_features=split.item_features if items is None else items.of(split.item_ids, "items"),
    )


def sized(config: Config, split: Split) -> Config:
    """The configuration with as many features as the data has."""
    found = {
        f"{kind}_feature_dim": 0 if features is None else features.shape[1]
        for kind, features in (("user", split.user_features), ("item", split.item_features))
    }
    for name, width in found.items():
        asked, option = getattr(config, name), f"--{name.removesuffix('_feature_dim')}-features"
        if asked not in (0, width):
            raise DataError(
                f"{name.replace('_', '-')} is {asked}, but {split.name} has {width} of them; give "
                f"{option} FILE with {asked} features, or leave the number out"
            )
    return config.changed(**found) if any(found.values()) else config


def check_sized(config: Config, split: Split) -> None:
    """That a model knows how many features its data has."""
    if sized(config, split) != config:
        raise DataError(
            f"{split.name} has features, but the configuration has none; give the data without "
            "them, or a configuration as `sized` makes it"
        )
