"""Times of interactions, however they are given, as one number each."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time
from numbers import Real
from typing import Final

A_TIME: Final = "a number, or a date such as 2026-01-31 or 2026-01-31T12:00:00"
"""What `seconds` knows."""


def seconds(cell: object) -> float | None:
    """Numbers as they are, whatever they count; dates in seconds, in UTC without a zone."""
    try:
        number = _number(cell)
    except (ValueError, OverflowError):
        # What pandas has in place of a missing date counts as a date, but has no seconds.
        return None
    return number if math.isfinite(number) else None


def _number(cell: object) -> float:
    if isinstance(cell, str):
        try:
            return float(cell)
        except ValueError:
            return _number(datetime.fromisoformat(cell.strip()))
    if isinstance(cell, datetime):
        return (cell if cell.tzinfo else cell.replace(tzinfo=UTC)).timestamp()
    if isinstance(cell, date):
        return datetime.combine(cell, time(), UTC).timestamp()
    if isinstance(cell, Real) and not isinstance(cell, bool):
        return float(cell)
    raise ValueError
