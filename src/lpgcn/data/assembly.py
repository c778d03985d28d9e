"""From rows to a split: ids are indexed, pairs merged, parts checked or made."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import combinations

import numpy as np

from lpgcn.array_types import Bits, Float64, Int64
from lpgcn.data.errors import DataError, DataWarning
from lpgcn.data.ids import Ids
from lpgcn.data.interactions import Interactions
from lpgcn.data.rows import Rows
from lpgcn.data.split import Split
from lpgcn.data.splitting import Splitting, in_k_core, only, ratio_split


def assembled(name: str, rows: Mapping[str, Rows], splitting: Splitting) -> Split:
    """Rows of the part `train` alone are split; with those of `valid` or `test` they are the parts.

    Of training items with a test and no validation part, `valid_ratio` are taken for validation.
    Users without training items have no place in the graph: they are left out, and the items
    that only they have, with a warning.
    """
    user_ids = Ids.union(*(part.users.ids for part in rows.values()))
    item_ids = Ids.union(*(part.items.ids for part in rows.values()))
    if len(rows) == 1:
        return _split_here(name, rows["train"], splitting, user_ids, item_ids)
    if splitting.by != "ratio" or splitting.k_core > 1:
        raise DataError(
            "a way to split and a k-core are for interactions in one piece, but ready-made parts "
            "were given; leave one or the other out"
        )
    parts = {part: _indexed(rows[part], user_ids, item_ids)[0] for part in rows}
    _check_disjoint(rows, parts, user_ids, item_ids)
    none = Interactions.from_pairs([], [], len(user_ids), len(item_ids))
    train, valid, test = (parts.get(part, none) for part in ("train", "valid", "test"))
    split = Split(name, train, valid, test, user_ids, item_ids)
    split = _with_training_items(
        split, rows["train"].where, set(rows["train"].users_alone.values())
    )
    if "valid" in parts:
        return split
    ratio = (1 - splitting.valid_ratio, splitting.valid_ratio, 0.0)
    train, valid, _ = ratio_split(split.train, ratio, splitting.seed)
    return Split(name, train, valid, split.test, split.user_ids, split.item_ids)


def _split_here(name: str, rows: Rows, splitting: Splitting, user_ids: Ids, item_ids: Ids) -> Split:
    interactions, times = _indexed(rows, user_ids, item_ids)
    if splitting.by == "leave-one-out" and times is None:
        _warn_of_no_times(rows)
    if splitting.k_core > 1:
        kept = in_k_core(interactions, splitting.k_core)
        if not kept.any():
            raise DataError(
                f"{rows.where}: no users and items have {splitting.k_core} interactions or more "
                "among themselves; give a smaller k-core"
            )
        interactions = only(interactions, kept)
        times = None if times is None else times[kept]
        interactions, user_ids, item_ids = _compacted(interactions, user_ids, item_ids)
    split = Split(name, *splitting.parts(interactions, times), user_ids, item_ids)
    return _with_training_items(split, rows.where, set(rows.users_alone.values()))


def _warn_of_no_times(rows: Rows) -> None:
    """A last item that is drawn is none that anybody chose last."""
    column = next(iter(rows.maybe_times), None)
    of_python = f"in Python Columns(time={column!r})" if column else "in Python Columns(time=…)"
    said = f"--time-column {column}" if column else "--time-column"
    named = f", perhaps {', '.join(map(repr, rows.maybe_times))}" if column else ""
    warnings.warn(
        f"{rows.where}: no times: the last items are drawn; if a column has them{named}, say which "
        f"with {said} ({of_python})",
        DataWarning,
        stacklevel=4,
    )


def _keys(rows: Rows, user_ids: Ids, item_ids: Ids) -> Int64:
    """The key of each row's pair, as in `Interactions.keys`."""
    users = rows.users.ids.indices_in(user_ids)[rows.users.codes]
    items = rows.items.ids.indices_in(item_ids)[rows.items.codes]
    return users * len(item_ids) + items


