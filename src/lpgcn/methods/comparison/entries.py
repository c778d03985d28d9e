"""What a comparison runs: every model, with every number of layers and every seed asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from lpgcn.config import Config, read_toml
from lpgcn.methods.method import OF_THE_LOOP, MethodError
from lpgcn.methods.registry import configured, described, names


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    model: str
    variant: str = ""
    """What distinguishes it from others of the same model, but for the seed, such as L=2."""
    config: Config

    @property
    def label(self) -> str:
        return f"{self.model} {self.variant}".strip()

    def folder(self, out: Path) -> Path:
        name = self.label.replace("=", "").replace(" ", "-").lower()
        return out / name / f"seed-{self.config.seed}"


def entries(
    models: Sequence[str],
    *,
    seeds: int,
    layers: Sequence[int],
    settings: Path | None,
    wanted: Mapping[str, Any],
) -> list[Entry]:
    """For every seed all models, so that an interrupted comparison has something of each.

    `settings` is a folder with a configuration for each model, where there is one; what is `wanted`
    goes before it, for those models that have such a setting.
    """
    chosen = {model: _settings(model, settings) for model in models}
    _check_files(settings)
    return [
        Entry(
            model=model,
            variant=f"L={count}" if count else "",
            config=configured(
                {
                    **chosen[model],
                    **{name: value for name, value in wanted.items() if takes(model, name)},
                    "model": model,
                    "seed": seed,
                    **({"layers": count} if count else {}),
                }
            ),
        )
        for seed, model in product(range(seeds), dict.fromkeys(models))
        # What is computed in one go has no seed.
        if seed == 0 or not described(model).fixed
        for count in (dict.fromkeys(layers) if layers and has_layers(model) else (None,))
    ]


def has_layers(model: str) -> bool:
    return "layers" in described(model).settings


def takes(model: str, name: str) -> bool:
    """Whether a setting that is wanted for all means something to this model."""
    known = described(model)
    return name in known.settings or (name in OF_THE_LOOP and name not in known.fixed)


def _check_files(folder: Path | None) -> None:
    """A file of settings that no model has the name of would be ignored, and nobody would know."""
    for path in sorted(folder.glob("*.toml")) if folder is not None else ():
        if path.stem not in names():
            raise MethodError(
                f"{path} has the settings of no model; expected the name of one of "
                f"{', '.join(names())}"
            )


def _settings(model: str, folder: Path | None) -> dict[str, Any]:
    path = None if folder is None else folder / f"{model}.toml"
    return read_toml(path) if path is not None and path.exists() else {}
