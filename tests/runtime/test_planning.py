"""Which users compute nothing for others, as a file says."""

from __future__ import annotations

from pathlib import Path

import pytest

from lpgcn.config import Config
from lpgcn.data import make_split
from lpgcn.plan import PlanError
from lpgcn.runtime.planning import planner_for


def test_a_line_that_is_no_user_is_named_with_its_file(tmp_path: Path) -> None:
    split = make_split([(user, item) for user in range(4) for item in range(3)])
    file = tmp_path / "never.txt"
    file.write_text("user_id\n1\n")
    with pytest.raises(PlanError, match=r"never.txt, line 1: .*'user_id'.* no heading"):
        planner_for(split, Config(never_convolve=str(file)))
    file.write_text(" 1 \n\n3\n")
    planner_for(split, Config(never_convolve=str(file)))
