"""The sequence of the protocol, written once: one table from phase to all that depends on it.

The server's rounds, the client's check of order, its choice of method, the accounting and the
ledger read this table and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from functools import cache
from typing import Any, Final, Literal, Union

from lpgcn.config import Config
from lpgcn.model.backbones import backbone_of
from lpgcn.protocol.errors import ReplayedMessageError, UnexpectedMessageError
from lpgcn.protocol.wire import messages as m
from lpgcn.protocol.wire.encoding import STRETCH_PASSES, Header

Stage = Literal["initialise", "forward", "loss", "backward", "measure", "keep"]


class Phase(IntEnum):
    """Values are part of the format and rise in the order in which phases of a pass may come."""

    RESUME = 1
    """A stretch begins: from the beginning, or from a checkpoint that everybody has."""
    KEYS = 2
    """A term begins."""
    SHARE_KEY = 3
    LIST = 4
    CATALOGUE = 5
    PLAN = 6
    VERIFY = 7
    ANSWERS = 8
    INHERIT = 9
    """In a later term: heirs open the copies of items whose owner changed."""
    ENDOW = 10
    """And the new owners get them."""
    BUILD = 16
    """W_i goes out to the users that are built from it (LightGCN+)."""
    FORWARD = 17
    """In the last layer with the wishes of the batch."""
    FINAL = 18
    LOSS = 19
    GRADIENT = 20
    """g^(L) is pushed."""
    BACKWARD = 21
    UPDATE = 22
    UPDATE_BUILT = 23
    """∂Loss/∂W_i has arrived at the owner of W_i (LightGCN+)."""
    RANK_VALID = 24
    RANK_TEST = 25
    PREDICT = 26
    COUNT = 27
    """Σ|I_u|."""
    SUM_LOSS = 28
    KEEP = 29
    """The present parameters are the best so far."""
    GO_BACK = 30
    """To the parameters that were kept last."""
    CHECKPOINT = 31
    SUM_SHARED = 32
    """After the update: Σ over all nodes of the gradients of the dense weights."""
    UPDATE_SHARED = 33
    """Everybody steps its copy of them."""
    HAND_ON = 34
    """In a later term: u_c seals its copy of the dense weights for those who join."""
    TAKE_OVER = 35
    """And they get it."""


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


NEXT: Final = None
"""In place of a phase: whatever a pass may begin with."""


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
    then: tuple[Phase | None, ...]
    """What may follow at one client: all up to the first that is certain to come."""
    first_layer: int | None = None
    """Of a phase that comes once a layer, up to layer L − 1."""
    built: bool = False
    """Only if users are built."""
    shared: bool = False
    """Only if there are dense weights."""


P, A = Phase, Asked
_BACK: Final = (P.BACKWARD, P.UPDATE)
_JOINING: Final = (P.HAND_ON, P.TAKE_OVER, NEXT)
_MEASURE: Final = (P.RANK_VALID, P.RANK_TEST, P.PREDICT)
# fmt: off
PHASES: Final[Mapping[Phase, Row]] = {
    # request, reply, the client's method, who is asked, stage of the ledger, what may follow, and
    # the first layer of a phase that comes once a layer.
    P.RESUME: Row(m.Resume, m.Reply, "resume", A.SOME, "initialise", (P.KEYS, NEXT)),
    P.KEYS: Row(m.Begin, m.PublicKey, "make_keys", A.SOME, "initialise", (P.SHARE_KEY, P.LIST)),
    P.SHARE_KEY: Row(m.PublicKeys, m.SealedKeys, "share_key", A.KEY_CLIENT, "initialise",
        (P.LIST,)),
    P.LIST: Row(m.SealedKey, m.Tokens, "list_items", A.EVERYBODY, "initialise",
        (P.CATALOGUE, P.PLAN)),
    P.CATALOGUE: Row(m.Ask, m.Tokens, "list_catalogue", A.KEY_CLIENT, "initialise", (P.PLAN,)),
    P.PLAN: Row(m.Placement, m.Reply, "take_place", A.EVERYBODY, "initialise", (P.VERIFY,)),
    P.VERIFY: Row(m.Questions, m.Answers, "answer", A.EVERYBODY, "initialise",
        (P.ANSWERS, P.INHERIT, *_JOINING)),
    P.ANSWERS: Row(m.SealedAnswers, m.Reply, "verify", A.OWNERS, "initialise",
        (P.INHERIT, P.ENDOW, *_JOINING)),
    P.INHERIT: Row(m.Estates, m.Bundles, "bequeath", A.SOME, "initialise",
        (P.ENDOW, *_JOINING)),
    P.ENDOW: Row(m.Bequests, m.Reply, "inherit", A.SOME, "initialise", _JOINING),
    P.BUILD: Row(m.Exchange, m.Push, "build", A.OWNERS, "forward", (P.FORWARD,), built=True),
    P.FORWARD: Row(m.Exchange, m.Push, "forward", A.EVERYBODY, "forward", (P.FINAL, *_BACK), 0),
    P.FINAL: Row(m.Finish, m.Finals, "finish_forward", A.TOUCHED, "forward",
        (P.LOSS, P.GRADIENT, *_MEASURE, NEXT)),
    P.LOSS: Row(m.Samples, m.Gradients, "loss", A.BATCH, "loss", (P.GRADIENT,)),
    P.GRADIENT: Row(m.LossRows, m.Push, "begin_backward", A.TOUCHED, "backward", _BACK),
    P.BACKWARD: Row(m.Exchange, m.Push, "backward", A.EVERYBODY, "backward", (P.UPDATE,), 1),
    P.UPDATE: Row(m.Update, m.Push, "update", A.EVERYBODY, "backward",
        (P.UPDATE_BUILT, P.SUM_SHARED, NEXT)),
    P.UPDATE_BUILT: Row(m.Update, m.Reply, "update_built", A.OWNERS, "backward",
        (P.SUM_SHARED, NEXT), built=True),
    P.RANK_VALID: Row(m.Catalogue, m.Numbers, "rank", A.SOME, "measure", (NEXT,)),
    P.RANK_TEST: Row(m.Catalogue, m.Numbers, "rank", A.SOME, "measure", (NEXT,)),
    P.PREDICT: Row(m.Catalogue, m.Reply, "keep_prediction", A.SOME, "measure", (NEXT,)),
    P.COUNT: Row(m.Ask, m.Numbers, "count", A.SOME, "measure", (NEXT,)),
    P.SUM_LOSS: Row(m.Ask, m.Numbers, "report_loss", A.SOME, "measure", (NEXT,)),
    P.KEEP: Row(m.Ask, m.Reply, "keep", A.SOME, "keep", (NEXT,)),
    P.GO_BACK: Row(m.Ask, m.Reply, "go_back", A.SOME, "keep", (NEXT,)),
    P.CHECKPOINT: Row(m.Mark, m.Estate, "checkpoint", A.SOME, "keep", (NEXT,)),
    P.SUM_SHARED: Row(m.Ask, m.Numbers, "sum_shared", A.EVERYBODY, "backward",
        (P.UPDATE_SHARED,), shared=True),
    P.UPDATE_SHARED: Row(m.Shared, m.Reply, "update_shared", A.EVERYBODY, "backward",
        (NEXT,), shared=True),
    P.HAND_ON: Row(m.Ask, m.Copy, "hand_on", A.KEY_CLIENT, "initialise", (NEXT,), shared=True),
    P.TAKE_OVER: Row(m.Copied, m.Reply, "take_over", A.SOME, "initialise", (NEXT,), shared=True),
}
# fmt: on

REQUESTS: Final[Any] = Union[tuple({row.request for row in PHASES.values()})]  # noqa: UP007
"""What a client may be sent."""
_BEGINNINGS: Final = (
    Phase.COUNT, Phase.SUM_LOSS, Phase.KEEP, Phase.GO_BACK, Phase.CHECKPOINT,
    Phase.BUILD, Phase.FORWARD,
)  # fmt: skip
"""What a pass may begin with."""
_PUSHING: Final = tuple(phase for phase, row in PHASES.items() if row.reply is m.Push)

START: Final = Header(0, 0)
"""Before the first message."""
RESTART: Final = 255


def restarted(stretch: int) -> Header:
    """Where a client is that lost its memory in this stretch: behind all of it."""
    return START if stretch < 0 else Header((stretch + 1) * STRETCH_PASSES - 1, RESTART)


@dataclass(frozen=True)
class PhaseOrder:
    """The table for one configuration: L layers, users built or not, dense weights or none."""

    layers: int
    builds_users: bool
    shares_weights: bool = False

    @classmethod
    def of(cls, config: Config) -> PhaseOrder:
        backbone = backbone_of(config)
        return cls(config.layers, backbone.builds_users, bool(backbone.shared()))

    def layers_of(self, phase: Phase) -> range:
        """The layers that a phase comes for; none if this configuration does without it."""
        row = PHASES[phase]
        if (row.built and not self.builds_users) or (row.shared and not self.shares_weights):
            return range(0)
        return range(1) if row.first_layer is None else range(row.first_layer, self.layers)

    def pushed_before(self, header: Header) -> Header | None:
        """Where the rows that arrive in a phase were pushed: the pushing phase before it."""
        found = _pushed_before(self, header.phase, header.layer)
        return found and Header(header.pass_number, *found)

    def check(self, header: Header, last: Header, *, owns: bool) -> Row:
        """The row of what comes next; what is over, or does not come yet, is refused."""
        if header <= last:
            raise ReplayedMessageError(f"a message for {describe(header)}, after {describe(last)}")
        if header.phase == Phase.RESUME and header.begins_stretch and not header.layer:
            return PHASES[Phase.RESUME]
        passed = header.pass_number - last.pass_number
        if header.stretch != last.stretch:
            raise UnexpectedMessageError(
                f"a message for {describe(header)}, after {describe(last)}; expected a RESUME "
                "where a stretch begins"
            )
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
def _pushed_before(order: PhaseOrder, phase: int, layer: int) -> tuple[int, int] | None:
    pushing = [(one, each) for one in _PUSHING for each in order.layers_of(one)]
    return max((one for one in pushing if one < (phase, layer)), default=None)


@cache
def _after(
    order: PhaseOrder, last_phase: int, last_layer: int, owns: bool
) -> tuple[tuple[int, int, int], ...]:
    """What may follow: passes after the present one, phase, layer."""
    if last_phase in (START.phase, RESTART):
        return ((int(last_phase == RESTART), Phase.RESUME, 0),)
    phase, following = Phase(last_phase), last_layer + 1
    if PHASES[phase].first_layer is not None and following in order.layers_of(phase):
        return ((0, phase, following),)
    found: list[tuple[int, int, int]] = []
    for successor in PHASES[phase].then:
        for one in _BEGINNINGS if successor is NEXT else (successor,):
            layers, asked = order.layers_of(one), PHASES[one].asked
            if not layers or (asked is Asked.OWNERS and not owns):
                continue
            found.append((int(successor is NEXT), one, layers[0]))
            if asked in (Asked.EVERYBODY, Asked.OWNERS):
                return tuple(found)
    return tuple(found)


def describe(header: Header) -> str:
    """A header in words."""
    if header == START:
        return "the start"
    if header.phase == RESTART:
        return f"a restart in stretch {header.stretch}"
    if header.phase not in PHASES:
        return f"pass {header.pass_number} phase {header.phase}"
    phase = Phase(header.phase)
    layer = "" if PHASES[phase].first_layer is None else f" {header.layer}"
    return f"pass {header.pass_number} {phase.name}{layer}"
