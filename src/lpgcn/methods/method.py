"""What a method is: a name, settings of its own, something that is fitted epoch after epoch, and in
the end a scorer. The training loop does the rest for all of them alike: progress, validation, early
stopping, checkpoints, the test."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from lpgcn.config import Config, ConfigError, Option, convert
from lpgcn.data import Split
from lpgcn.errors import LpgcnError
from lpgcn.evaluation import Scorer
from lpgcn.methods.traffic import RoundTraffic
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.machine import Machine

OF_THE_LOOP: Final = frozenset(
    {"mode", "model", "option", "epochs", "patience", "eval_every", "seed", "at", "mask"}
)
"""Fields of a configuration that mean the same for every method."""
LEARNING: Final = frozenset({"lr", "schedule", "warmup"})
"""Those behind the learning rate that `Learner.step` is given."""
FACTORS: Final = LEARNING | {"dim", "reg", "init_deviation"}
"""Those of a method that learns vectors."""
IN_ONE_GO: Final[Mapping[str, Any]] = MappingProxyType(
    {"epochs": 1, "eval_every": 1, "patience": 1}
)
"""For a method whose model is computed, not trained."""


class MethodError(LpgcnError):
    """A method that cannot be run as it was asked for."""


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a method that has no settings of its own."""


class UserRounds(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Of a federated method whose steps are rounds of users."""

    users_a_round: Annotated[int, Meta(ge=1, description="Clients that take part in a step.")] = 100


class Losses(NamedTuple):
    """Of the samples of a step."""

    total: float
    samples: int


class Learner(Protocol):
    """A model in training. Everything random is drawn by (seed, epoch, step), so that the next step
    depends on nothing but `state`."""

    @property
    def steps_per_epoch(self) -> int: ...

    def step(self, epoch: int, step: int, learning_rate: float) -> Losses: ...

    def scorer(self) -> Scorer:
        """Of the present parameters; later steps do not change it."""
        ...

    def state(self) -> Tables:
        """All that the next step depends on, and all that `scorer` does, as copies."""
        ...

    def restore(self, state: Tables) -> None: ...

    def traffic(self) -> RoundTraffic | None:
        """What a step sends, of a federation; None of a data centre."""
        ...


class Fit(Protocol):
    """Makes a learner at its beginning."""

    def __call__(self, split: Split, config: Config, options: Any, machine: Machine) -> Learner: ...


@dataclass(frozen=True)
class Method:
    """One that we are compared with. `fit` gets the method's own `options` beside the run's
    configuration, of which it reads the fields in `uses`; any other field that is not at its
    default is refused."""

    name: str
    summary: str
    """A line, with the source."""
    fit: Fit
    protects: str
    """What it really protects, and what it leaks."""
    options: type[msgspec.Struct] = NoOptions
    uses: frozenset[str] = frozenset()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Of configuration fields, where the method's own are others than ours."""
    grid: Mapping[str, tuple[Option, ...]] = field(default_factory=dict)
    """Values of its own settings that a search tries, beside the paper's of λ and layers."""
    needs_torch: bool = False

    @property
    def in_one_go(self) -> bool:
        """Whether its model is computed, not trained."""
        return self.defaults.items() >= IN_ONE_GO.items()

    def check(self, config: Config) -> None:
        """The method can do what the configuration asks for."""
        if config.mode != "centralized":
            raise MethodError(
                f"mode is {config.mode}, but {self.name} has no parties of its own here: a method "
                "like it is computed for all clients at once, beside the bytes that they would "
                "send; leave --mode out"
            )
        plain = Config()
        for name in sorted(set(Config.__struct_fields__) - OF_THE_LOOP - self.uses):
            if getattr(config, name) != self.defaults.get(name, getattr(plain, name)):
                settings = ", ".join(sorted(self.uses)) or "none"
                raise MethodError(
                    f"{name} is {getattr(config, name)}, but {self.name} has no such setting; it "
                    f"has, beside those of every training: {settings}; and with --option: "
                    f"{', '.join(self.options.__struct_fields__) or 'none'}"
                )
        for name, value in IN_ONE_GO.items() if self.in_one_go else ():
            if name == "eval_every" and not config.eval_every:
                continue  # Nothing needs to be held out.
            if getattr(config, name) != value:
                raise MethodError(
                    f"{name} is {getattr(config, name)}, but {self.name} is computed in one go; "
                    "leave it out"
                )

    def options_of(self, config: Config) -> Any:
        """The method's own settings, checked."""
        return convert(config.option, self.options, f"--option of {self.name}")


def check_torch(name: str) -> None:
    """Said before anything is computed."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise MethodError(
            f"{name} needs torch for its gradients, and it is not installed; install it with "
            "`pip install 'lpgcn[compare]'`, on a machine without a GPU after `pip install torch "
            "--index-url https://download.pytorch.org/whl/cpu`"
        )


def unknown(name: str, names: list[str]) -> ConfigError:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return ConfigError(f"model is {name!r}{meant}; expected one of {', '.join(names)}")


MakeLearner = Callable[[], Learner]
