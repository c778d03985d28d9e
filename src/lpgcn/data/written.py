"""A split as files that are read as the same split again."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from lpgcn.data.errors import DataError
from lpgcn.data.ids import Ids
from lpgcn.data.interactions import Interactions
from lpgcn.data.split import Split
from lpgcn.files import write_atomically


def write_split(split: Split, folder: Path) -> None:
    """train.csv, valid.csv and test.csv; user_features.npz and item_features.npz: what there is."""
    for part, interactions in split.parts.items():
        if len(interactions):
            write_atomically(folder / f"{part}.csv", _csv(interactions, split).encode())
    for ids, features, name in (
        (split.user_ids, split.user_features, "user_features"),
        (split.item_ids, split.item_features, "item_features"),
    ):
        if features is not None:
            content = io.BytesIO()
            np.savez_compressed(content, allow_pickle=False, ids=ids.values, features=features)
            write_atomically(folder / f"{name}.npz", content.getvalue())


def check_can_be_written(split: Split) -> None:
    """That files would be read as the same again: they know only users and items that occur."""
    item_degrees = np.sum([part.item_degrees for part in split.parts.values()], axis=0)
    for ids, what, degrees in (
        (split.user_ids, "users", split.train.user_degrees),
        (split.item_ids, "items", item_degrees),
    ):
        if missing := int((degrees == 0).sum()):
            place = "training" if what == "users" else "any part"
            raise DataError(
                f"{missing} {what} of {split.name} have no interactions in {place}; make the split "
                f"of those {what} that have some"
            )
        if not _is_read_again(ids):
            raise DataError(
                f"ids of {what} of {split.name} have blanks around them, are empty or 'nan', or "
                "are whole numbers as strings, which files do not tell apart; give others"
            )


def _is_read_again(ids: Ids) -> bool:
    if ids.are_numbers:
        return True
    plain = all(one == str(one).strip() and str(one).lower() not in ("", "nan") for one in ids)
    return plain and not any("\0" in str(one) for one in ids) and Ids.of(ids) == ids


def _csv(part: Interactions, split: Split) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("user_id", "item_id"))
    users, items = split.user_ids.values[part.users], split.item_ids.values[part.items]
    writer.writerows(zip(users.tolist(), items.tolist(), strict=True))
    return text.getvalue()
