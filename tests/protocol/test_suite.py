from __future__ import annotations

import pytest

from lpgcn.protocol.errors import SuiteError
from lpgcn.protocol.suite import SUITES, Key, Kind, user_key


def test_every_suite_says_how_everything_is_protected() -> None:
    assert all(set(suite) == set(Kind) for suite in SUITES.values())
    assert {name: user_key(suite) for name, suite in SUITES.items()} == {
        "paper": Key.GROUP,
        "sealed": Key.SENDER,
    }


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        (Kind.ITEM, Key.SENDER),
        (Kind.LOSS, Key.GROUP),
        (Kind.USER_FINAL, Key.PAIRWISE),
        (Kind.USER_BACKWARD, Key.GROUP),
    ],
)
def test_a_suite_that_no_client_could_keep_to_is_refused(kind: Kind, key: Key) -> None:
    with pytest.raises(SuiteError, match=f"{kind.name} {key.name}"):
        user_key({**SUITES["sealed"], kind: key})
