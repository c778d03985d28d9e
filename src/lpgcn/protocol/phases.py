"""The sequence of the protocol, written once: one table from phase to all that depends on it.

The server's rounds, the client's check of order, its choice of method, the accounting and the
ledger read this table and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from functools import cache
from typing import Final, Literal

from lpgcn.config import Config
from lpgcn.model.backbone import BACKBONES
from lpgcn.protocol.errors import ReplayedMessageError, UnexpectedMessageError
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.messages import Header

Stage = Literal["initialise", "forward", "loss", "backward", "measure"]


class Phase(IntEnum):
    """Values are part of the format and rise in the order in which phases of a pass may come."""

    KEYS = 1
    SHARE_KEY = 2
    LIST = 3
    CATALOGUE = 4
    PLAN = 5
    VERIFY = 6
    ANSWERS = 7
    BUILD = 16
    """W_i goes out to the users that are built from it (LightGCN+)."""
    FORWARD = 17
    LAST_FORWARD = 18
    """The last exchange forward, with the wishes of the batch."""
    FINAL = 19
    LOSS = 20
    GRADIENT = 21
    """g^(L) is pushed."""
    BACKWARD = 22
    UPDATE = 23
    UPDATE_BUILT = 24
    """∂Loss/∂W_i has arrived at the owner of W_i (LightGCN+)."""
    RANK_VALID = 25
    RANK_TEST = 26
    PREDICT = 27
    COUNT = 28
    """Σ|I_u|."""
    SUM_LOSS = 29


class Asked(Enum):
    """Who takes part in a phase."""

    EVERYBODY = auto()
    KEY_CLIENT = auto()
    """u_c."""
    OWNERS = auto()
    TOUCHED = auto()
    """Users of the batch, and owners of items that they list or have as negatives."""
    BATCH = auto()
    SOME = auto()
    """Those that the server asks, or everybody at times."""


NEXT_PASS: Final = "next pass"
Successor = Phase | Literal["next pass"]


@dataclass(frozen=True)
class Row:
    """One phase."""

    request: type[m.Message]
    reply: type[m.Message]
    method: str
    """Of the client."""
    asked: Asked
    stage: Stage
    """Of the ledger."""
    then: tuple[Successor, ...]
    """What may follow at one client: all up to the first that is certain to come."""
    layers: tuple[int, int] | None = None
    """First layer, and how many short of L the last one ends: the phase comes once a layer."""
    built_only: bool = False


_BACK: Final = (Phase.BACKWARD, Phase.UPDATE)
_MEASURE: Final = (Phase.RANK_VALID, Phase.RANK_TEST, Phase.PREDICT)

PHASES: Final[dict[Phase, Row]] = {
    Phase.KEYS: Row(
        m.Ask, m.PublicKey, "make_keys", Asked.EVERYBODY, "initialise",
        (Phase.SHARE_KEY, Phase.LIST),
    ),
    Phase.SHARE_KEY: Row(
        m.PublicKeys, m.SealedKeys, "share_key", Asked.KEY_CLIENT, "initialise", (Phase.LIST,),
    ),
    Phase.LIST: Row(
        m.SealedKey, m.Tokens, "list_items", Asked.EVERYBODY, "initialise",
        (Phase.CATALOGUE, Phase.PLAN),
    ),
    Phase.CATALOGUE: Row(
        m.Ask, m.Tokens, "list_catalogue", Asked.KEY_CLIENT, "initialise", (Phase.PLAN,),
    ),
    Phase.PLAN: Row(
        m.Placement, m.Reply, "take_place", Asked.EVERYBODY, "initialise", (Phase.VERIFY,),
    ),
    Phase.VERIFY: Row(
        m.Questions, m.Answers, "answer", Asked.EVERYBODY, "initialise",
        (Phase.ANSWERS, NEXT_PASS),
    ),
    Phase.ANSWERS: Row(
        m.SealedAnswers, m.Reply, "verify", Asked.OWNERS, "initialise", (NEXT_PASS,),
    ),
    Phase.BUILD: Row(
        m.Exchange, m.Push, "build", Asked.OWNERS, "forward",
        (Phase.FORWARD, Phase.LAST_FORWARD), built_only=True,
    ),
    Phase.FORWARD: Row(
        m.Exchange, m.Push, "forward", Asked.EVERYBODY, "forward",
        (Phase.LAST_FORWARD,), layers=(0, 1),
    ),
    Phase.LAST_FORWARD: Row(
        m.LastExchange, m.LastPush, "forward", Asked.EVERYBODY, "forward",
        (Phase.FINAL, *_BACK),
    ),
    Phase.FINAL: Row(
        m.Finish, m.Finals, "finish_forward", Asked.TOUCHED, "forward",
        (Phase.LOSS, Phase.GRADIENT, *_MEASURE, NEXT_PASS),
    ),
    Phase.LOSS: Row(
        m.Samples, m.Gradients, "loss", Asked.BATCH, "loss", (Phase.GRADIENT,),
    ),
    Phase.GRADIENT: Row(
        m.LossRows, m.Push, "begin_backward", Asked.TOUCHED, "backward", _BACK,
    ),
    Phase.BACKWARD: Row(
        m.Exchange, m.Push, "backward", Asked.EVERYBODY, "backward",
        (Phase.UPDATE,), layers=(1, 0),
    ),
    Phase.UPDATE: Row(
        m.Update, m.Push, "update", Asked.EVERYBODY, "backward",
        (Phase.UPDATE_BUILT, NEXT_PASS),
    ),
    Phase.UPDATE_BUILT: Row(
        m.Update, m.Reply, "update_built", Asked.OWNERS, "backward", (NEXT_PASS,),
        built_only=True,
    ),
    Phase.RANK_VALID: Row(
        m.Catalogue, m.Numbers, "rank", Asked.SOME, "measure", (NEXT_PASS,),
    ),
    Phase.RANK_TEST: Row(
        m.Catalogue, m.Numbers, "rank", Asked.SOME, "measure", (NEXT_PASS,),
    ),
    Phase.PREDICT: Row(
        m.Catalogue, m.Reply, "keep_prediction", Asked.SOME, "measure", (NEXT_PASS,),
    ),
    Phase.COUNT: Row(m.Ask, m.Numbers, "count", Asked.SOME, "measure", (NEXT_PASS,)),
    Phase.SUM_LOSS: Row(m.Ask, m.Numbers, "report_loss", Asked.SOME, "measure", (NEXT_PASS,)),
}  # fmt: skip

_BEGINNINGS: Final = (Phase.COUNT, Phase.SUM_LOSS, Phase.BUILD, Phase.FORWARD, Phase.LAST_FORWARD)
"""What a pass may begin with."""

_PUSHING: Final = (
    Phase.BUILD, Phase.FORWARD, Phase.LAST_FORWARD, Phase.GRADIENT, Phase.BACKWARD, Phase.UPDATE,
)  # fmt: skip

REQUESTS: Final = m.Ask | m.PublicKeys | m.SealedKey | m.Placement | m.Questions | (
    m.SealedAnswers | m.Exchange | m.LastExchange | m.Finish | m.Samples | m.LossRows
) | m.Update | m.Catalogue  # fmt: skip

START: Final = Header(0, 0)
"""Before the first message."""


@dataclass(frozen=True)
class Sequence:
    """The table for one configuration: L layers, users built or not."""

    layers: int
    builds_users: bool

    @classmethod
    def of(cls, config: Config) -> Sequence:
        return cls(config.layers, BACKBONES[config.model].builds_users)

    def layers_of(self, phase: Phase) -> range:
        """The layers that a phase comes for; none if this configuration does without it."""
        row = PHASES[phase]
        if row.built_only and not self.builds_users:
            return range(0)
        if row.layers is None:
            return range(1)
        first, short = row.layers
        return range(first, self.layers - short)

    def pushed_before(self, header: Header) -> Header | None:
        """Where the rows that arrive in a phase were pushed: the pushing phase before it."""
        found = _pushed_before(self, header.phase, header.layer)
        return found and Header(header.pass_number, *found)

    def check(self, header: Header, last: Header, *, owns: bool) -> Row:
        """The row of what comes next; what is over, or does not come yet, is refused."""
        if header <= last:
            raise ReplayedMessageError(f"a message for {describe(header)}, after {describe(last)}")
        passed = header.pass_number - last.pass_number
        if (passed, header.phase, header.layer) not in _after(self, last.phase, last.layer, owns):
            expected = " or ".join(map(describe, self.after(last, owns=owns)))
            raise UnexpectedMessageError(
                f"a message for {describe(header)}, after {describe(last)}; expected {expected}"
            )
        return PHASES[Phase(header.phase)]

    def after(self, last: Header, *, owns: bool) -> list[Header]:
        """What may come next to a client that owns items, or owns none."""
        return [
            Header(last.pass_number + passes, phase, layer)
            for passes, phase, layer in _after(self, last.phase, last.layer, owns)
        ]


@cache
def _pushed_before(sequence: Sequence, phase: int, layer: int) -> tuple[int, int] | None:
    pushing = [(one, each) for one in _PUSHING for each in sequence.layers_of(one)]
    return max((one for one in pushing if one < (phase, layer)), default=None)


@cache
def _after(
    sequence: Sequence, last_phase: int, last_layer: int, owns: bool
) -> tuple[tuple[int, int, int], ...]:
    """What may follow: passes after the present one, phase, layer."""
    if last_phase == START.phase:
        return ((0, Phase.KEYS, 0),)
    phase, following = Phase(last_phase), last_layer + 1
    if PHASES[phase].layers and following in sequence.layers_of(phase):
        return ((0, phase, following),)
    found: list[tuple[int, int, int]] = []
    for successor in PHASES[phase].then:
        for one in _BEGINNINGS if successor == NEXT_PASS else (successor,):
            layers, asked = sequence.layers_of(one), PHASES[one].asked
            if not layers or (asked is Asked.OWNERS and not owns):
                continue
            found.append((int(successor == NEXT_PASS), one, layers[0]))
            if asked in (Asked.EVERYBODY, Asked.OWNERS):
                return tuple(found)
    return tuple(found)


def describe(header: Header) -> str:
    """A header in words."""
    if header == START:
        return "the start"
    known = header.phase in set(Phase)
    name = Phase(header.phase).name if known else f"phase {header.phase}"
    layer = f" {header.layer}" if known and PHASES[Phase(header.phase)].layers else ""
    return f"pass {header.pass_number} {name}{layer}"
