"""LP-GCN itself among the others: the federation of this package, on any of its backbones.

`--model lp-gcn` is the simulated federation: the arithmetic of a data centre, which a federated run
gives bit for bit, beside the plan and the exact traffic of the federation.
"""

from __future__ import annotations

from typing import Final

import msgspec

from lpgcn.config import Config, convert
from lpgcn.methods.method import MethodError
from lpgcn.model.backbones import LP_GCN

SUMMARY: Final = "the federation of this package, with its plan and its traffic (Wu et al.)"
CENTRALISED: Final = "Nothing in a data centre; with --mode federated: "
PROTECTS: Final = (
    "Interactions from everybody but the owners of the items (see PRIVACY). The server sees who "
    "lists what under tokens, an owner who has its items."
)


class LpGcnOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    backbone: str = "lightgcn+"


def as_backbone(config: Config) -> Config:
    """The same run under the name of its backbone."""
    if config.model != LP_GCN:
        if config.option:
            raise MethodError(
                f"{config.model} has no settings of its own; leave --option out: {config.option}"
            )
        return config
    options = convert(config.option, LpGcnOptions, f"--option of {LP_GCN}")
    return config.changed(model=options.backbone, option={})
