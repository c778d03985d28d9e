"""Interactions in: readers, data in memory, splits, named data sets, and the built-in demo."""

from lpgcn.data.errors import DataError, DataWarning
from lpgcn.data.files import read_split
from lpgcn.data.ids import Ids
from lpgcn.data.interactions import Interactions
from lpgcn.data.memory import make_split
from lpgcn.data.named import NamedDataset, describe, load, names
from lpgcn.data.rows import Columns
from lpgcn.data.split import Split
from lpgcn.data.splitting import Splitting, ratio_split

__all__ = [
    "Columns",
    "DataError",
    "DataWarning",
    "Ids",
    "Interactions",
    "NamedDataset",
    "Split",
    "Splitting",
    "describe",
    "load",
    "make_split",
    "names",
    "ratio_split",
    "read_split",
]
