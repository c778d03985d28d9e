"""A data set in its three parts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lpgcn.data.ids import Ids
from lpgcn.data.interactions import Interactions


@dataclass(frozen=True, eq=False)
class Split:
    """Train, validation and test interactions over the same users and items."""

    name: str
    train: Interactions
    valid: Interactions
    test: Interactions
    user_ids: Ids
    item_ids: Ids
    user_features: npt.NDArray[np.float64] | None = None
    """A row for each user; private to it."""
    item_features: npt.NDArray[np.float64] | None = None
    """A row for each item; public."""

    def __post_init__(self) -> None:
        size = (len(self.user_ids), len(self.item_ids))
        for features, count in zip((self.user_features, self.item_features), size, strict=True):
            if features is not None and (features.ndim != 2 or len(features) != count):
                raise ValueError(f"features have shape {features.shape}, not {count} rows")
        if any((part.n_users, part.n_items) != size for part in self.parts.values()):
            raise ValueError(f"every part of a split has {size[0]} users and {size[1]} items")

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    @property
    def parts(self) -> dict[str, Interactions]:
        return {"train": self.train, "valid": self.valid, "test": self.test}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of the ids, of the sorted pairs of each part, and of features if
        there are any.

        An index is the rank of an external id, so the order of lines in a file, its format and its
        name have no influence, and any other pair, id, or size of the catalogue gives another one.
        """
        digest = hashlib.sha256(b"lpgcn split 1")
        for ids in (self.user_ids, self.item_ids):
            encoded = ids.encoded()
            digest.update(b"%d:%b" % (len(encoded), encoded))
        for part in self.parts.values():
            digest.update(b"%d:" % len(part))
            digest.update(np.stack((part.users, part.items)).astype("<i8").tobytes())
        for name, features in (("user", self.user_features), ("item", self.item_features)):
            if features is not None:
                digest.update(b"%b features %d:" % (name.encode(), features.shape[1]))
                digest.update(features.astype("<f8").tobytes())
        return digest.hexdigest()
