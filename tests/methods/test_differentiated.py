"""A backbone's derivatives beside autograd's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpgcn.config import Config
from lpgcn.methods.differentiated import UnknownToAutogradError, differences
from lpgcn.model.backbones import BACKBONES, Backbone, LayerGradient, backbone_of
from lpgcn.model.backbones.checking import problems
from lpgcn.model.backbones.lightgcn import LightGCN
from lpgcn.model.backbones.ngcf import NGCF
from lpgcn.model.kernels.plain import Plain

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
CONFIG = Config(model="ngcf", layers=2, dim=5)


@pytest.mark.parametrize("model", [*BACKBONES, "residual:Residual"])
def test_ours_and_the_example_are_those_of_autograd(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    assert differences(backbone_of(CONFIG.changed(model=model)), Plain()) == []


def test_layer_weights_are_in_the_readout() -> None:
    config = CONFIG.changed(model="lightgcn", layer_weights=(0.5, 0.25, 0.125))
    assert differences(backbone_of(config), Plain()) == []


class AlmostRight(NGCF):
    """Off by a hundred-thousandth, which finite differences let pass."""

    def layer_gradient(self, *arguments: Any) -> LayerGradient:
        right = super().layer_gradient(*arguments)
        return LayerGradient(right.vectors, right.messages * (1 + 1e-5), right.weights)


class WeightForgotten(NGCF):
    def layer_gradient(self, *arguments: Any) -> LayerGradient:
        right = super().layer_gradient(*arguments)
        left = {name: one for name, one in right.weights.items() if name != "product1"}
        return LayerGradient(right.vectors, right.messages, left)


class WrongReadout(NGCF):
    def readout_gradient(self, number: int, gradient: Any) -> Any:
        return 2 * super().readout_gradient(number, gradient)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (AlmostRight, r"layer_gradient\(0, …\).messages\[\d+, \d\] is .*, and autograd says "),
        (WeightForgotten, r"layer_gradient\(1, …\).weights\['product1'\]\[\d, \d\] is 0, "),
        (WrongReadout, r"readout_gradient\(2, …\)\[.* \d+ of 185 numbers differ"),
    ],
)
def test_what_differs_is_said_in_words(wrong: type[Backbone], said: str) -> None:
    found = differences(wrong(CONFIG), Plain())
    assert any(re.search(said, one) for one in found), found


def test_a_small_difference_is_seen_here_alone() -> None:
    assert problems(AlmostRight(CONFIG), Plain()) == []


class Centred(LightGCN):
    def layer(self, number: int, vectors: Any, messages: Any, weights: Any) -> Any:
        return messages - messages.mean(axis=0)


class Sorted(LightGCN):
    def layer(self, number: int, vectors: Any, messages: Any, weights: Any) -> Any:
        return np.sort(messages, axis=1)


@pytest.mark.parametrize(("backbone", "name"), [(Centred, "mean"), (Sorted, "sort")])
def test_what_autograd_cannot_follow_is_named(backbone: type[Backbone], name: str) -> None:
    with pytest.raises(UnknownToAutogradError, match=f"cannot follow {name}; expected"):
        differences(backbone(CONFIG.changed(model="lightgcn")), Plain())
