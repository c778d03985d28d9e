"""From files of interactions to a split."""

from __future__ import annotations

import warnings
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lpgcn.data.errors import DataError, DataWarning
from lpgcn.data.ids import Ids
from lpgcn.data.interactions import Interactions
from lpgcn.data.readers import read
from lpgcn.data.rows import Columns, Rows
from lpgcn.data.split import Ratio, Split, check_ratio, ratio_split

Int64 = npt.NDArray[np.int64]


def read_split(
    train: Path,
    valid: Path | None = None,
    test: Path | None = None,
    *,
    name: str | None = None,
    format: str | None = None,
    columns: Columns | None = None,
    ratio: Ratio = (0.8, 0.1, 0.1),
    seed: int = 0,
) -> Split:
    """A split from files: ready-made parts, or one file that is split per user by ratio and seed.

    With `valid` or `test` the files are the parts (one that is not given is empty), and `ratio` and
    `seed` have no meaning. Users and items are those that occur in any file, indexed in the order
    of their ids: numerical if all are whole numbers, else alphabetical.
    """
    check_ratio(ratio)
    given = {"train": train, "valid": valid, "test": test}
    rows = {
        part: read(path, columns or Columns(), format)
        for part, path in given.items()
        if path is not None
    }
    user_ids = Ids.union(*(part.users.ids for part in rows.values()))
    item_ids = Ids.union(*(part.items.ids for part in rows.values()))
    parts = {part: _indexed(rows[part], user_ids, item_ids) for part in rows}
    _check_training_items(rows, parts["train"], user_ids)
    _check_disjoint(rows, parts, user_ids, item_ids)
    if valid is None and test is None:
        trained, validated, tested = ratio_split(parts["train"], ratio, seed)
    else:
        none = Interactions.from_pairs([], [], len(user_ids), len(item_ids))
        trained, validated, tested = (parts.get(part, none) for part in given)
    return Split(name or train.stem, trained, validated, tested, user_ids, item_ids)


def _keys(rows: Rows, user_ids: Ids, item_ids: Ids) -> Int64:
    """The key of each row's pair, as in `Interactions.keys`."""
    users = rows.users.ids.indices_in(user_ids)[rows.users.codes]
    items = rows.items.ids.indices_in(item_ids)[rows.items.codes]
    return users * len(item_ids) + items


def _indexed(rows: Rows, user_ids: Ids, item_ids: Ids) -> Interactions:
    """The pairs of a file; those that it lists again are merged with a warning."""
    keys = _keys(rows, user_ids, item_ids)
    distinct, first = np.unique(keys, return_index=True)
    if repeated := keys.size - distinct.size:
        again = np.delete(np.arange(keys.size), first)[0]
        user, item = divmod(int(keys[again]), len(item_ids))
        warnings.warn(
            f"{rows.path}: {repeated} of {keys.size} interactions are duplicates and were merged; "
            f"the first is user {user_ids[user]!r} and item {item_ids[item]!r}, again on line "
            f"{rows.lines[again]}",
            DataWarning,
            stacklevel=3,
        )
    users, items = np.divmod(distinct, len(item_ids))
    return Interactions.from_pairs(users, items, len(user_ids), len(item_ids))


def _check_training_items(rows: dict[str, Rows], train: Interactions, user_ids: Ids) -> None:
    """Every user has an item to train on: without one it has no place in the graph."""
    path = rows["train"].path
    if rows["train"].users_alone:
        line, user = next(iter(rows["train"].users_alone.items()))
        raise DataError(
            f"{path}, line {line}: user {user} has no training items; list some, or remove the line"
        )
    untrained = np.flatnonzero(train.user_degrees == 0)
    for part in rows.values() if untrained.size else ():
        users = part.users.ids.indices_in(user_ids)[part.users.codes]
        if (at := np.flatnonzero(np.isin(users, untrained))).size:
            raise DataError(
                f"{part.path}, line {part.lines[at[0]]}: user {user_ids[users[at[0]]]!r} has no "
                f"training items ({untrained.size} such users in all); give each at least one "
                f"interaction in {path}, or remove them from the other files"
            )


def _check_disjoint(
    rows: dict[str, Rows], parts: dict[str, Interactions], user_ids: Ids, item_ids: Ids
) -> None:
    """No pair is in two parts: a model would be tested on what it was trained or chosen on."""
    for one, other in combinations(rows, 2):
        shared = np.intersect1d(parts[one].keys, parts[other].keys, assume_unique=True)
        if not shared.size:
            continue
        user, item = divmod(int(shared[0]), len(item_ids))
        places = " and ".join(
            f"line {part.lines[np.argmax(_keys(part, user_ids, item_ids) == shared[0])]} of "
            f"{part.path}"
            for part in (rows[one], rows[other])
        )
        raise DataError(
            f"{rows[other].path}: pairs in both {one} and {other}: {shared.size}; the first is "
            f"user {user_ids[user]!r} and item {item_ids[item]!r} ({places}); remove them from one"
        )
