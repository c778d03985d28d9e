"""Backbones are told apart by what they have; only one module and the configuration name them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lpgcn
from lpgcn.config import Config, ConfigError
from lpgcn.model.backbone import BACKBONES, Backbone, backbone_of

HOUSE = Path(lpgcn.__file__).parent
NAMES = BACKBONES.keys()
NAMERS = {"config.py", "model/backbone.py", "methods/lp_gcn.py"}
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
    assert places(HOUSE) == NAMERS | A_FORMAT


@pytest.mark.parametrize(
    "line", ['if model == "lightgcn+": ...', "x = {'lightgcn': 1}", 'f(f"lightgcn{sign}")']
)
def test_a_name_would_be_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "one.py").write_text(f'"""About lightgcn."""\n{line}\n')
    assert places(tmp_path) == {"one.py"}


def test_the_default_is_one_and_another_name_is_refused() -> None:
    assert backbone_of(Config().model) is BACKBONES[Config().model]
    with pytest.raises(ConfigError, match="no backbone; expected lightgcn or"):
        backbone_of("ease")


@pytest.mark.parametrize("backbone", BACKBONES.values(), ids=BACKBONES)
def test_users_are_parameters_or_built(backbone: Backbone) -> None:
    assert "items" in backbone.held("items")
    assert backbone.builds_users == (not backbone.held("users"))
    held = backbone.held("users") | backbone.held("items")
    assert held == backbone.tables
    purposes = [table.purpose for table in held.values()]
    assert len(set(purposes)) == len(purposes)
