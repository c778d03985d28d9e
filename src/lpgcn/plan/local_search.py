"""Moving one token at a time: until the limits hold, and then while it lowers the traffic.

The candidates of a token are the parts that it may go to; a token without any may go anywhere.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lpgcn.array_types import Int64
from lpgcn.plan.parts import Limits, Parts
from lpgcn.ragged import Ragged

_SWEEPS: Final = 12
_WORTHWHILE: Final = 0.001
"""A sweep that lowers the traffic by a smaller share than this is the last but one."""


def anywhere(n_tokens: int) -> Ragged:
    """Candidates for tokens that may go to any part."""
    return Ragged(np.zeros(n_tokens + 1, np.int64), np.zeros(0, np.int64))


def repair(parts: Parts, limits: Limits, candidates: Ragged) -> bool:
    """Move tokens out of parts that are over a limit, at the least traffic; whether all fit now."""
    before = None
    while (over := parts.over(limits)).size and before != (before := _excess(parts, limits)):
        for part in over:
            _relieve(parts, int(part), limits, candidates)
    return not over.size


def improve(parts: Parts, limits: Limits, candidates: Ragged) -> None:
    """Sweep over the tokens, moving each to where it causes the least traffic, until it is idle."""
    order = np.argsort(parts.graph.degrees, kind="stable").tolist()
    seen = np.full(len(order), -1)
    for _ in range(_SWEEPS):
        gained = 0
        for token in order:
            # A token need not be looked at again before a part that it may go to has changed.
            choices = _choices(candidates, token)
            if parts.changed[choices].max() > seen[token]:
                gained += _move_if_better(parts, token, choices, limits)
                seen[token] = parts.n_moves
        if gained <= _WORTHWHILE * parts.neighbours():
            break
        order.reverse()


def _choices(candidates: Ragged, token: int) -> Int64 | slice:
    found = candidates[token]
    return found if found.size else slice(None)


def _excess(parts: Parts, limits: Limits) -> int:
    load = np.maximum(parts.loads() - limits.max_load, 0)
    items = np.maximum(parts.sizes - limits.max_items, 0)
    return int(load.sum() + items.sum())


def _move_if_better(parts: Parts, token: int, choices: Int64 | slice, limits: Limits) -> int:
    """How much traffic the best move of a token saved; 0 if it stays."""
    touched = parts.touched(token)
    relief = parts.relief(token, touched)
    if relief <= 0:
        return 0
    best = parts.best_target(token, touched, choices, limits)
    if best is None or best[1] >= relief:
        return 0
    parts.move(token, best[0], touched)
    return relief - best[1]


def _relieve(parts: Parts, part: int, limits: Limits, candidates: Ragged) -> None:
    """Move tokens out of one part until it is within the limits, those of most clients first."""
    tokens = np.flatnonzero(parts.part_of == part)
    for token in tokens[np.argsort(-parts.graph.degrees[tokens], kind="stable")].tolist():
        touched = parts.touched(token)
        best = parts.best_target(token, touched, _choices(candidates, token), limits)
        if best is not None:
            parts.move(token, best[0], touched)
            if parts.loads()[part] <= limits.max_load and parts.sizes[part] <= limits.max_items:
                return
