"""What faults are measured against: a federation that nothing happens to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lpgcn.protocol.phases import PHASES, Phase


def test_an_undisturbed_run_is_the_centralised_one(
    field_of: Callable[..., Any], check: Callable[[Any], None]
) -> None:
    field = field_of()
    field.start()
    field.finish()
    check(field)
    assert len(field.terms()) == 1
    # So the spy hears everything that a point can be set at, but for what this backbone has not.
    shared = {phase for phase, row in PHASES.items() if row.shared}
    assert field.spy.phases == set(Phase) - {Phase.INHERIT, Phase.ENDOW} - shared
