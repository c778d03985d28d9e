"""Backbones are told apart by what they have; only one module and the configuration name them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lpgcn
from lpgcn.config import Config, ConfigError
from lpgcn.model.backbones import BACKBONES, PAPERS_OWN, backbone_of

HOUSE = Path(lpgcn.__file__).parent
NAMES = BACKBONES.keys()
NAMERS = {"config.py", "model/backbones/__init__.py"}
METHODS = "methods/"
"""A compared method may be defined on a certain backbone."""
A_FORMAT = {"data/readers.py"}
"""The text files that LightGCN's authors published their data in are called lightgcn, too."""


def literals(source: str) -> set[str]:
    """Every string of a module but its texts; also those within an f-string."""
    return {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def places(folder: Path) -> set[str]:
    """The modules that have the name of a backbone as a string of its own."""
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if NAMES & {text.strip() for text in literals(path.read_text(encoding="utf-8"))}
    }


def test_nobody_else_asks_for_a_backbone_by_its_name() -> None:
    named = {place for place in places(HOUSE) if not place.startswith(METHODS)}
    assert named == NAMERS | A_FORMAT


@pytest.mark.parametrize(
    "line", ['if model == "lightgcn+": ...', "x = {'lightgcn': 1}", 'f(f"lightgcn{sign}")']
)
def test_a_name_would_be_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "one.py").write_text(f'"""About lightgcn."""\n{line}\n')
    assert places(tmp_path) == {"one.py"}


def test_the_default_is_one_and_another_name_is_refused() -> None:
    assert Config().model in PAPERS_OWN and backbone_of(Config()).builds_users
    with pytest.raises(ConfigError, match=r"no backbone; expected lightgcn, "):
        backbone_of(Config(model="ease"))


@pytest.mark.parametrize("model", BACKBONES)
def test_users_are_parameters_or_built(model: str) -> None:
    backbone = backbone_of(Config(model=model))
    assert "items" in backbone.held("items")
    assert backbone.builds_users == (not backbone.held("users"))
    held = backbone.held("users") | backbone.held("items")
    assert held == backbone.tables
    purposes = [table.purpose for table in held.values()]
    assert len(set(purposes)) == len(purposes)


@pytest.mark.parametrize("model", BACKBONES)
def test_layer_weights_are_refused_by_a_readout_without_any(model: str) -> None:
    config = Config(model=model, layers=1, layer_weights=(0.5, 0.5))
    if model.startswith("lightgcn"):
        assert backbone_of(config).layer_weights == (0.5, 0.5)
        return
    with pytest.raises(ConfigError, match=f"layer-weights are given, but .* {model} has none"):
        backbone_of(config)
