"""The one configuration object of a run: typed, with the paper's settings as defaults.

A run is fully described by its `Config`. It is read from TOML and from flags, unknown keys are
errors, and it is saved beside the results. The fields are the command line's flags: their names,
types and descriptions are written here and nowhere else.
"""

from __future__ import annotations

import difflib
import math
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from lpgcn.errors import LpgcnError
from lpgcn.files import write_atomically
from lpgcn.schedule import half_cosine

Mode = Literal["centralized", "simulated", "federated"]
Schedule = Literal["constant", "cosine"]
Loss = Literal["bpr", "softmax"]
SuiteName = Literal["sealed", "paper"]
PlannerName = Literal["auto", "cover", "greedy", "partition"]
Count = Annotated[int, Meta(ge=1)]
Dtype = Literal["float32", "float64"]
Mask = Literal["train", "train+valid"]
VirtualDraw = Literal["uniform", "popularity", "coherent"]
ListSizes = Literal["exact", "bucketed"]
SplitName = Literal["ratio", "leave-one-out", "temporal"]
BatchSize = Count | Literal["full"]
MOST_NEGATIVES: Final = 1 << 13
"""More would not add up exactly (see `model.losses.softmax`)."""
LEAST_TEMPERATURE: Final = 0.075
"""From about .0704 down, e^(−2/τ) is below half of 2^-40, to whose multiples softmax rounds."""
EXPONENT_STEP: Final = 0.25
"""Powers of lengths are made of square roots, products and a quotient, which are rounded alike
everywhere; `pow` is not."""
PAPERS_OWN: Final = ("lightgcn", "lightgcn+")
"""The backbones that the paper is about."""
OF_SOFTMAX: Final = ("temperature", "negatives", "negative_weight", "answers", "groups")
"""Fields that mean nothing to another loss."""
Option = bool | int | float | str
Struct = TypeVar("Struct", bound=msgspec.Struct)


