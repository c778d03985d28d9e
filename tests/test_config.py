"""The configuration: TOML and back, flags and back, and what is refused."""

from __future__ import annotations

import json
import math
import re
import string
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from lpgcn.config import (
    MOST_NEGATIVES,
    OF_SOFTMAX,
    Config,
    ConfigError,
    convert,
    parse,
    read_config,
    read_toml,
    write_toml,
)

CONFIGS = Path(__file__).parents[1] / "configs"


def values_of(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Values that a type of the struct allows, from its own description."""
    match kind:
        case inspect.Metadata(type=inner):
            return values_of(inner)
        case inspect.UnionType(types=types):
            return st.one_of(*map(values_of, types))
        case inspect.VarTupleType(item_type=inner):
            return st.lists(values_of(inner), min_size=1, max_size=4).map(tuple)
        case inspect.LiteralType(values=values):
            return st.sampled_from(values)
        case inspect.IntType(ge=least, le=most):
            return st.integers(least, most or 2**31)
        case inspect.FloatType(ge=least, le=most, multiple_of=float() as step):
            numbers = st.integers(round((least or 0) / step), round((most or 1e9) / step))
            return numbers.map(lambda number: number * step)
        case inspect.FloatType(ge=least, gt=above, le=most):
            return st.floats(least or above or 0, most or 1e9, exclude_min=above is not None)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values_of(key), values_of(value), max_size=3)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.StrType():
            return st.integers(0, 99).map(str) | st.floats(0, 9).map(lambda ratio: f"{ratio}x")
    raise AssertionError(f"no strategy for {kind}")


def configs() -> st.SearchStrategy[Config]:
    described = inspect.type_info(Config)
    assert isinstance(described, inspect.StructType)
    fields = {field.name: values_of(field.type) for field in described.fields}
    fields["cooccurrence"] = st.just("together.npz")
    fields["max_load"] = st.sampled_from(["auto", "none"]) | st.integers(0, 99).map(str)
    no_pools = {name: st.just(getattr(Config(), name)) for name in OF_SOFTMAX}
    softmax = {"loss": st.just("softmax"), "batch_size": st.just("full"), "answers": st.none()}
    losses = st.sampled_from([{"loss": st.just("bpr"), **no_pools}, softmax])
    return st.tuples(losses, layers()).flatmap(
        lambda both: st.builds(Config, **{**fields, **both[0], **both[1]})
    )


@st.composite
def layers(draw: st.DrawFn) -> dict[str, st.SearchStrategy[Any]]:
    """Layers, and a weight for each of them and for layer 0, or none."""
    count = draw(st.integers(1, 16))
    weight = st.floats(0, 1e9)
    weights = st.lists(weight, min_size=count + 1, max_size=count + 1).filter(any).map(tuple)
    return {"layers": st.just(count), "layer_weights": st.none() | weights}


@given(configs())
def test_a_configuration_survives_toml(tmp_path_factory: Any, config: Config) -> None:
    path = tmp_path_factory.getbasetemp() / "config.toml"
    write_toml(path, msgspec.to_builtins(config))
    assert read_config(path) == config


@given(st.dictionaries(st.text(string.ascii_lowercase, min_size=1), st.text(), max_size=3))
def test_any_text_survives_toml(tmp_path_factory: Any, values: dict[str, str]) -> None:
    path = tmp_path_factory.getbasetemp() / "text.toml"
    write_toml(path, values)
    assert read_toml(path) == values


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_can_be_read(path: Path) -> None:
    said, read = read_toml(path), json.loads(msgspec.json.encode(read_config(path)))
    assert said and said == {name: read[name] for name in said}


@pytest.mark.parametrize(("name", "layers", "reg"), [("gowalla", 4, 1e-4), ("yelp2018", 3, 1e-4)])
def test_recipes_have_the_settings_of_the_paper(name: str, layers: int, reg: float) -> None:
    config = read_config(CONFIGS / f"{name}.toml")
    assert config == Config(
        model="lightgcn+", layers=layers, dim=64, lr=1e-3, reg=reg, batch_size=2048,
        epochs=1000, patience=50,
    )  # fmt: skip


def test_an_unknown_key_is_an_error_that_names_the_near_one(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("lyers = 2\n")
    with pytest.raises(ConfigError, match=r"mine\.toml: unknown key 'lyers' .*'layers'"):
        read_config(path)


def test_dashes_and_underscores_are_alike(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("batch-size = 7\neval_every = 3\n")
    assert read_config(path) == Config(batch_size=7, eval_every=3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layers": 0}, "layers is 0; expected `int` >= 1"),
        ({"layers": 2.5}, "layers is 2.5; expected `int`, got `float`"),
        ({"at": []}, "at is"),
        ({"at": [20, 0]}, "at is"),
        ({"loss": "bpm"}, "loss is 'bpm'; expected bpr or softmax (did you mean 'bpr'?)"),
        ({"lr": math.inf}, "lr is inf; expected a finite number"),
        ({"lr": math.nan}, "lr is nan"),
        ({"init_deviation": 0.0}, "init_deviation is 0.0; expected `float` > 0"),
        ({"virtual_items": "many"}, "virtual-items is 'many'"),
        ({"virtual_items": "-1"}, "virtual-items is '-1'"),
        ({"virtual_items": "infx"}, "virtual-items is 'infx'"),
        ({"max_load": "heavy"}, "max-load is 'heavy'"),
        ({"layers": 2, "layer_weights": [1.0, 1.0]}, "layer-weights are 1.0, 1.0; expected 3"),
        ({"layers": 1, "layer_weights": [0.0, 0.0]}, "layers 0 to 1, not all of them 0"),
        ({"layers": 1, "layer_weights": [1.0, math.inf]}, "layer-weights are 1.0, inf; expected 2"),
        ({"layers": 1, "layer_weights": [1.0, -0.5]}, "layer_weights is [1.0, -0.5]; expected"),
        ({"loss": "hinge"}, "loss is 'hinge'; expected bpr or softmax"),
        ({"temperature": 0.0749}, "temperature is 0.0749; expected `float` >= 0.075"),
        ({"temperature": 100.5}, "temperature is 100.5; expected `float` <= 100"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"negatives": 0}, "negatives is 0; expected `int` >= 1"),
        ({"negatives": 8193}, "negatives is 8193; expected `int` <= 8192"),
        ({"negative_weight": 0.0}, "negative_weight is 0.0; expected `float` > 0"),
        ({"negative_weight": math.inf}, "negative_weight is inf; expected `float` <= 1000000000.0"),
        ({"answers": 0}, "answers is 0; expected `int` >= 1"),
        ({"groups": 0}, "groups is 0; expected `int` >= 1"),
        ({"batch_size": 0}, "batch_size is 0; expected `int` >= 1"),
        ({"batch_size": "half"}, "batch_size is 'half'; expected a whole number or full"),
        ({"batch_size": 1.5}, "batch_size is 1.5; expected `int | str`"),
    ],
)
def test_a_wrong_value_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        parse(values)


@pytest.mark.parametrize("values", [{}, {"batch_size": 1}, {"batch_size": 4096}])
def test_softmax_in_batches_is_refused_and_told_what_to_ask_for(values: dict[str, Any]) -> None:
    size = values.get("batch_size", Config().batch_size)
    with pytest.raises(
        ConfigError, match=rf"batch-size is {size} with loss softmax, .*; expected batch-size full$"
    ):
        parse({"loss": "softmax", **values})
    with pytest.raises(ConfigError, match=r"expected batch-size full$"):
        Config(loss="softmax", batch_size="full").changed(batch_size=size)


@given(st.integers(1, MOST_NEGATIVES), st.integers(1, 2 * MOST_NEGATIVES))
def test_a_pool_has_as_many_negatives_as_are_answered(negatives: int, answers: int) -> None:
    asked = {"loss": "softmax", "batch_size": "full", "negatives": negatives, "answers": answers}
    if answers <= negatives:
        assert parse(asked).answers == answers
    else:
        with pytest.raises(ConfigError, match=rf"answers is {answers}, .* {negatives} negatives"):
            parse(asked)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.2),
        ("negatives", 9),
        ("negative_weight", 2.0),
        ("answers", 9),
        ("groups", 2),
    ],
)
def test_settings_of_pools_are_refused_where_there_are_none(name: str, value: float) -> None:
    softmax = Config(loss="softmax", batch_size="full").changed(**{name: value})
    assert softmax.sampled(batch_size=9) == Config(batch_size=9)
    with pytest.raises(ConfigError, match="with loss bpr, which has no pools; leave it out"):
        Config().changed(**{name: value})


def test_only_softmax_has_pools_and_either_loss_can_have_full_batches() -> None:
    assert parse({"loss": "softmax", "batch_size": "full"}).pooled
    assert not parse({"loss": "bpr", "batch_size": "full"}).pooled
    assert not Config().pooled


def test_a_file_that_is_missing_or_not_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        read_config(tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("layers = = 2")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_config(tmp_path / "broken.toml")


def test_a_missing_required_key_is_named() -> None:
    class Scope(msgspec.Struct):
        this: int

    with pytest.raises(ConfigError, match="here: object missing required field `this`"):
        convert({}, Scope, "here")


@given(st.integers(0, 20), st.integers(1, 200))
def test_the_learning_rate_grows_then_falls(warmup: int, total: int) -> None:
    config = Config(lr=0.5, warmup=warmup, schedule="cosine")
    constant = Config(lr=0.5, warmup=warmup)
    for step in range(total):
        grown = min(1, (step + 1) / (warmup + 1))
        assert constant.learning_rate(step, total) == pytest.approx(0.5 * grown)
        cosine = math.cos(math.pi * step / (2 * total)) ** 2
        rate = config.learning_rate(step, total)
        assert rate == pytest.approx(0.5 * grown * cosine, rel=1e-12, abs=0)


def test_recall_at_20_is_always_measured() -> None:
    assert Config(at=(5,)).cutoffs == (5, 20)
    assert Config(at=(20, 1, 20)).cutoffs == (1, 20)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layers": -1}, "layers is -1; expected `int` >= 1"),
        (
            {"mode": "fedrated"},
            "mode is 'fedrated'; expected centralized or simulated or federated",
        ),
        ({"epochs": 2.5}, "epochs is 2.5; expected `int`"),
        ({"at": ()}, r"at is \(\); expected `array` of length >= 1"),
        ({"at": (5, 0)}, r"at is \(5, 0\); expected `int` >= 1"),
        ({"batch_size": "half"}, "batch_size is 'half'; expected a whole number or full"),
    ],
)
def test_what_is_made_in_python_is_checked_as_what_is_read(
    values: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        Config(**values)
    with pytest.raises(ConfigError, match=f"configuration: {message}"):
        parse(values)


def test_what_is_made_in_python_is_brought_into_its_form() -> None:
    made = Config(at=[5, 20], lr=1, layers=1, layer_weights=[1, 2])  # type: ignore[arg-type]
    assert made == parse({"at": [5, 20], "lr": 1.0, "layers": 1, "layer_weights": [1.0, 2.0]})
    assert isinstance(made.lr, float) and made.layer_weights == (1.0, 2.0)
    assert hash(made.at) == hash((5, 20))
