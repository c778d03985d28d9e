"""What the clients of a compared method would send, in the ledger that ours has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lpgcn.config import Config
from lpgcn.protocol.ledger import Traffic
from lpgcn.protocol.wire.reading import MASKED_BYTES
from lpgcn.runtime.traffic import TrafficSummary

SUMMED_BYTES: Final = MASKED_BYTES
"""Of a number that goes into a secure sum, as ours do."""


@dataclass(frozen=True)
class RoundTraffic:
    """Of one training step. Bytes are those of the numbers alone: the methods say nothing about
    framing, keys or tags, so theirs are lower bounds."""

    n_clients: int
    taking_part: float
    """Clients in the mean of all steps."""
    up: float
    """Bytes of one that takes part, in the mean."""
    down: float
    rounds: int = 1

    @classmethod
    def summed(
        cls, numbers: int, config: Config, n_clients: int, steps_per_epoch: int
    ) -> RoundTraffic:
        """Who is in a round downloads so many numbers, and adds their gradients to a secure sum; in
        an epoch everybody is in one."""
        up, down = numbers * SUMMED_BYTES, numbers * config.number_bytes
        return cls(n_clients, n_clients / steps_per_epoch, up, down)

    def summary(self, steps: int) -> TrafficSummary:
        messages = round(self.taking_part * self.rounds * steps)
        sent = {"up": self.taking_part * self.up, "down": self.taking_part * self.down}
        return TrafficSummary(
            steps=steps,
            rounds_per_step=self.rounds,
            up_per_step=sent["up"] / self.n_clients,
            down_per_step=sent["down"] / self.n_clients,
            ledger=[
                Traffic(
                    stage="train",
                    direction=direction,
                    role="ordinary",
                    messages=messages,
                    bytes=round(sent[direction] * steps),
                )
                for direction in ("down", "up")
            ],
        )