def _indexed(rows: Rows, user_ids: Ids, item_ids: Ids) -> tuple[Interactions, Float64 | None]:
    """The pairs, and when each was first; those that are listed again are merged with a warning."""
    keys = _keys(rows, user_ids, item_ids)
    distinct, first, place = np.unique(keys, return_index=True, return_inverse=True)
    if repeated := keys.size - distinct.size:
        again = np.delete(np.arange(keys.size), first)[0]
        user, item = divmod(int(keys[again]), len(item_ids))
        warnings.warn(
            f"{rows.where}: {repeated} of {keys.size} interactions are duplicates and were merged; "
            f"the first is user {user_ids[user]!r} and item {item_ids[item]!r}, again on line "
            f"{rows.lines[again]}",
            DataWarning,
            stacklevel=4,
        )
    times = None
    if rows.times is not None:
        times = np.full(distinct.size, np.inf)
        np.minimum.at(times, place, rows.times)
    users, items = np.divmod(distinct, len(item_ids))
    return Interactions.from_pairs(users, items, len(user_ids), len(item_ids)), times


def _compacted(
    interactions: Interactions, user_ids: Ids, item_ids: Ids
) -> tuple[Interactions, Ids, Ids]:
    """Only the users and items that have a pair."""
    (users, user), (items, item) = (
        np.unique(indices, return_inverse=True)
        for indices in (interactions.users, interactions.items)
    )
    compact = Interactions.from_pairs(user, item, len(users), len(items))
    return compact, Ids(user_ids.values[users]), Ids(item_ids.values[items])


def _with_training_items(split: Split, where: str, alone: set[int]) -> Split:
    """Only the users that have something to train on, and the items that one of them has; the
    others are counted in a warning."""
    trained = split.train.user_degrees > 0
    if not trained.any():
        raise DataError(f"{where}: nobody has training items; expected one or more for each user")
    of_trained = [only(part, trained[part.users]) for part in split.parts.values()]
    had = np.sum([part.item_degrees for part in of_trained], axis=0) > 0
    _warn_of_left_out(split, where, alone, trained, had)
    if trained.all():
        return split
    train, valid, test = (_renumbered(part, trained, had) for part in of_trained)
    user_ids, item_ids = Ids(split.user_ids.values[trained]), Ids(split.item_ids.values[had])
    return Split(split.name, train, valid, test, user_ids, item_ids)


def _warn_of_left_out(split: Split, where: str, alone: set[int], trained: Bits, had: Bits) -> None:
    nowhere = alone - {one for one in split.user_ids if isinstance(one, int)}
    missing, n_items = int((~trained).sum()) + len(nowhere), int((~had).sum())
    if not missing:
        return
    untrained = np.flatnonzero(~trained)
    first = split.user_ids[int(untrained[0])] if untrained.size else min(nowhere)
    with_them = f"; so are {n_items} items that nobody else has" if n_items else ""
    warnings.warn(
        f"{where}: {missing} users have no training items and are left out, the first is user "
        f"{first!r}{with_them}; give these users some to have them in",
        DataWarning,
        stacklevel=5,
    )


def _renumbered(part: Interactions, users: Bits, items: Bits) -> Interactions:
    """The same pairs, numbered among these users and items only."""
    user, item = np.cumsum(users) - 1, np.cumsum(items) - 1
    return Interactions(user[part.users], item[part.items], int(users.sum()), int(items.sum()))


def _check_disjoint(
    rows: Mapping[str, Rows], parts: Mapping[str, Interactions], user_ids: Ids, item_ids: Ids
) -> None:
    """No pair is in two parts: a model would be tested on what it was trained or chosen on."""
    for one, other in combinations(rows, 2):
        shared = np.intersect1d(parts[one].keys, parts[other].keys, assume_unique=True)
        if not shared.size:
            continue
        user, item = divmod(int(shared[0]), len(item_ids))
        places = " and ".join(
            f"line {part.lines[np.argmax(_keys(part, user_ids, item_ids) == shared[0])]} of "
            f"{part.where}"
            for part in (rows[one], rows[other])
        )
        raise DataError(
            f"{rows[other].where}: pairs in both {one} and {other}: {shared.size}; the first is "
            f"user {user_ids[user]!r} and item {item_ids[item]!r} ({places}); remove them from one"
        )