class ConfigError(LpgcnError):
    """A configuration that cannot be used as it is."""


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that decides the bits of a run."""

    mode: Annotated[Mode, Meta(description="How the parties are run.")] = "centralized"
    model: Annotated[
        str, Meta(description="What is trained: a backbone, or a method that `lpgcn models` lists.")
    ] = "lightgcn+"
    option: Annotated[
        dict[str, Option],
        Meta(description="A setting that only this model has, NAME=VALUE; see `lpgcn models`."),
    ] = {}
    layers: Annotated[int, Meta(ge=1, le=16, description="Graph convolution layers L.")] = 3
    layer_weights: Annotated[
        tuple[Annotated[float, Meta(ge=0)], ...] | None,
        Meta(description="α_0 … α_L, given L+1 times; all 1/(L+1) if not given."),
    ] = None
    dim: Annotated[int, Meta(ge=1, description="Embedding size d.")] = 64
    lr: Annotated[float, Meta(gt=0, description="Adam's learning rate γ.")] = 1e-3
    schedule: Annotated[
        Schedule, Meta(description="Learning rate over the epochs: constant, or cosine to zero.")
    ] = "constant"
    warmup: Annotated[
        int, Meta(ge=0, description="Steps in which the learning rate grows from zero.")
    ] = 0
    reg: Annotated[float, Meta(ge=0, description="λ of the regulariser on layer-0 embeddings.")] = (
        1e-4
    )
    loss: Annotated[
        Loss,
        Meta(description="bpr: a negative for each positive; softmax: a pool for many users."),
    ] = "bpr"
    temperature: Annotated[
        float,
        Meta(
            ge=LEAST_TEMPERATURE, le=100, description="τ of softmax, by which cosines are divided."
        ),
    ] = 0.12
    negatives: Annotated[
        int, Meta(ge=1, le=MOST_NEGATIVES, description="Negatives in a pool of softmax.")
    ] = 1024
    negative_weight: Annotated[
        float,
        Meta(gt=0, le=1e9, description="As if a pool were so many times as large."),
    ] = 1.0
    answers: Annotated[
        Count | None,
        Meta(description="Negatives of a pool that hear of a client; fewer are fewer bytes up."),
    ] = None
    groups: Annotated[
        int,
        Meta(ge=1, description="Groups of clients with a pool each; fewer if these are too few."),
    ] = 1
    batch_size: Annotated[
        BatchSize,
        Meta(description="Samples a step; full: all of them, in one step an epoch."),
    ] = 2048
    epochs: Annotated[int, Meta(ge=1, description="Epochs of |train| samples, at most.")] = 1000
    patience: Annotated[
        int,
        Meta(
            ge=1, description="Stop after this many epochs without a better validation Recall@20."
        ),
    ] = 50
    eval_every: Annotated[
        int,
        Meta(
            ge=0,
            description="Epochs between two validations; with 0 there are none: all epochs are "
            "trained, the last is kept, and nothing needs to be held out.",
        ),
    ] = 5
    seed: Annotated[
        int, Meta(ge=0, le=2**63 - 1, description="Decides every random number of the training.")
    ] = 0
    user_feature_dim: Annotated[
        int, Meta(ge=0, description="Features of a user; with --user-features, as many as it has.")
    ] = 0
    item_feature_dim: Annotated[
        int, Meta(ge=0, description="Features of an item; with --item-features, as many as it has.")
    ] = 0
    init_deviation: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="Standard deviation of initial embeddings; Xavier if not given."),
    ] = None
    suite: Annotated[SuiteName, Meta(description="What is encrypted under which key.")] = "sealed"
    virtual_items: Annotated[
        str, Meta(description="Virtual items α a client lists: a count (10) or a ratio (1.0x).")
    ] = "0"
    virtual_draw: Annotated[VirtualDraw, Meta(description="How virtual items are drawn.")] = (
        "uniform"
    )
    cooccurrence: Annotated[
        str | None,
        Meta(
            description="What goes together, for --virtual-draw coherent: a public file that "
            "`lpgcn data cooccurrence` makes."
        ),
    ] = None
    list_sizes: Annotated[
        ListSizes,
        Meta(
            description="bucketed: more virtual items fill a list up to the next of a few sizes, "
            "so that its size says little about how many items are real."
        ),
    ] = "exact"
    min_degree: Annotated[
        int,
        Meta(ge=1, description="Items with fewer real users than this stay out of the exchange."),
    ] = 1
    planner: Annotated[
        PlannerName,
        Meta(description="Who computes which item; auto: partition if installed, else greedy."),
    ] = "auto"
    max_load: Annotated[
        str,
        Meta(
            description="Most neighbours of a convolution-client: a number, none, or auto: no more "
            "than the paper's own plan gives its heaviest client."
        ),
    ] = "auto"
    max_items_per_client: Annotated[
        Count | None, Meta(description="Most items that one client computes.")
    ] = None
    convolution_clients: Annotated[
        Count | None, Meta(description="Most convolution-clients k.")
    ] = None
    never_convolve: Annotated[
        str | None,
        Meta(description="A file of user ids, one a line, that compute nothing for others."),
    ] = None
    length_exponent: Annotated[
        float,
        Meta(
            ge=0, le=1, multiple_of=EXPONENT_STEP,
            description="p of the score ‖e_u‖ cos ‖e_i‖^p by which items are ranked: 1 is the "
            "inner product, 0 the cosine; in quarters.",
        ),
    ] = 1.0  # fmt: skip
    at: Annotated[
        tuple[Annotated[int, Meta(ge=1)], ...],
        Meta(min_length=1, description="K of the metrics @K."),
    ] = (20,)
    mask: Annotated[
        Mask, Meta(description="Items left out of the ranking when the test set is looked at.")
    ] = "train"
    dtype: Annotated[Dtype, Meta(description="Precision of all vectors.")] = "float32"

    def __post_init__(self) -> None:
        check_fields(self)
        for name in ("lr", "reg", "init_deviation", "negative_weight"):
            if not math.isfinite(getattr(self, name) or 0):
                raise ConfigError(f"{name} is {getattr(self, name)}; expected a finite number")
        weights = self.layer_weights
        if weights is not None and not (
            len(weights) == self.layers + 1 and 0 < sum(weights) < math.inf
        ):
            raise ConfigError(
                f"layer-weights are {', '.join(map(str, weights))}; expected {self.layers + 1} "
                f"numbers, one for each of layers 0 to {self.layers}, not all of them 0"
            )
        self._check_loss()
        if self.virtual_draw == "coherent" and self.cooccurrence is None:
            raise ConfigError(
                "virtual-draw is coherent, which needs a public list of what goes together; give "
                "--cooccurrence FILE (`lpgcn data cooccurrence` makes one), or draw by popularity"
            )
        self.load_limit  # noqa: B018
        self.alpha  # noqa: B018 -- a malformed count is an error here, not at its first use

    def _check_loss(self) -> None:
        if self.pooled and self.batch_size != "full":
            raise ConfigError(
                f"batch-size is {self.batch_size} with loss softmax, whose answers are hidden in "
                "sums over everybody; expected batch-size full"
            )
        if self.answers is not None and self.answers > self.negatives:
            raise ConfigError(
                f"answers is {self.answers}, and a pool has {self.negatives} negatives; expected "
                "no more answers than negatives"
            )
        for name in () if self.pooled else OF_SOFTMAX:
            if (found := getattr(self, name)) != _DEFAULTS[name]:
                raise ConfigError(
                    f"{name.replace('_', '-')} is {found} with loss {self.loss}, which has no "
                    "pools; leave it out, or choose loss softmax"
                )

    def __hash__(self) -> int:
        """Options are a table, which has none of its own."""
        return hash(msgspec.json.encode(self, order="deterministic"))

    @property
    def pooled(self) -> bool:
        """Whether negatives are in pools that many users share."""
        return self.loss == "softmax"

    @property
    def number_bytes(self) -> int:
        """The size of one number of a vector."""
        return 4 if self.dtype == "float32" else 8

    @property
    def alpha(self) -> tuple[int, float]:
        """`virtual_items` as (count, ratio of |I_u|)."""
        text = self.virtual_items.strip()
        try:
            count, ratio = (0, float(text[:-1])) if text.endswith("x") else (int(text), 0.0)
        except ValueError:
            count, ratio = -1, 0.0
        if count < 0 or not 0 <= ratio < math.inf:
            raise ConfigError(
                f"virtual-items is {self.virtual_items!r}; expected a count such as 10, or a "
                "multiple of the number of a user's own items such as 1.0x"
            )
        return count, ratio

    @property
    def has_virtual_items(self) -> bool:
        return self.alpha != (0, 0.0)

    @property
    def load_limit(self) -> int | Literal["auto"] | None:
        """`max_load` as a number, "auto", or None for no limit."""
        text = self.max_load.strip()
        if text in ("auto", "none"):
            return "auto" if text == "auto" else None
        if not (text.isascii() and text.isdecimal()):
            raise ConfigError(f"max-load is {text!r}; expected a number, auto, or none")
        return int(text)

    @property
    def cutoffs(self) -> tuple[int, ...]:
        """Every K that is measured: 20 always, because early stopping looks at Recall@20."""
        return tuple(sorted({*self.at, 20}))

    def learning_rate(self, step: int, total_steps: int) -> float:
        """γ at a step: grows linearly over `warmup`, then constant or half a cosine to zero."""
        grown = min(1.0, (step + 1) / (self.warmup + 1))
        if self.schedule == "constant":
            return self.lr * grown
        return self.lr * grown * half_cosine(step / total_steps)

    def sampled(self, batch_size: int) -> Config:
        """With the paper's loss in batches, and nothing of softmax."""
        without = {name: _DEFAULTS[name] for name in OF_SOFTMAX}
        return self.changed(loss="bpr", batch_size=batch_size, **without)

    def changed(self, **values: Any) -> Config:
        """This configuration with other values, checked as if read from a file."""
        return parse({**msgspec.to_builtins(self), **values})


