"""What the tests of several rooms share."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations, count, islice
from pathlib import Path

import pytest
from hypothesis import settings

# Workers share the processors, and threads of libraries that spin at barriers would take them from
# the others. Neither library is loaded yet, and the commands that tests start inherit it.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# How long an example takes says nothing on a machine that others use too. `make test` says the same
# about the same code every time; `make test-slow` looks at examples that nobody has seen.
settings.register_profile("lpgcn", deadline=None, derandomize=True)
settings.register_profile("unseen", deadline=None)
settings.load_profile("lpgcn")

PORTS = 2000
"""Of each worker."""


@pytest.fixture(scope="session", autouse=True)
def real_fsync() -> Iterator[Callable[[int], None]]:
    """Nothing waits for the disk: that matters where a machine loses its power, which none does
    here. A descriptor must still be an open one."""
    real = os.fsync
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield real


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder with real data sets; a test that needs it is skipped where there is none."""
    folder = os.environ.get("LPGCN_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("set LPGCN_DATA to a folder with gowalla/, yelp2018/ and ml-100k/ to run this")
    return Path(folder)


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Ports that nobody else is given before a server takes them: they are below those that the
    system gives to connections, each worker has its own, and another run begins elsewhere."""
    given = Path("/proc/sys/net/ipv4/ip_local_port_range")
    lowest = int(given.read_text().split()[0]) if given.exists() else 0
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first, numbers = max(lowest, 32768) - PORTS * (worker + 1), count(os.getpid())

    def draw() -> int:
        for number in islice(numbers, PORTS):
            with socket.socket() as probe, suppress(OSError):
                probe.bind(("127.0.0.1", first + number % PORTS))
                return first + number % PORTS
        raise AssertionError(f"none of {PORTS} ports from {first} on is free")

    return draw


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test that is marked `any_two`, whatever `any_two_meet` leaves out is slow."""
    tests: dict[str, list[pytest.Function]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.get_closest_marker("any_two"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cases in tests.values():
        chosen = any_two_meet([case.callspec.params for case in cases])
        for number, case in enumerate(cases):
            if number not in chosen:
                case.add_marker(pytest.mark.slow)


def any_two_meet(cases: Sequence[Mapping[str, object]]) -> set[int]:
    """The numbers of some cases, in which any two values are together that are in all of them:
    always the one, the first of several, that brings most pairs together for the first time."""
    values = [[(name, id(value)) for name, value in case.items()] for case in cases]
    pairs = [set(combinations(case, 2)) for case in values]
    apart, chosen = set().union(*pairs), set[int]()
    while apart:
        best = max(range(len(cases)), key=lambda number: len(pairs[number] & apart))
        chosen.add(best)
        apart -= pairs[best]
    return chosen


def pytest_collection_finish() -> None:
    """What was loaded is never let go: no collection of garbage need look at it again."""
    gc.collect()
    gc.freeze()
