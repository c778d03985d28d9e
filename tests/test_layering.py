"""Imports point down the house, never up; what must not be used anywhere is not used anywhere."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import lpgcn

HOUSE = Path(lpgcn.__file__).parent

FLOORS = [
    {"errors", "array_types", "schedule"},
    {"random", "ragged", "files"},
    {"checkpoints", "terms"},
    {"fixed_point"},
    {"config"},
    {"data"},
    {"model"},
    {"evaluation"},
    {"plan"},
    {"crypto"},
    {"protocol"},
    {"runtime"},
    {"methods"},
    {"privacy", "report"},
    {"cli"},
]
"""From the ground up. The package itself, `lpgcn`, is the public API on top of everything."""

MAY_USE_TORCH = {"methods"}
"""Where autograd is used: the methods that we are compared with."""

FLOOR = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
OPEN_TO_ALL = {"lpgcn.__version__"}
MODULES = sorted(HOUSE.rglob("*.py"))
FORBIDDEN_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec", "torch.load", "torch.save"}
WITH_A_STATE = re.compile(r"(np|numpy)\.random\b|torch\.(rand|normal|bernoulli|manual_seed)")


def room_of(path: Path) -> str:
    """`model` for model/adam.py, `random` for random.py."""
    return path.relative_to(HOUSE).with_suffix("").parts[0]


@cache
def names_in(path: Path) -> tuple[list[str], list[str]]:
    """Those that a module imports, in full: `lpgcn.model.adam.Adam`, `torch`; and what it calls."""
    package = ["lpgcn", *path.relative_to(HOUSE).parts[:-1]]
    imports, calls = list[str](), list[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imports += (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            imports += (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            calls.append(ast.unparse(node.func))
    return imports, calls


def imported(path: Path) -> list[str]:
    return names_in(path)[0]


def called(path: Path) -> list[str]:
    return names_in(path)[1]


def identifier(path: Path) -> str:
    return path.relative_to(HOUSE).as_posix()


every_module = pytest.mark.parametrize("path", MODULES, ids=identifier)
rooms = [path for path in MODULES if room_of(path) not in ("__init__", "__main__")]


def test_every_room_has_a_floor() -> None:
    assert {room_of(path) for path in rooms} <= FLOOR.keys()


def outsiders(*inside: str) -> Iterator[tuple[Path, str]]:
    """Modules of all rooms but these, with every name that they import."""
    for path in MODULES:
        if room_of(path) not in inside:
            yield from ((path, name) for name in imported(path))


def points_up(path: Path, name: str) -> bool:
    if name.split(".")[0] != "lpgcn" or name in OPEN_TO_ALL:
        return False
    own, other = room_of(path), name.split(".")[1] if "." in name else ""
    return other != own and FLOOR.get(other, len(FLOORS)) >= FLOOR[own]


def test_a_room_imports_only_from_rooms_below_it() -> None:
    assert points_up(HOUSE / "config.py", "lpgcn.model.adam.Adam"), "it would be found"
    assert not [
        f"{identifier(path)}: {name}"
        for path, name in outsiders("__init__", "__main__")
        if points_up(path, name)
    ]


def test_a_class_has_its_name_to_itself() -> None:
    places = defaultdict[str, list[str]](list)
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(identifier(path))
    assert "Config" in places
    assert not {name: where for name, where in places.items() if len(where) > 1}


def test_crypto_knows_nothing_of_the_house_but_the_root_of_its_errors() -> None:
    names = [name for path in rooms if room_of(path) == "crypto" for name in imported(path)]
    inside = {name.split(".")[1] for name in names if name.startswith("lpgcn.")}
    assert inside == {"crypto", "errors"}


def test_a_process_is_changed_for_good_by_programs_that_train_and_never_by_the_library() -> None:
    programs = {"audit", "demo", "host", "serve", "train", "up", "verify"}
    expected = {"runtime/hosts/workers.py", *(f"cli/{name}.py" for name in programs)}
    assert {identifier(one) for one in MODULES if "keep_freed_memory" in called(one)} == expected


def test_ciphers_are_made_in_crypto_only() -> None:
    assert not [
        f"{identifier(path)}: {name}"
        for path, name in outsiders("crypto")
        if name.split(".")[0] == "cryptography"
    ]


def test_nothing_that_runs_what_it_reads() -> None:
    names = [*outsiders(), *((path, name) for path in MODULES for name in called(path))]
    assert not [
        f"{identifier(path)}: {name}"
        for path, name in names
        if name.split(".")[0] in FORBIDDEN_MODULES or name in FORBIDDEN_CALLS
    ]


def foreign_randomness(path: Path) -> set[str]:
    """What a module imports or calls of generators that have a state. That it calls `random.…` says
    nothing, since that may be our own module; it has to import the other one first."""
    imports = set(imported(path))
    return {name for name in imports if name.split(".")[0] == "random"} | {
        name for name in imports | set(called(path)) if WITH_A_STATE.match(name)
    }


@every_module
def test_randomness_comes_from_one_place(path: Path) -> None:
    assert not foreign_randomness(path)


@pytest.mark.parametrize(
    "line",
    [
        "import random",
        "from random import shuffle",
        "import numpy.random as draws",
        "from numpy import random",
        "from numpy.random import default_rng",
        "np.random.default_rng(1)",
        "numpy.random.rand()",
        "from torch import randn",
        "torch.randperm(3)",
        "torch.manual_seed(1)",
    ],
)
def test_randomness_from_elsewhere_would_be_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "HOUSE", tmp_path)
    (tmp_path / "one.py").write_text(f"from lpgcn.random import bits\n{line}\n")
    assert len(foreign_randomness(tmp_path / "one.py")) == 1


def test_torch_is_for_the_methods_that_need_autograd() -> None:
    """Also an import within a function, or for types only, counts."""
    assert not [
        f"{identifier(path)}: {name}"
        for path, name in outsiders(*MAY_USE_TORCH)
        if name.split(".")[0] in ("torch", "torch_geometric")
    ]


def without(folder: Path, *modules: str) -> dict[str, str]:
    """An environment for a new process, and those that it starts, without these modules."""
    lines = [f"sys.modules[{module!r}] = None\n" for module in modules]
    (folder / "sitecustomize.py").write_text("import sys\n" + "".join(lines))
    return {**os.environ, "PYTHONPATH": str(folder)}


def run(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", *words], env=env, capture_output=True, text=True, check=False
    )


def test_a_client_brings_in_neither_torch_nor_numba() -> None:
    heavy = {"torch", "numba", "llvmlite", "matplotlib", "rich", "mtkahypar", "pyarrow"}
    script = (
        "import sys, lpgcn.protocol.client.client\n"
        f"print(sorted({heavy!r} & {{name.partition('.')[0] for name in sys.modules}}))\n"
        "print([name for name in sys.modules if name.startswith(('lpgcn.plan', "
        "'lpgcn.protocol.server', 'lpgcn.runtime', 'lpgcn.data'))])"
    )
    assert run("-c", script).stdout == "[]\n[]\n"


FEDERATION = """
from lpgcn.config import Config
from lpgcn.data import load
from lpgcn.runtime.engines.federated import Federated
from lpgcn.runtime.planning import planner_for
from lpgcn.runtime.runs.source import Source
split = Source(dataset="tiny", train={path!r}).open()
config = Config(dim=4, layers=2, batch_size=16, planner="cover")
federated = Federated(split, config, planner_for(split, config), workers=2)
federated.begin()
federated.step(0, 0, 0.01)
print(federated.measure("valid").n_users)
federated.close()
"""


def tiny(folder: Path) -> str:
    """9 users with 10 of 14 items each, as a file."""
    pairs = [f"{user},{(user * user + 3 * item) % 14}" for user in range(9) for item in range(10)]
    (folder / "tiny.csv").write_text("user_id,item_id\n" + "\n".join(pairs) + "\n")
    return str(folder / "tiny.csv")


def test_a_federation_needs_neither_torch_nor_numba(tmp_path: Path) -> None:
    env = without(tmp_path, "torch", "numba", "llvmlite")
    assert "ModuleNotFoundError" in run("-c", "import numba", env=env).stderr
    done = run("-c", FEDERATION.format(path=tiny(tmp_path)), env=env)
    assert (done.stdout, done.stderr) == ("9\n", "")


def test_all_ways_to_run_are_equal_where_there_is_no_torch(tmp_path: Path) -> None:
    env = without(tmp_path, "torch")
    assert "ModuleNotFoundError" in run("-c", "import torch", env=env).stderr
    asked = ["verify", "--all", "--train", tiny(tmp_path), "--epochs", "1", "--dim", "4", "--json"]
    asked += ["--virtual-items", "2", "--workers", "2", "--plot", str(tmp_path / "curves.png")]
    asked += ["--model", "lightgcn+", "--suite", "sealed"]
    done = run("-m", "lpgcn", *asked, "--batch-size", "16", "--planner", "cover", env=env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["difference"] == 0
    assert {line["run"] for line in found["epochs"]} == {
        "centralized",
        "simulated",
        "federated sealed, plan cover",
    }
