"""Backbones by name: a module each, with its formula and source.

Beside those of the house, whatever a package announces under the entry point `lpgcn.backbones`,
and `package.module:Class`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from lpgcn.config import PAPERS_OWN, Config, ConfigError
from lpgcn.model.backbones.backbone import (
    BUILDING,
    Backbone,
    Concatenated,
    LastLayer,
    LayerGradient,
    Linear,
    NodeKind,
    Table,
)

__all__ = [
    "BACKBONES", "BUILDING", "LP_GCN", "PAPERS_OWN", "Backbone", "Concatenated", "LastLayer",
    "LayerGradient", "Linear", "NodeKind", "Table", "announced", "backbone_of", "is_backbone",
    "trains_backbone",
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
LP_GCN: Final = "lp-gcn"
"""Our federation under the name of a method, whose backbone is one of its options."""

GROUP: Final = "lpgcn.backbones"
"""Of the entry points that announce one."""


def announced() -> dict[str, EntryPoint]:
    """Those of other packages; the names of ours stay ours."""
    return {one.name: one for one in entry_points(group=GROUP) if one.name not in BACKBONES}


def is_backbone(model: str) -> bool:
    """Whether a name of a configuration is meant to be one."""
    return model in BACKBONES or ":" in model or model in announced()


def trains_backbone(model: str) -> bool:
    """Whether a model of this name has the vectors of a backbone."""
    return is_backbone(model) or model == LP_GCN


def backbone_of(config: Config) -> Backbone:
    """The backbone of a configuration; everybody has one of its own."""
    return class_of(config.model)(config)


@cache
def class_of(model: str) -> type[Backbone]:
    """By its name, or where it is."""
    place = BACKBONES.get(model, model)
    if ":" not in place and model in (others := announced()):
        place = others[model].value
    if ":" not in place:
        raise ConfigError(
            f"model is {model!r}, which is no backbone; expected {', '.join(BACKBONES)}, or "
            "package.module:Class: other models are trained as `lpgcn train --model` runs them, "
            "and in no federation of ours"
        )
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name, None)
    except ImportError as error:
        raise ConfigError(
            f"the backbone {place}: {error}; expected a module that Python finds: install its "
            "package, or name its folder in PYTHONPATH"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Backbone)):
        raise ConfigError(
            f"the backbone {place} is {'not there' if found is None else repr(found)}; expected a "
            "subclass of lpgcn.model.backbones.Backbone"
        )
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise ConfigError(f"the backbone {place} has no {', '.join(missing)}; write them")
    fixed = _FIXED if issubclass(found, Linear) else ()
    if own := [name for name in fixed if getattr(found, name) is not getattr(Linear, name)]:
        raise ConfigError(
            f"the backbone {place} has a {own[0]} of its own, but is a Linear one, which is never "
            "asked for it; derive it from lpgcn.model.backbones.Backbone"
        )
    return found


_FIXED: Final = (
    "layer", "layer_gradient", "readout", "readout_gradient", "aggregation", "self_loop",
)  # fmt: skip
"""What propagation does itself where layers pass vectors on as they are."""
