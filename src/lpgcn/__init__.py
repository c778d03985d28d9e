"""lpgcn: lossless, private, federated graph-convolution recommendation.

import lpgcn

summary = lpgcn.train("demo", lpgcn.Config(epochs=20), out="runs/demo")
lpgcn.Recommender.load("runs/demo").recommend("user-1", k=10)

model = lpgcn.Model("lightgcn+", epochs=20).fit(frame)  # or a sparse matrix, pairs, a Split
model.recommend(history=["item-1", "item-2"], k=10)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lpgcn.config import Config
    from lpgcn.data import Columns, Interactions, Split, Splitting, load, make_split, read_split
    from lpgcn.errors import LpgcnError
    from lpgcn.methods.model import Model
    from lpgcn.methods.training import train
    from lpgcn.runtime.runs.recommendations import Neighbour, Recommendation, Recommendations
    from lpgcn.runtime.runs.run_folder import Summary
    from lpgcn.runtime.runs.saved_model import Recommender
    from lpgcn.runtime.runs.source import Source

__version__ = "0.1.0"

__all__ = [
    "Columns",
    "Config",
    "Interactions",
    "LpgcnError",
    "Model",
    "Neighbour",
    "Recommendation",
    "Recommendations",
    "Recommender",
    "Source",
    "Split",
    "Splitting",
    "Summary",
    "load",
    "make_split",
    "read_split",
    "train",
]

_ROOMS = {
    "lpgcn.config": ("Config",),
    "lpgcn.data": (
        "Columns",
        "Interactions",
        "Split",
        "Splitting",
        "load",
        "make_split",
        "read_split",
    ),
    "lpgcn.errors": ("LpgcnError",),
    "lpgcn.runtime.runs.recommendations": ("Neighbour", "Recommendation", "Recommendations"),
    "lpgcn.runtime.runs.saved_model": ("Recommender",),
    "lpgcn.runtime.runs.run_folder": ("Summary",),
    "lpgcn.runtime.runs.source": ("Source",),
    "lpgcn.methods.model": ("Model",),
    "lpgcn.methods.training": ("train",),
}


def __getattr__(name: str) -> Any:
    """A public name is imported when it is first used, so that small commands start at once."""
    for room, names in _ROOMS.items():
        if name in names:
            return getattr(import_module(room), name)
    raise AttributeError(f"module 'lpgcn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
