"""Terms: stretches of steps with one set of members (DESIGN, "Terms"), and the log of them.

Because sums are exact, the bits of a run follow from this log and not from plans: a centralised run
that follows the same log ends in the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from lpgcn.errors import LpgcnError
from lpgcn.files import write_atomically

LEAST_MEMBERS: Final = 2
"""A sum over one person is that person's number: over a network no term has fewer members, whatever
is asked for."""


class TermError(LpgcnError):
    """A log of terms that cannot be followed."""


class Term(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """From step `step` of epoch `epoch` on (both count from 0) the members are these."""

    epoch: int
    step: int
    members: tuple[int, ...]
    """Numbers of clients, rising. A client keeps its number for ever."""

    def __post_init__(self) -> None:
        rising = all(one < other for one, other in pairwise(self.members))
        if not self.members or not rising or min(self.epoch, self.step, self.members[0]) < 0:
            raise TermError(
                f"a term from epoch {self.epoch}, step {self.step} with {len(self.members)} "
                "members; expected numbers from 0 on, and members that rise"
            )


def begun(terms: Sequence[Term], epoch: int, step: int) -> int:
    """How many terms have begun before this step; several may begin at the same one."""
    return sum((term.epoch, term.step) <= (epoch, step) for term in terms)


def write_terms(path: Path, terms: Sequence[Term]) -> None:
    """One JSON object a line."""
    write_atomically(path, b"".join(msgspec.json.encode(term) + b"\n" for term in terms))


def read_terms(path: Path) -> list[Term]:
    try:
        lines = path.read_bytes().splitlines()
        terms = [msgspec.json.decode(line, type=Term) for line in lines]
    except FileNotFoundError as error:
        raise TermError(f"there is no log of terms {path}; check the path") from error
    except msgspec.DecodeError as error:
        raise TermError(f"{path} is not a log of terms: {error}") from error
    starts = [(term.epoch, term.step) for term in terms]
    if not terms or starts != sorted(starts) or starts[0] != (0, 0):
        raise TermError(f"{path} must have terms in order, the first from epoch 0, step 0 on")
    return terms
