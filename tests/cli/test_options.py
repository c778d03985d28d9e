"""Every field of the configuration is a flag, and flags override the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lpgcn.cli import main
from lpgcn.cli.options import Names
from lpgcn.config import Config
from lpgcn.runtime.runs import training
from lpgcn.runtime.runs.run_folder import Summary
from lpgcn.runtime.runs.source import Source

SUMMARY = Summary(
    version="0", dataset="d", fingerprint="f", mode="m", model="l", epochs=1, best_epoch=1, steps=1,
    seconds=1, loss=1, valid={"recall@20": 1.0}, test={"recall@20": 1.0}, test_users=1,
)  # fmt: skip


def called(*arguments: str) -> tuple[Source, Config, dict[str, Any]]:
    """What the command line asks the training loop for."""
    calls: list[tuple[Source, Config, dict[str, Any]]] = []

    def record(source: Source, config: Config, **options: Any) -> Summary:
        calls.append((source, config, options))
        return SUMMARY

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train", record)
        outcome = CliRunner().invoke(main, ["train", *arguments])
    assert outcome.exit_code == 0, outcome.stderr
    return calls[0]


def asked(*arguments: str) -> tuple[Source, Config]:
    return called(*arguments)[:2]


def flags(config: Config) -> list[str]:
    """The configuration as somebody would type it."""
    words: list[str] = []
    for name, value in msgspec.structs.asdict(config).items():
        if isinstance(value, dict):
            words += [word for key, its in value.items() for word in ("--option", f"{key}={its}")]
            continue
        for one in value if isinstance(value, tuple) else (value,):
            if one is not None:
                words += [f"--{name.replace('_', '-')}", str(one)]
    return words


configs = st.builds(
    Config,
    model=st.sampled_from(["lightgcn", "lightgcn+"]),
    layers=st.integers(1, 16),
    lr=st.floats(1e-300, 1e300),
    reg=st.floats(0, 1),
    seed=st.integers(0, 2**63 - 1),
    init_deviation=st.none() | st.floats(1e-9, 1e9),
    virtual_items=st.sampled_from(["0", "17", "0.5x"]),
    at=st.lists(st.integers(1, 1000), min_size=1, max_size=3).map(tuple),
    mask=st.sampled_from(["train", "train+valid"]),
    batch_size=st.just("full") | st.integers(1, 2**31),
) | st.builds(
    Config,
    loss=st.just("softmax"),
    batch_size=st.just("full"),
    temperature=st.floats(0.075, 100),
    negatives=st.integers(2**6, 2**13),
    negative_weight=st.floats(1e-300, 1e9),
    answers=st.none() | st.integers(1, 2**6),
    groups=st.integers(1, 2**31),
)


@settings(max_examples=25)
@given(configs)
def test_a_configuration_survives_flags(config: Config) -> None:
    assert asked("demo", *flags(config)) == (Source(dataset="demo"), config)


def test_threads_go_to_the_training() -> None:
    for words, wanted in (((), None), (("--threads", "3"), 3)):
        assert called("demo", *words)[2]["threads"] == wanted


def test_every_field_is_a_flag_with_its_default_and_description() -> None:
    text = " ".join(CliRunner().invoke(main, ["train", "--help"]).stdout.split())
    for name, value in msgspec.structs.asdict(Config()).items():
        assert f"--{name.replace('_', '-')} " in text
        if isinstance(value, str | float | int):
            assert f"[default: {value}]" in text
    assert "Adam's learning rate" in text


def test_without_flags_the_defaults_hold() -> None:
    assert asked("demo") == (Source(dataset="demo"), Config())


def test_flags_override_the_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("layers = 2\nbatch-size = 7\nat = [5, 10]\n")
    assert asked("demo", "--config", str(path))[1] == Config(layers=2, batch_size=7, at=(5, 10))
    found = asked("demo", "--config", str(path), "--layers", "4", "--at", "1")[1]
    assert found == Config(layers=4, batch_size=7, at=(1,))


def refused(*arguments: str) -> str:
    """What is said about flags that nothing is trained with."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train", lambda *_, **__: pytest.fail("something is trained"))
        outcome = CliRunner().invoke(main, ["train", "demo", *arguments])
    assert outcome.exit_code == 2
    return outcome.stderr.strip()


def test_a_batch_is_so_many_samples_or_full() -> None:
    assert asked("demo", "--batch-size", "12")[1] == Config(batch_size=12)
    assert asked("demo", "--batch-size", "full")[1] == Config(batch_size="full")
    text = " ".join(CliRunner().invoke(main, ["train", "--help"]).stdout.split())
    assert "--batch-size N|full " in text


@pytest.mark.parametrize("wrong", ["foo", "1.5", "Full", ""])
def test_a_batch_of_another_word_is_refused(wrong: str) -> None:
    expected = f"Invalid value for '--batch-size': {wrong!r} is not a number or full."
    assert expected in refused("--batch-size", wrong)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--batch-size", "0"), "batch_size is 0; expected `int` >= 1"),
        (("--loss", "softmax"), "with loss softmax, whose answers are hidden in sums"),
        (("--loss", "softmax", "--batch-size", "12"), "; expected batch-size full"),
        (("--temperature", "0.01"), "temperature is 0.01; expected `float` >= 0.075"),
        (("--temperature", "nan"), "temperature is nan"),
        (("--negatives", "0"), "negatives is 0; expected `int` >= 1"),
    ],
)
def test_what_the_configuration_refuses_is_refused_as_flags(
    flags: tuple[str, ...], message: str
) -> None:
    assert message in refused(*flags)


def test_a_file_with_full_batches_can_be_given_a_number(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('batch-size = "full"\n')
    found = asked("demo", "--config", str(path), "--loss", "softmax")[1]
    assert found == Config(loss="softmax", batch_size="full")
    assert asked("demo", "--config", str(path), "--batch-size", "7")[1] == Config(batch_size=7)


def test_files_of_your_own() -> None:
    found, _ = asked(
        *("mine", "--train", "a.csv", "--format", "csv", "--user-column", "who"),
        *("--minimum-rating", "3.5", "--ratio", "0.6", "0.2", "0.2", "--split-seed", "4"),
    )
    assert found == Source(
        dataset="mine", train="a.csv", format="csv", user_column="who", minimum_rating=3.5,
        ratio=(0.6, 0.2, 0.2), split_seed=4,
    )  # fmt: skip
    assert asked("--train", "folder/a.csv")[0] == Source(dataset="a", train="folder/a.csv")


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("a, b,,c ", ("a", "b", "c")),
        ("", ()),
        ('"Matrix 1, The (1999)"', ("Matrix 1, The (1999)",)),
        ('Alien, "Matrix, The", 7" disk', ("Alien", "Matrix, The", '7" disk')),
        ('"""Heroes"", live",b', ('"Heroes", live', "b")),
    ],
)
def test_names_with_commas_are_in_quotes(said: str, names: tuple[str, ...]) -> None:
    assert Names().convert(said, None, None) == names


@pytest.mark.parametrize("said", ['"Matrix, The', '"Matrix" The', "a\nb"])
def test_quotes_that_do_not_fit_are_refused(said: str) -> None:
    with pytest.raises(click.BadParameter, match="expected commas between them, double quotes"):
        Names().convert(said, None, None)
