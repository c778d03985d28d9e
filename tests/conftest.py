"""What the tests of several rooms share."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
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


def pytest_collection_finish() -> None:
    """What was loaded is never let go: no collection of garbage need look at it again."""
    gc.collect()
    gc.freeze()