_DEFAULTS: Final[dict[str, Any]] = dict(
    zip(Config.__struct_fields__, Config.__struct_defaults__, strict=True)
)


def parse(values: dict[str, Any], where: str = "configuration") -> Config:
    return convert(values, Config, where)


def read_config(path: Path) -> Config:
    """The configuration in a TOML file; keys that it does not have are at their defaults."""
    return parse(read_toml(path), str(path))


def convert(values: dict[str, Any], struct: type[Struct], where: str) -> Struct:
    """The struct with these values; an error names the key, and a near one if it is unknown."""
    names = struct.__struct_fields__
    for name in sorted(values.keys() - set(names)):
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise ConfigError(f"{where}: unknown key {name!r}{meant}; the keys are {', '.join(names)}")
    try:
        return msgspec.convert(values, struct, strict=True)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at `$.")
        key = re.split(r"\W", place)[0]
        raise ConfigError(
            f"{where}: {_found(key, values.get(key), what, _kinds(struct).get(key))}"
        ) from error


def check_fields(struct: msgspec.Struct) -> None:
    """What is made in Python is checked as if read from a file, which msgspec does not do itself;
    a list where a tuple is meant, or 1 where 1.0 is, is brought into its form."""
    for name, kind in _kinds(type(struct)).items():
        value = getattr(struct, name)
        try:
            msgspec.structs.force_setattr(struct, name, msgspec.convert(value, kind, strict=True))
        except msgspec.ValidationError as error:
            what = str(error).partition(" - at `$")[0]
            raise ConfigError(_found(name, value, what, kind)) from error


@cache
def _kinds(struct: type[msgspec.Struct]) -> dict[str, Any]:
    return get_type_hints(struct, include_extras=True)


def _found(key: str, value: object, what: str, kind: Any) -> str:
    found = f"{key} is {value!r}; " if key else ""
    if what.startswith("Invalid enum value"):
        words = _words(kind)
        near = difflib.get_close_matches(str(value), words, n=1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        return f"{found}expected {' or '.join(words)}{meant}"
    return f"{found}{what[0].lower()}{what[1:]}"


def _words(kind: Any) -> list[str]:
    """Those that a type has, and that it has numbers beside them."""
    inner = get_args(kind)
    if get_origin(kind) is Literal:
        return [str(word) for word in inner]
    return ["a whole number"] if kind is int else [word for one in inner for word in _words(one)]


def read_toml(path: Path) -> dict[str, Any]:
    """The keys of a TOML file, with '-' and '_' alike."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"there is no file {path}; check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}; mend it") from error
    return {key.replace("-", "_"): value for key, value in values.items()}


def write_toml(path: Path, values: dict[str, Any], *, mode: int = 0o666) -> None:
    """A flat table, with tables in a line. Absent values are left out, as TOML has no null."""
    lines = [
        f"{key} = {_toml(value)}\n"
        for key, value in values.items()
        if value is not None and value != {}
    ]
    write_atomically(path, "".join(lines).encode(), mode=mode)


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml(key)} = {_toml(its)}' for key, its in value.items())}}}"
    # Strings, numbers and lists are written alike in JSON and TOML, but for this one character.
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")
