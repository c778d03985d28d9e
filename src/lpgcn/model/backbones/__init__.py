"""Backbones by name: a module each, with its formula and source.

Beside those of the house, whatever a package announces under the entry point `lpgcn.backbones`,
and `package.module:Class`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Final

from lpgcn.config import Config, ConfigError
from lpgcn.model.backbones.backbone import (
    BUILDING,
    Backbone,
    LayerGradient,
    Linear,
    NodeKind,
    Table,
)

__all__ = [
    "BACKBONES", "BUILDING", "PAPERS_OWN", "Backbone", "LayerGradient", "Linear", "NodeKind",
    "Table", "backbone_of",
]  # fmt: skip

_HOUSE: Final = "lpgcn.model.backbones"
BACKBONES: Final[Mapping[str, str]] = {
    "lightgcn": f"{_HOUSE}.lightgcn:LightGCN",
    "lightgcn+": f"{_HOUSE}.lightgcn:LightGCNPlus",
    "gcn": f"{_HOUSE}.gcn:GCN",
    "sage": f"{_HOUSE}.sage:GraphSAGE",
    "lr-gccf": f"{_HOUSE}.lr_gccf:LRGCCF",
    "ngcf": f"{_HOUSE}.ngcf:NGCF",
}
"""Where each of them is."""
PAPERS_OWN: Final = ("lightgcn", "lightgcn+")
"""Those that the paper trains."""


@lru_cache(maxsize=64)
def backbone_of(config: Config) -> Backbone:
    """The backbone of a configuration."""
    if config.model not in BACKBONES:
        raise ConfigError(
            f"model is {config.model!r}, which is no backbone; expected {', '.join(BACKBONES)}: "
            "other models are trained as `lpgcn train --model` runs them, and in no federation of "
            "ours"
        )
    module, _, name = BACKBONES[config.model].partition(":")
    made: Backbone = getattr(import_module(module), name)(config)
    return made
