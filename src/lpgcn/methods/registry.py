"""Every model by its name: backbones, the methods that we are compared with, and those of other
packages, which announce a `Method` as an entry point of the group `lpgcn.methods`."""

from __future__ import annotations

from functools import cache, partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import msgspec

from lpgcn.config import Config, Option
from lpgcn.data import Split
from lpgcn.methods.autograd import torch_threads
from lpgcn.methods.ease import EASE
from lpgcn.methods.engine import Fitting
from lpgcn.methods.factorisation import BPR, FEDMF
from lpgcn.methods.fedgrec import FEDGREC
from lpgcn.methods.fedpergnn import FEDPERGNN
from lpgcn.methods.item_knn import ITEM_KNN
from lpgcn.methods.lp_gcn import (
    CENTRALISED,
    PROTECTS,
    SUMMARY,
    LpGcnOptions,
    as_backbone,
)
from lpgcn.methods.method import IN_ONE_GO, Method, MethodError, check_torch, unknown
from lpgcn.methods.mult_vae import MULT_VAE
from lpgcn.methods.ncf import FEDNCF, NCF
from lpgcn.methods.p_gcn import P_GCN
from lpgcn.methods.perfedrec import PERFEDREC
from lpgcn.methods.popular import POPULAR
from lpgcn.methods.semidfegl import SEMIDFEGL
from lpgcn.model.backbones import (
    BACKBONES,
    LP_GCN,
    announced,
    class_of,
    is_backbone,
    trains_backbone,
)
from lpgcn.runtime.engines.engine import Engine
from lpgcn.runtime.runs import training
from lpgcn.runtime.runs.training import Execution

GROUP: Final = "lpgcn.methods"

METHODS: Final = (
    POPULAR, ITEM_KNN, EASE, BPR, NCF, MULT_VAE,
    FEDMF, FEDNCF, FEDPERGNN, P_GCN, FEDGREC, PERFEDREC, SEMIDFEGL,
)  # fmt: skip
"""In the order in which they are shown."""


def names() -> list[str]:
    """Of everything that `--model` takes."""
    methods = (method.name for method in METHODS)
    return [*BACKBONES, *announced(), LP_GCN, *methods, *_announced()]


def find(name: str) -> Method:
    """A method by its name."""
    for method in METHODS:
        if method.name == name:
            return method
    if name in (others := _announced()):
        return _loaded(others[name])
    raise unknown(name, names())


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What `lpgcn models` says about one."""

    name: str
    summary: str
    protects: str
    settings: dict[str, Any]
    """Fields of a configuration that it reads, with its defaults."""
    options: dict[str, Any]
    """Settings of its own."""
    needs_torch: bool
    fixed: list[str] = []
    """Settings of every training that this one has no use for."""
    grid: dict[str, tuple[Option, ...]] = {}
    """What a search tries of its own settings."""
    meanings: dict[str, str] = {}
    """Of all settings."""


def described(name: str) -> Description:
    backbone = is_backbone(name)
    if trains_backbone(name):
        return Description(
            name=name,
            summary=_backbone_summary(name) if backbone else SUMMARY,
            protects=CENTRALISED + PROTECTS if backbone else PROTECTS,
            settings=msgspec.to_builtins(Config(model=name)),
            options={} if backbone else msgspec.to_builtins(LpGcnOptions()),
            needs_torch=False,
            meanings=_meanings(Config) | _meanings(LpGcnOptions),
        )
    method, plain = find(name), msgspec.to_builtins(configured({"model": name}))
    return Description(
        name=name,
        summary=method.summary,
        protects=method.protects,
        settings={key: plain[key] for key in sorted(method.uses)},
        options=msgspec.to_builtins(method.options()),
        needs_torch=method.needs_torch,
        fixed=list(IN_ONE_GO) if method.in_one_go else [],
        grid=dict(method.grid),
        meanings=_meanings(Config) | _meanings(method.options),
    )


def _backbone_summary(name: str) -> str:
    own = class_of(name)
    said = vars(own).get("summary") or (own.__doc__ or "").partition("\n")[0].rstrip(".")
    return f"{said}; on the whole graph or federated" if said else "a backbone of your own"


def _meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """What the fields of a struct are described as."""
    kind = msgspec.inspect.type_info(struct)
    assert isinstance(kind, msgspec.inspect.StructType)
    return {
        field.name: (field.type.extra_json_schema or {}).get("description", "")
        for field in kind.fields
        if isinstance(field.type, msgspec.inspect.Metadata)
    }


def _announced() -> dict[str, EntryPoint]:
    """What other packages add; the names of ours stay ours."""
    ours = {*BACKBONES, LP_GCN, *(method.name for method in METHODS)}
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in ours}


@cache
def _loaded(point: EntryPoint) -> Method:
    try:
        found = point.load()
    except (ImportError, AttributeError, SyntaxError) as error:
        raise MethodError(
            f"the method {point.name!r} of another package cannot be loaded from {point.value}: "
            f"{error}; mend or uninstall that package"
        ) from error
    if not isinstance(found, Method):
        raise MethodError(
            f"the entry point {point.name!r} of the group {GROUP} is {point.value}, a "
            f"{type(found).__name__}; expected a lpgcn.methods.Method"
        )
    return found


def configured(wanted: dict[str, Any]) -> Config:
    """What is asked for, and all else at the defaults of the model."""
    model = wanted.get("model", Config().model)
    defaults: dict[str, Any] = {}
    if model == LP_GCN:
        defaults = {"mode": "simulated"}
    elif not is_backbone(model):
        defaults = dict(find(model).defaults)
    return Config().changed(**{**defaults, **wanted})


def engine_for(split: Split, config: Config, how: Execution) -> Engine:
    """What the configuration asks for, whatever it is: see `runtime.runs.training.engine_for`."""
    if trains_backbone(config.model):
        return training.engine_for(split, as_backbone(config), how)
    method = find(config.model)
    if config.user_feature_dim or config.item_feature_dim:
        raise MethodError(
            f"{config.model} has no initial vectors to which features could be added; leave "
            f"--user-features and --item-features out, or train a backbone: {', '.join(BACKBONES)}"
        )
    method.check(config)
    options = method.options_of(config)
    if how.witness or how.terms or how.workers > 1:
        raise MethodError(
            f"{config.model} is computed in one process, without parties: workers, transcripts and "
            "logs of terms are for federations of ours; leave these options out"
        )
    machine, within = how.machine, None
    if method.needs_torch:
        check_torch(config.model)
        within = torch_threads(machine.threads.count)
    fit = partial(method.fit, split, config, options, machine)
    return Fitting(fit, split, config, machine, checkpoints=how.checkpoints, within=within)
