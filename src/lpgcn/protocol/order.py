"""The order of the protocol, as one client sees it: what may come after what it did last."""

from __future__ import annotations

from dataclasses import dataclass

from lpgcn.config import Config
from lpgcn.protocol.errors import ReplayedMessageError, UnexpectedMessageError
from lpgcn.protocol.messages import Header, Phase

START = Header(0, 0)
"""Before the first message."""
PARTS = ("valid", "test")
"""What a RANK request measures, by its layer; the layer after them keeps the item vectors."""
KEEP = len(PARTS)


@dataclass(frozen=True)
class Order:
    """Every pass is a step of its own, and all take part in every pass, so none is left out."""

    layers: int
    built: bool
    """Users are built from W_i, as in LightGCN+."""

    @classmethod
    def of(cls, config: Config) -> Order:
        return cls(config.layers, config.model == "lightgcn+")

    def check(self, header: Header, last: Header, *, owns: bool) -> None:
        """Refuse what is over, and what does not come yet; `owns`: a convolution-client asks."""
        if header <= last:
            raise ReplayedMessageError(f"a message for {header}, after one for {last}")
        expected = self.after(last, owns=owns)
        if header not in expected:
            raise UnexpectedMessageError(
                f"a message for {header}, after one for {last}; expected "
                + " or ".join(map(str, expected))
            )

    def after(self, last: Header, *, owns: bool) -> list[Header]:
        """What may come next."""

        def now(phase: Phase, *layers: int) -> list[Header]:
            return [Header(last.step, phase, layer) for layer in layers or (0,)]

        def back(layer: int) -> list[Header]:
            return now(Phase.BACKWARD, layer) if layer < self.layers else now(Phase.UPDATE)

        match last.phase:
            case 0:
                return now(Phase.KEYS)
            case Phase.KEYS:
                return now(Phase.SHARE_KEY) + now(Phase.LIST)
            case Phase.SHARE_KEY:
                return now(Phase.LIST)
            case Phase.LIST:
                return now(Phase.CATALOGUE) + now(Phase.PLAN)
            case Phase.CATALOGUE:
                return now(Phase.PLAN)
            case Phase.PLAN:
                return now(Phase.VERIFY)
            case Phase.VERIFY if owns:
                return now(Phase.ANSWERS)
            case Phase.BUILD:
                return now(Phase.FORWARD)
            case Phase.FORWARD if last.layer + 1 < self.layers:
                return now(Phase.FORWARD, last.layer + 1)
            case Phase.FORWARD:
                # Whom the batch does not touch has no part in the loss.
                return now(Phase.FINAL) + back(1)
            case Phase.FINAL:
                measure = now(Phase.RANK, *range(KEEP + 1))
                return now(Phase.LOSS) + now(Phase.BACKWARD) + measure + self._next(last, owns)
            case Phase.LOSS:
                return now(Phase.BACKWARD)
            case Phase.BACKWARD:
                return back(last.layer + 1)
            case Phase.UPDATE if owns and self.built:
                return now(Phase.UPDATE_BUILT)
        return self._next(last, owns)

    def _next(self, last: Header, owns: bool) -> list[Header]:
        first = Phase.BUILD if owns and self.built else Phase.FORWARD
        step = last.step + 1
        return [Header(step, first), Header(step, Phase.SUM, 0), Header(step, Phase.SUM, 1)]
