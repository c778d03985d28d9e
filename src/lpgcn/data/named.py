"""The data sets that have a name: where they come from and how they are read."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lpgcn.data.demo import demo
from lpgcn.data.errors import DataError
from lpgcn.data.files import read_split
from lpgcn.data.rows import Columns
from lpgcn.data.split import Split
from lpgcn.data.splitting import Splitting


@dataclass(frozen=True)
class NamedDataset:
    """A data set in the folder `name` of the data folder, or one that is made in code."""

    name: str
    summary: str
    files: tuple[str, ...]
    source: str
    read: Callable[[Path, Splitting], Split]
    """From its folder."""
    is_split_here: bool = False
    """Otherwise its parts are part of it."""

    def missing(self, root: Path | None = None) -> tuple[str, ...]:
        """The files that are not there."""
        folder = data_folder(root) / self.name
        return tuple(file for file in self.files if not (folder / file).is_file())


def _ready_made(folder: Path, _: Splitting) -> Split:
    return read_split(
        folder / "train.txt", folder / "valid.txt", folder / "test.txt", name=folder.name
    )


def _movielens(folder: Path, splitting: Splitting) -> Split:
    return read_split(
        folder / "u.data",
        name=folder.name,
        columns=Columns(minimum_rating=4),
        splitting=splitting,
    )


_PARTS: Final = ("train.txt", "valid.txt", "test.txt")
_LIGHTGCN: Final = "https://github.com/gusye1234/LightGCN-PyTorch/tree/master/data"
_PUBLISHED: Final = (
    f"{_LIGHTGCN}, where the interactions are in two parts, train.txt and test.txt; a third, "
    "valid.txt, must have been taken out of train.txt"
)
_GOWALLA: Final = (
    f"{_LIGHTGCN}, which has as many users, items and interactions, but splits them otherwise, "
    "810,128 to train and 217,242 to test: figures of this project are about a split into 739,706, "
    "82,190 and 205,474, which is not published there"
)
_DATASETS: Final = {
    dataset.name: dataset
    for dataset in (
        NamedDataset(
            "demo",
            "generated: communities of taste and power-law popularity, 80/10/10 per user",
            (),
            "generated in code, no files needed",
            lambda _folder, _splitting: demo(),
        ),
        NamedDataset(
            "ml-100k",
            "MovieLens 100K: films, ratings of 4 and 5 (users with none are left out), "
            "80/10/10 per user, by the seed of the split",
            ("u.data",),
            "https://files.grouplens.org/datasets/movielens/ml-100k.zip",
            _movielens,
            is_split_here=True,
        ),
        NamedDataset("gowalla", "Gowalla: check-ins at places", _PARTS, _GOWALLA, _ready_made),
        NamedDataset(
            "yelp2018", "Yelp 2018: reviews of businesses", _PARTS, _PUBLISHED, _ready_made
        ),
        NamedDataset("amazon-book", "Amazon: reviews of books", _PARTS, _PUBLISHED, _ready_made),
    )
}


def names() -> tuple[str, ...]:
    """The names that `load` knows."""
    return tuple(_DATASETS)


def describe(name: str) -> NamedDataset:
    """What a named data set is and where it comes from, without reading it."""
    if name in _DATASETS:
        return _DATASETS[name]
    near = difflib.get_close_matches(name.lower(), _DATASETS, n=1, cutoff=0.5)
    meant = f" Did you mean {near[0]!r}?" if near else ""
    raise DataError(
        f"unknown data set {name!r}; the named ones are {', '.join(_DATASETS)}.{meant} "
        "For data of your own, give its files with --train FILE (in Python "
        "Source(dataset=…, train=FILE))"
    )


def load(name: str, root: Path | None = None, *, splitting: Splitting | None = None) -> Split:
    """A named data set from the folder `root`, by default $LPGCN_DATA or else ./data.

    `splitting` is for those that are split here.
    """
    dataset, splitting = describe(name), splitting or Splitting()
    if splitting != Splitting() and not dataset.is_split_here:
        split_here = ", ".join(one.name for one in _DATASETS.values() if one.is_split_here)
        raise DataError(
            f"found a way, ratio, seed or k-core of a split for {name!r}, whose parts are "
            f"ready-made; leave it out, or choose data that is split here: {split_here}, or a "
            "single file of your own"
        )
    folder = data_folder(root) / name
    if missing := dataset.missing(root):
        raise DataError(
            f"the data set {name!r} is not in the folder {folder}: missing {', '.join(missing)}. "
            f"Origin: {dataset.source}. Put the files into that folder, or set LPGCN_DATA to the "
            f"one that holds {name}/"
        )
    return dataset.read(folder, splitting)


def data_folder(root: Path | None = None) -> Path:
    """Where named data sets are looked up."""
    return Path(root or os.environ.get("LPGCN_DATA") or "data")
