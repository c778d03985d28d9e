"""What a server over a network shows: who is there, who is missing, and how far it is."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from lpgcn.cli.progress import ProgressDisplay
from lpgcn.cli.terminal import say
from lpgcn.runtime.engines.engine import RunInterruptedError
from lpgcn.runtime.runs.serving import ServingObserver


class ServingDisplay(ProgressDisplay, ServingObserver):
    """The progress of a run, and of its members."""

    def __init__(self, out: Path, log_json: bool, metrics_port: int | None) -> None:
        super().__init__(out)
        self._told = ""

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def _tell(self, text: str) -> None:
        """Once, however often it is said."""
        if text != self._told:
            self._told = text
            say(text)

    def gathering(self, present: int, wanted: int, missing: list[int]) -> None:
        some = ", ".join(map(str, missing[:5])) + (", …" if len(missing) > 5 else "")
        whom = f"; waiting for clients {some}" if missing else ""
        self._tell(f"{present:,} of {wanted:,} members are here{whom}")

    def interrupted(self, error: RunInterruptedError) -> None:
        self._tell(f"interrupted: {error}")

    def term_began(self, number: int, joined: list[int], left: list[int]) -> None:
        self._tell(f"term {number} begins: {len(joined):,} joined, {len(left):,} left")

    def silent(self, name: str, indices: tuple[int, ...]) -> None:
        self._tell(f"{name} is silent ({len(indices):,} clients)")

    def refused(self, name: str, reason: str) -> None:
        say(f"refused {name}: {reason}", style="yellow", label="warning")
