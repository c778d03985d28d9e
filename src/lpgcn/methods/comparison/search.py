"""The paper's grids, λ and layers of whoever has them, and those of a method's own settings:
decided on validation data alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from lpgcn.config import write_toml
from lpgcn.methods.comparison.entries import Entry
from lpgcn.methods.comparison.results import Outcome
from lpgcn.methods.registry import configured, described

SETTINGS: Final[Mapping[str, tuple[float, ...]]] = MappingProxyType(
    {"reg": (1e-2, 1e-3, 1e-4, 1e-5, 1e-6), "layers": (1, 2, 3, 4)}
)
"""Fields of a configuration, and their values in the paper's section 6.2."""


def candidates(entry: Entry) -> list[Entry]:
    """The runs of a grid around one of the comparison's, all with its seed."""
    known = described(entry.model)
    axes = {name: values for name, values in SETTINGS.items() if name in known.settings}
    if entry.variant:
        axes.pop("layers", None)
    own = known.grid
    found = []
    for point in product(*axes.values(), *own.values()):
        values = dict(zip((*axes, *own), point, strict=True))
        settings: dict[str, Any] = {name: values[name] for name in axes}
        option = {**entry.config.option, **{name: values[name] for name in own}}
        config = configured({**msgspec.to_builtins(entry.config), **settings, "option": option})
        variant = " ".join(f"{name}={value}" for name, value in values.items())
        variant = f"{entry.variant} {variant}".strip()
        found.append(Entry(model=entry.model, variant=variant, config=config))
    return found


def chosen(outcomes: Sequence[Outcome], metric: str) -> Entry | None:
    """The one with the best validation; the first of equals."""
    measured = [
        (one.summary.valid[metric], -number, one.entry)
        for number, one in enumerate(outcomes)
        if one.summary is not None
    ]
    return max(measured)[2] if measured else None


def write_chosen(entry: Entry, asked: Entry, folder: Path) -> Path:
    """A configuration without the seed, in a folder for `--settings`, of which each number of
    layers that was asked for has its own."""
    values = msgspec.to_builtins(entry.config)
    values.pop("seed")
    path = folder / asked.variant.replace("=", "") / f"{entry.model}.toml"
    write_toml(path, values)
    return path
