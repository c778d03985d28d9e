"""Imports point down the house, never up; what must not be used anywhere is not used anywhere."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import lpgcn

HOUSE = Path(lpgcn.__file__).parent

FLOORS = [
    {"errors"},
    {"random", "ragged", "files"},
    {"fixed_point"},
    {"config"},
    {"data"},
    {"model"},
    {"evaluation"},
    {"plan"},
    {"crypto"},
    {"protocol"},
    {"runtime"},
    {"methods", "privacy", "report"},
    {"cli"},
]
"""From the ground up. The package itself, `lpgcn`, is the public API on top of everything."""

FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
OPEN_TO_ALL = {"lpgcn.__version__"}
MODULES = sorted(HOUSE.rglob("*.py"))
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec", "torch.load", "torch.save"}


def room_of(path: Path) -> str:
    """`model` for model/adam.py, `random` for random.py."""
    return path.relative_to(HOUSE).with_suffix("").parts[0]


def imported(path: Path) -> Iterator[str]:
    """Every name that a module imports, in full: `lpgcn.model.adam.Adam`, `torch`."""
    package = ["lpgcn", *path.relative_to(HOUSE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def called(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func)


def identifier(path: Path) -> str:
    return path.relative_to(HOUSE).as_posix()


every_module = pytest.mark.parametrize("path", MODULES, ids=identifier)
rooms = [path for path in MODULES if room_of(path) not in ("__init__", "__main__")]


def test_every_room_has_a_floor() -> None:
    assert {room_of(path) for path in rooms} <= FLOOR.keys()


@pytest.mark.parametrize("path", rooms, ids=identifier)
def test_a_room_imports_only_from_rooms_below_it(path: Path) -> None:
    own = room_of(path)
    for name in imported(path):
        if name.split(".")[0] != "lpgcn" or name in OPEN_TO_ALL:
            continue
        other = name.split(".")[1] if "." in name else ""
        assert other == own or FLOOR.get(other, len(FLOORS)) < FLOOR[own], name


@pytest.mark.parametrize("path", [p for p in rooms if room_of(p) == "crypto"], ids=identifier)
def test_crypto_knows_nothing_of_the_house_but_the_root_of_its_errors(path: Path) -> None:
    inside = {name.split(".")[1] for name in imported(path) if name.startswith("lpgcn.")}
    assert inside <= {"crypto", "errors"}


@every_module
def test_ciphers_are_made_in_crypto_only(path: Path) -> None:
    if room_of(path) != "crypto":
        assert not [name for name in imported(path) if name.split(".")[0] == "cryptography"]


@every_module
def test_nothing_that_runs_what_it_reads(path: Path) -> None:
    assert FORBIDDEN_MODULES.isdisjoint(name.split(".")[0] for name in imported(path))
    assert FORBIDDEN_CALLS.isdisjoint(called(path))
    assert FORBIDDEN_CALLS.isdisjoint(imported(path))


@every_module
def test_randomness_comes_from_one_place(path: Path) -> None:
    names = {*imported(path), *called(path)}
    foreign = ("np.random.", "numpy.random.", "torch.rand", "torch.manual_seed")
    assert not [name for name in names if name == "random" or name.startswith(foreign)]
