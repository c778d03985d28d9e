"""Backbones of others: how they are found, and what the checker says about wrong ones."""

from __future__ import annotations

import re
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpgcn.config import Config, ConfigError
from lpgcn.methods.registry import described, names
from lpgcn.model import backbones
from lpgcn.model.backbones import BACKBONES, Backbone, LayerGradient, backbone_of, is_backbone
from lpgcn.model.backbones.checking import problems
from lpgcn.model.backbones.lightgcn import LightGCN
from lpgcn.model.backbones.ngcf import NGCF
from lpgcn.model.kernels.compiled import Compiled
from lpgcn.model.kernels.threads import Threads

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
CONFIG = Config(model="ngcf", layers=2, dim=5)
KERNELS = Compiled(Threads(1))


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Config:
    """The file that the documentation shows."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return CONFIG.changed(model="residual:Residual")


@pytest.mark.parametrize("model", BACKBONES)
def test_nothing_is_wrong_with_ours(model: str) -> None:
    assert problems(backbone_of(CONFIG.changed(model=model)), KERNELS) == []


def test_nothing_is_wrong_with_the_example(example: Config) -> None:
    assert problems(backbone_of(example), KERNELS) == []
    assert is_backbone(example.model) and described(example.model).needs_torch is False


class OwnForgotten(NGCF):
    def layer_gradient(self, *arguments: Any) -> LayerGradient:
        right = super().layer_gradient(*arguments)
        return LayerGradient(0 * right.vectors, right.messages, right.weights)


class WrongMessages(NGCF):
    def layer_gradient(self, *arguments: Any) -> LayerGradient:
        right = super().layer_gradient(*arguments)
        return LayerGradient(right.vectors, right.vectors, right.weights)


class WeightForgotten(NGCF):
    def layer_gradient(self, *arguments: Any) -> LayerGradient:
        right = super().layer_gradient(*arguments)
        left = {name: one for name, one in right.weights.items() if name != "product1"}
        return LayerGradient(right.vectors, right.messages, left)


class WrongReadout(NGCF):
    def readout_gradient(self, number: int, gradient: Any) -> Any:
        return super().readout_gradient(max(0, number - 1), gradient)


class ShortReadout(NGCF):
    final_dim = 5


class Centred(LightGCN):
    """What a node gets depends on who else is in the table."""

    def layer(self, number: int, vectors: Any, messages: Any, weights: Any) -> Any:
        return messages - messages.mean(axis=0)

    def layer_gradient(
        self, number: int, v: Any, m: Any, result: Any, gradient: Any, weights: Any
    ) -> LayerGradient:
        return LayerGradient(np.zeros_like(v), gradient - gradient.mean(axis=0))


class HalfPrecision(NGCF):
    def layer(self, *arguments: Any) -> Any:
        return super().layer(*arguments).astype(np.float32)


class TableName(NGCF):
    def weights(self) -> Any:
        return {**super().weights(), "items": (5, 5)}


class Misspelt(NGCF):
    def layer(self, number: int, vectors: Any, messages: Any, weights: Any) -> Any:
        return weights.times(vectors + messages, f"summ{number}")


class InPlace(NGCF):
    """The messages belong to the pass, which needs them to go back."""

    def layer(self, number: int, vectors: Any, messages: Any, weights: Any) -> Any:
        messages += vectors
        return super().layer(number, vectors, messages, weights)


class NoNumber(NGCF):
    def layer(self, *arguments: Any) -> Any:
        return np.inf * super().layer(*arguments)


class Tuple(NGCF):
    def layer_gradient(self, *arguments: Any) -> Any:
        right = super().layer_gradient(*arguments)
        return right.vectors, right.messages


class StrangeWeight(NGCF):
    def layer_gradient(self, *arguments: Any) -> LayerGradient:
        right = super().layer_gradient(*arguments)
        more = {**right.weights, "other": (right.vectors, right.messages)}
        return LayerGradient(right.vectors, right.messages, more)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (Misspelt, r"KeyError: 'summ0'; in layer, .*test_own.py, line \d+"),
        (InPlace, r"ValueError: output array is read-only; in layer, .*test_own.py, line \d+"),
        (NoNumber, r"layer\(0, …\) gives -?inf; expected numbers"),
        (Tuple, r"layer_gradient\(0, …\) gives a tuple; expected a LayerGradient"),
        (StrangeWeight, r"layer_gradient\(0, …\).weights has 'other', which is not in weights\(\)"),
        (OwnForgotten, r"layer_gradient\(0, …\).vectors is no derivative of layer: .* it says 0,"),
        (WrongMessages, r"layer_gradient\(0, …\).messages is no derivative"),
        (WeightForgotten, r"layer_gradient\(1, …\).weights\['product1'\] is no derivative"),
        (WrongReadout, r"readout_gradient\(1, …\) is no derivative of readout"),
        (ShortReadout, r"readout gives shape \(37, 15\), but final_dim is 5"),
        (Centred, r"layer of layer 0: a row alone has other bits than in a table"),
        (HalfPrecision, r"layer\(0, …\) gives float32 .*; expected float64"),
        (TableName, r"weights\(\) has 'items', which is the name of a table"),
    ],
)
def test_what_is_wrong_is_said_in_words(wrong: type[Backbone], said: str) -> None:
    found = problems(wrong(CONFIG), KERNELS)
    assert any(re.search(said, one) for one in found), found


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nowhere.at_all:Thing", r"No module named 'nowhere'.*PYTHONPATH"),
        ("residual:Nothing", "is not there; expected a subclass"),
        ("residual:np", "expected a subclass of lpgcn.model.backbones.Backbone"),
        ("lpgcn.model.backbones.backbone:Concatenated", "has no layer, layer_gradient; write them"),
    ],
)
def test_what_cannot_be_used_is_refused(example: Config, model: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        backbone_of(example.changed(model=model))


def test_a_linear_backbone_with_a_layer_of_its_own_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Propagation would never ask for it, and train LightGCN."""
    (tmp_path / "linear_of_mine.py").write_text(
        "from lpgcn.model.backbones.lightgcn import LightGCN\n"
        "class Mine(LightGCN):\n    def layer(self, *arguments):\n        return arguments[1]\n"
        "class Same(LightGCN):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert backbone_of(CONFIG.changed(model="linear_of_mine:Same")).layers == 2
    with pytest.raises(ConfigError, match="has a layer of its own, but is a Linear one"):
        backbone_of(CONFIG.changed(model="linear_of_mine:Mine"))


def test_an_entry_point_announces_one(example: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("residual-gcn", example.model, backbones.GROUP),
        EntryPoint("ngcf", example.model, backbones.GROUP),
    ]
    monkeypatch.setattr(backbones, "entry_points", lambda group: points)
    backbones.class_of.cache_clear()
    assert "residual-gcn" in names() and is_backbone("residual-gcn")
    assert type(backbone_of(CONFIG.changed(model="residual-gcn"))).__name__ == "Residual"
    assert isinstance(backbone_of(CONFIG), NGCF), "the names of ours stay ours"


def test_the_page_shows_the_file_that_is_tested() -> None:
    page = EXAMPLES.parent / "how-to" / "own-backbone.md"
    shown = (EXAMPLES / "residual.py").read_text(encoding="utf-8")
    assert shown in page.read_text(encoding="utf-8")
    assert len(shown.splitlines()) <= 32
