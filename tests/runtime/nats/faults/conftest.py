"""Federations of real processes, and what they must come to: see `field`."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pytest

from lpgcn.config import Config
from lpgcn.runtime.runs.run_folder import RunFolder
from lpgcn.runtime.runs.saved_model import Recommender
from lpgcn.runtime.runs.training import train
from lpgcn.terms import read_terms

USERS, ITEMS = 16, 30
SETTINGS: dict[str, object] = {
    "model": "lightgcn+", "layers": 2, "dim": 4, "lr": 0.05, "batch-size": 24, "epochs": 4,
    "eval-every": 2, "virtual-items": "3",
}  # fmt: skip


def _loaded(name: str) -> ModuleType:
    """A module beside this one: pytest puts no folder of tests on the path."""
    path = Path(__file__).with_name(f"{name}.py")
    found = importlib.util.spec_from_file_location(f"lpgcn_faults_{name}", path)
    assert found is not None and found.loader is not None
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def harness() -> ModuleType:
    return _loaded("field")


@pytest.fixture(scope="session")
def proxies() -> ModuleType:
    return _loaded("proxy")


@pytest.fixture(scope="session")
def data(harness: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return harness.write_data(tmp_path_factory.mktemp("data"), USERS, ITEMS, 7)


@pytest.fixture
def field_of(
    harness: ModuleType, data: Any, tmp_path: Path, free_port: Callable[[], int]
) -> Iterator[Callable[..., Any]]:
    """Makes federations: two hosts and two clients alone, if nothing else is said."""
    with ExitStack() as stack:

        def make(**options: Any) -> Any:
            settings = {**SETTINGS, **options.pop("settings", {})}
            options.setdefault("hosts", {"host-0": range(7), "host-1": range(7, 14)})
            options.setdefault("joins", {"join-14": 14, "join-15": 15})
            options["port"] = free_port()
            folder = tmp_path / f"field-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            made = harness.opened(lambda: harness.Field(folder, data, settings, **options))
            return stack.enter_context(made)

        yield make


@pytest.fixture(scope="session")
def centralized(
    tmp_path_factory: pytest.TempPathFactory, data: Any
) -> Callable[[dict[str, object], Path], Path]:
    """The run folder of the centralised run that follows a log of terms; each is made once."""
    made: dict[tuple[str, bytes], Path] = {}

    def follow(settings: dict[str, object], terms: Path) -> Path:
        key = repr(settings), terms.read_bytes()
        if key not in made:
            values = {name.replace("-", "_"): value for name, value in settings.items()}
            config = Config().changed(**values, seed=4711)
            made[key] = tmp_path_factory.mktemp("centralized")
            train(data.source, config, out=made[key], threads=1, terms=terms)
        return made[key]

    return follow


@pytest.fixture
def check(centralized: Callable[[dict[str, object], Path], Path]) -> Callable[[Any], None]:
    """Metrics, test figures and every member's vectors are the centralised run's, bit for bit."""

    def compare(field: Any) -> None:
        ours = RunFolder(field.server_folder)
        terms = read_terms(ours.terms)
        out = centralized(field.settings, ours.terms)
        theirs = RunFolder(out)
        assert _timeless(ours.metrics()) == _timeless(theirs.metrics()), field.story()
        mine, expected = ours.summary(), theirs.summary()
        assert mine is not None and expected is not None
        for name in ("best_epoch", "epochs", "steps", "loss", "valid", "test", "test_users"):
            assert getattr(mine, name) == getattr(expected, name), f"{name}\n{field.story()}"
        vectors = Recommender.load(out).vectors
        for user in terms[-1].members:
            model = Recommender.load(field.clients / str(user)).vectors
            _same(model.users[0], vectors.users[user], f"user {user}\n{field.story()}")
            _same(model.items, vectors.items, f"items of user {user}\n{field.story()}")

    return compare


def _timeless(lines: list[Any]) -> list[Any]:
    return [msgspec.structs.replace(line, seconds=0.0) for line in lines]


def _same(found: Any, expected: Any, what: str) -> None:
    assert found.dtype == expected.dtype and found.shape == expected.shape, what
    assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes(), what
