"""The public catalogue of a federation: which items there are, and what else all clients know.

That an item exists is no secret; who has it is. Everybody numbers items by their rank among the ids
of the catalogue. A second column may have public popularity counts, for virtual items drawn by
popularity.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from lpgcn.config import Config
from lpgcn.data import Ids, Interactions
from lpgcn.errors import LpgcnError
from lpgcn.files import write_atomically


class CatalogueError(LpgcnError):
    """A catalogue that cannot be used."""


class PublicCatalogue(msgspec.Struct, frozen=True, kw_only=True):
    """Ids as they are called outside, ascending; the counts beside them, or none."""

    ids: tuple[int | str, ...]
    popularity: tuple[float, ...] = ()

    @classmethod
    def read(cls, path: Path) -> PublicCatalogue:
        """A text file with an id on each line, and a tab and a count behind it if there are any."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not a text in UTF-8"
            raise CatalogueError(
                f"cannot read the catalogue {path}: {reason}; expected one item id on each line"
            ) from error
        fields = [line.split("\t") for line in lines if line.strip()]
        if not fields or {len(one) for one in fields} not in ({1}, {2}):
            raise CatalogueError(
                f"{path} has {len(fields)} items; expected one id on each line, and a tab and a "
                "count behind every one of them or none"
            )
        ids = Ids.of(one[0].strip() for one in fields)
        if len(ids) != len(fields):
            raise CatalogueError(f"{path} names an item twice; expected every id once")
        try:
            counts = {ids.index_of(one[0].strip()): float(one[1]) for one in fields if one[1:]}
        except ValueError as error:
            raise CatalogueError(f"{path} has a count that is no number: {error}") from error
        return cls(ids=tuple(ids), popularity=tuple(counts[at] for at in sorted(counts)))

    @classmethod
    def of(cls, train: Interactions, ids: Ids) -> PublicCatalogue:
        """Of a data set, for experiments: its own counts stand for public ones."""
        return cls(ids=tuple(ids), popularity=tuple(train.item_degrees.astype(float).tolist()))

    def write(self, path: Path) -> None:
        counts = [f"\t{count:g}" for count in self.popularity] or [""] * len(self.ids)
        lines = [f"{one}{count}\n" for one, count in zip(self.ids, counts, strict=True)]
        write_atomically(path, "".join(lines).encode())

    @property
    def item_ids(self) -> Ids:
        return Ids(np.array(self.ids))

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        return np.array(self.popularity, dtype=np.float64)

    @property
    def fingerprint(self) -> str:
        return sha256(self.item_ids.encoded()).hexdigest()


class Prospectus(msgspec.Struct, frozen=True, kw_only=True):
    """What a client is told when it is let in: all that is public."""

    federation: str
    config: Config
    """With seed 0: the seed of the batches is the server's."""
    clients: int
    """At the beginning."""
    catalogue: PublicCatalogue
