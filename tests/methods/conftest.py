"""Small data on which every method can be held against something known."""

from __future__ import annotations

from pathlib import Path

import pytest

TWO_TASTES = 2
ITEMS = 24
"""Half of them for each taste."""
USERS = 60


@pytest.fixture(scope="session")
def tastes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A matrix whose answer is known: a user has most items of its own taste and none of the other,
    so that those which are held out are the only ones of its taste that it does not have."""
    lines = [
        f"{user},{half * (ITEMS // 2) + place}"
        for user in range(USERS)
        for half in [user % TWO_TASTES]
        for place in range(ITEMS // 2)
        if (user // 2 + place) % 6
    ]
    path = tmp_path_factory.mktemp("tastes") / "tastes.csv"
    path.write_text("user_id,item_id\n" + "\n".join(lines) + "\n")
    return path
