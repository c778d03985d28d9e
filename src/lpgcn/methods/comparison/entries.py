"""What a comparison runs: every model, with every number of layers and every seed asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final

import msgspec

from lpgcn.config import Config, read_toml
from lpgcn.methods.method import OF_THE_LOOP, MethodError
from lpgcn.methods.registry import configured, described, names

DEFAULT: Final = "default"
"""The name of the file with the settings of all models."""


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

    `settings` is a folder with a configuration for each model, where there is one, and with
    default.toml below them all, where there is one; what is `wanted` goes before both. Of what is
    for all, a model takes what means something to it.
    """
    _check_files(settings)
    chosen = {model: _settings(model, settings) for model in models}
    planned = [
        Entry(
            model=model,
            variant=f"L={count}" if count else "",
            config=configured(
                {
                    **chosen[model],
                    **_taken(model, wanted),
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
    if blind := next((one for one in planned if not one.config.eval_every), None):
        raise MethodError(
            f"eval_every is 0 for {blind.label}, and models are compared by what is measured; give "
            "1 or more"
        )
    return planned


def has_layers(model: str) -> bool:
    return "layers" in described(model).settings


def takes(model: str, name: str) -> bool:
    """Whether a setting that is for all means something to this model."""
    known = described(model)
    return name in known.settings or (name in OF_THE_LOOP and name not in known.fixed)


def _taken(model: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if takes(model, name)}


def _check_files(folder: Path | None) -> None:
    """A file of settings that no model has the name of would be ignored, and nobody would know; so
    would a setting for all that no model has."""
    for path in sorted(folder.glob("*.toml")) if folder is not None else ():
        if path.stem not in (DEFAULT, *names()):
            raise MethodError(
                f"{path} has the settings of no model; expected {DEFAULT} or the name of one of "
                f"{', '.join(names())}"
            )
    for name in _read(folder, DEFAULT):
        if not any(takes(model, name) for model in names()):
            raise MethodError(
                f"{DEFAULT}.toml in {folder} has {name}, which is a setting of no model; remove it"
            )


def _settings(model: str, folder: Path | None) -> dict[str, Any]:
    return {**_taken(model, _read(folder, DEFAULT)), **_read(folder, model)}


def _read(folder: Path | None, name: str) -> dict[str, Any]:
    path = None if folder is None else folder / f"{name}.toml"
    return read_toml(path) if path is not None and path.exists() else {}
