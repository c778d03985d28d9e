"""Anybody is killed at any point of the protocol: the run ends by itself, with the same bits."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import pytest

from lpgcn.protocol.phases import Phase

P = Phase
BEGINNING: Final = (
    P.RESUME, P.KEYS, P.SHARE_KEY, P.LIST, P.CATALOGUE, P.PLAN, P.VERIFY, P.ANSWERS, P.COUNT,
)  # fmt: skip
TRAINING: Final = (
    P.BUILD, P.FORWARD, P.FINAL, P.LOSS, P.GRADIENT, P.BACKWARD, P.UPDATE, P.UPDATE_BUILT,
    P.RESUME, P.SUM_LOSS, P.RANK_VALID, P.KEEP, P.CHECKPOINT,
)  # fmt: skip
CHANGE: Final = (P.RESUME, P.KEYS, P.VERIFY, P.INHERIT, P.ENDOW, P.CHECKPOINT)
ENDING: Final = (P.GO_BACK, P.RANK_TEST, P.PREDICT)
SOME: Final = {P.SHARE_KEY, P.CATALOGUE, P.ANSWERS, P.INHERIT, P.ENDOW, P.BUILD, P.UPDATE_BUILT}
"""Phases in which not everybody takes part, so that a certain client may never be asked."""
HOSTS: Final = ("host-0", "host-1")
WHOEVER: Final = ("server", "whoever", "broker")
EVERYBODY: Final = ("server", *HOSTS, "join-15", "broker")


def points(harness: ModuleType, phases: tuple[Phase, ...], rng: random.Random) -> list[Any]:
    """One of everybody at each phase, before or after an answer."""
    found = []
    for phase, following in zip(phases, (*phases[1:], None), strict=True):
        parties = WHOEVER if phase in SOME else EVERYBODY
        # Nobody loses its memory with the broker, so that nobody resumes.
        party = rng.choice(parties[:-1] if following == P.RESUME else parties)
        often = phase not in SOME and party != "join-15"
        direction, nth = rng.choice(("down", "up")), rng.randint(1, 3) if often else 1
        found.append(harness.Point(party, phase, direction, nth))
    return found


def strike_all(field: Any, chosen: list[Any]) -> None:
    for point in chosen:
        field.strike(point)


def test_killed_here_and_there(
    harness: ModuleType, field_of: Callable[..., Any], check: Callable[[Any], None]
) -> None:
    point = harness.Point
    field = field_of()
    field.start()
    strike_all(
        field,
        [
            point("host-0", P.VERIFY),
            point("server", P.KEYS, "up", 3),
            point("join-14", P.FORWARD, "down", 2),
            point("server", P.RESUME, "up", 2),
            point("broker", P.GRADIENT, "up", 2),
            point("host-1", P.CHECKPOINT, "up", 3),
            point("host-0", P.RESUME),
            point("server", P.RANK_TEST, "up", 4),
            point("host-1", P.PREDICT, "up", 2),
        ],
    )
    field.finish()
    check(field)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("phases", [BEGINNING, TRAINING, ENDING], ids=["begin", "train", "end"])
def test_killed_at_every_phase(
    harness: ModuleType,
    field_of: Callable[..., Any],
    check: Callable[[Any], None],
    phases: tuple[Phase, ...],
    seed: int,
) -> None:
    field = field_of()
    chosen = points(harness, phases, random.Random(seed))
    field.start()
    strike_all(field, chosen)
    field.finish()
    check(field)
    assert len(field.terms()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_in_a_change_of_term(
    harness: ModuleType, field_of: Callable[..., Any], check: Callable[[Any], None], seed: int
) -> None:
    """Somebody joins, and whenever it is about to, somebody is killed."""
    field = field_of(first=15, settings={"epochs": 6})
    field.start("server", "host-0", "host-1", "join-14")
    field.when(P.CHECKPOINT)
    field.start_in_time("join-15")
    strike_all(field, points(harness, CHANGE, random.Random(seed)))
    field.finish()
    check(field)
    assert len(field.terms()) == 2


@pytest.mark.slow
@pytest.mark.parametrize("party", ["server", "host-0", "join-14", "broker"])
def test_killed_when_everybody_is_told_that_the_run_is_over(
    harness: ModuleType, field_of: Callable[..., Any], check: Callable[[Any], None], party: str
) -> None:
    """Who does not know it yet hears it later, and has its model already."""
    field = field_of()
    field.start()
    field.strike(harness.LastWord(party))
    field.finish()
    check(field)
