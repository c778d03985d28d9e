"""What a whole training costs, before it is run: its rounds, its bytes, and how long they take.

The rounds are those of the accounting, whose sizes are exact. Steps differ in whom they are about,
so a few are drawn as the training would draw them, and stand for all. With N steps, V validations
and one test, and E epochs,

    training = initialisation + N·step + (V + 1)·measurement + upkeep
    upkeep = E·SUM_LOSS + V·(KEEP + CHECKPOINT) + GO_BACK, V·SUM_LOSS if an epoch is one step
             without validations one CHECKPOINT, and ⌈E/10⌉·SUM_LOSS if an epoch is one step
    seconds = rounds·latency + Σ_rounds (max_u down_u + max_u up_u)·8 / bandwidth

if no early stopping ends it, every validation is the best so far, and a checkpoint is written at
validations only. What devices and the server compute takes no time here, and the server's line is
never the narrowest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import msgspec
import numpy as np

from lpgcn.config import Config
from lpgcn.data import Ids, Interactions, Split
from lpgcn.errors import LpgcnError
from lpgcn.model.batches import AnyBatch, Batches
from lpgcn.plan import Plan
from lpgcn.protocol.accounting import Accounting
from lpgcn.protocol.ledger import Tally
from lpgcn.protocol.paper_traffic import paper_traffic
from lpgcn.protocol.phases import Phase
from lpgcn.protocol.server.topology import Topology
from lpgcn.protocol.wire.fields import Round
from lpgcn.random import Purpose, permutation
from lpgcn.runtime.engines.engine import EPOCHS_A_LOSS
from lpgcn.runtime.engines.sampler import Sampler

DRAWN: Final = 4
"""Steps that are drawn of each kind: those with a whole batch, and the last one of an epoch."""
PAPER_BATCH_SIZE: Final = 2048
PAPER_STEPS: Final = 100_000
"""An assumption, and the most that is assumed: the paper says 1,000 epochs at most, stopped when 50
of them bring nothing, and not after how many that was."""
PAPER_EPOCHS: Final = 277
"""As many as these steps are on Gowalla (739,706 interactions), the last one begun."""
_SOME_USERS: Final = 1
"""The step under which lpgcn.random draws a part of the users; under 0 it splits their items."""
_BITS: Final = 8


class EstimationError(LpgcnError):
    """An estimate that cannot be made as it was asked for."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Of some rounds; bytes of serialised messages."""

    rounds: int
    up: float
    """Mean over the clients."""
    down: float
    heaviest_up: float
    """Of the client that has most of both together."""
    heaviest_down: float
    slowest: float
    """Σ_rounds (max_u down_u + max_u up_u): what every round must wait for."""


class PaperCost(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a training as the paper formulates it: the same model, lists and plan, and
    batches of the paper's size. Its vectors alone are counted (see `paper_traffic`)."""

    layers: int
    """Those of the configuration that is estimated, which may not be the paper's."""
    steps: int
    is_assumed: bool
    """Whether so many steps are our assumption."""
    rounds: int
    up_per_step: float
    """Mean over the clients."""
    down_per_step: float
    up: float
    down: float


class WallTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long all rounds take, one after the other."""

    latency: float
    """Seconds a round."""
    bandwidth: float
    """Bits a second of a device, up as down."""
    seconds: float
    server_bandwidth: float
    """Bits a second that the server must carry in the mean, both ways together: not part of the
    time."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """Of a training with all its epochs."""

    devices: int
    items: int
    interactions: int
    epochs: int
    steps_per_epoch: int
    steps: int
    drawn_steps: int
    """Of these, counted exactly; the others are taken to be like them."""
    measurements: int
    """Validations and the test."""
    initialisation: Cost
    step: Cost
    """The mean of all."""
    measurement: Cost
    upkeep: Cost
    """Losses of the epochs, best parameters, checkpoints: all of them."""
    training: Cost
    """All of the above together, as often as they come."""
    paper: PaperCost

    @property
    def share_of_paper_rounds(self) -> float:
        """All of our rounds, by those of the paper's steps alone."""
        return self.training.rounds / self.paper.rounds

    @property
    def share_of_paper_bytes(self) -> float:
        ours, paper = self.training, self.paper
        return (ours.up + ours.down) / (paper.up + paper.down)

    def wall_time(self, latency: float, bandwidth: float) -> WallTime:
        """With so many seconds a round, and so many bits a second of a device."""
        if not (0 <= latency < math.inf and 0 < bandwidth < math.inf):
            raise EstimationError(
                f"found a latency of {latency:g} s and a bandwidth of {bandwidth:g} bit/s; "
                "expected finite numbers, none below zero, and a bandwidth above it"
            )
        cost = self.training
        seconds = cost.rounds * latency + cost.slowest * _BITS / bandwidth
        return WallTime(
            latency=latency,
            bandwidth=bandwidth,
            seconds=seconds,
            server_bandwidth=(cost.up + cost.down) * self.devices * _BITS / seconds,
        )


class _Counted:
    """The accounting of a federation, from one part of its training to the next."""

    def __init__(self, topology: Topology, config: Config) -> None:
        self._rounds: list[Round] = []
        self._n_clients = topology.n_clients
        self._accounting = Accounting(topology, config, self._rounds.append)
        self.initialisation = self._taken()

    def _taken(self) -> Tally:
        """What was counted since this was asked last."""
        found = Tally.of(self._rounds, self._n_clients)
        self._rounds.clear()
        return found

    def step(self, batch: AnyBatch) -> tuple[Tally, Tally, int]:
        """A step in which nobody meets anybody for the first time, what the first meetings of this
        batch add to it, and how many these are. Who was in a step once has met everybody in it, so
        that the same step, counted again, is the one without."""
        before = len(self._accounting.contacts["keys"])
        self._accounting.step(batch)
        first = again = self._taken()
        if meetings := len(self._accounting.contacts["keys"]) - before:
            self._accounting.step(batch)
            again = self._taken()
        return again, first + again * -1, meetings

    def measurement(self) -> Tally:
        self._accounting.measure(Phase.RANK_VALID)
        return self._taken()

    def upkeep(self, losses: int, validations: int) -> Tally:
        self._accounting.report()
        loss = self._taken()
        self._accounting.checkpoint()
        checkpoint = self._taken()
        self._accounting.keep()
        kept = self._taken()
        self._accounting.go_back()
        back = self._taken()
        upkeep = loss * losses + checkpoint * max(1, validations)
        return upkeep + kept * validations + back * min(1, validations)


def estimate(
    split: Split, config: Config, plan: Plan, *, paper_steps: int | None = None
) -> Estimate:
    """A training of everybody in the data set, with this plan. The paper's has `paper_steps`, by
    default min(PAPER_STEPS, PAPER_EPOCHS·⌈|train| / PAPER_BATCH_SIZE⌉)."""
    sampler = Sampler(split.train, config)
    topology = Topology(sampler.listed_places, plan.owner, seed=config.seed)
    counted, batches = _Counted(topology, config), sampler.batches
    steps, every = config.epochs * batches.steps, config.eval_every
    validations = -(-config.epochs // every) if every else 0
    drawn = typical_steps(config.epochs, batches.steps)
    all_steps = _all_steps(counted, sampler, topology, config, drawn)
    measurement = counted.measurement()
    one_step = validations or -(-config.epochs // EPOCHS_A_LOSS)
    losses = config.epochs if batches.steps > 1 else one_step
    upkeep = counted.upkeep(losses, validations)
    training = counted.initialisation + all_steps + measurement * (validations + 1) + upkeep
    step = _cost(all_steps * (1 / steps))
    return Estimate(
        devices=topology.n_clients,
        items=topology.n_items,
        interactions=batches.total,
        epochs=config.epochs,
        steps_per_epoch=batches.steps,
        steps=steps,
        drawn_steps=len(drawn),
        measurements=validations + 1,
        initialisation=_cost(counted.initialisation),
        step=step,
        measurement=_cost(measurement),
        upkeep=_cost(upkeep),
        training=_cost(training),
        paper=_paper(split, config, topology, step.rounds, paper_steps),
    )


def typical_steps(epochs: int, steps: int) -> list[tuple[float, int, int]]:
    """(how many steps it stands for, epoch, step), in their order: of those with a whole batch and
    of the last one of every epoch, whose batch is what is left, some at equal distances."""
    found = []
    for kind in (range(steps - 1), range(steps - 1, steps)):
        total = epochs * len(kind)
        count = min(DRAWN, total)
        for number in range(count):
            epoch, step = divmod(number * total // count, len(kind))
            found.append((total / count, epoch, kind[step]))
    return sorted(found, key=lambda one: one[1:])


def _all_steps(
    counted: _Counted,
    sampler: Sampler,
    topology: Topology,
    config: Config,
    drawn: Sequence[tuple[float, int, int]],
) -> Tally:
    """Σ over the steps of a training. Two parties introduce themselves when they meet first, which
    is early: what that costs is counted by meetings, everything else by steps."""
    n = topology.n_clients
    steps, introductions, met = Tally.of([], n), Tally.of([], n), 0
    for stands_for, epoch, step in drawn:
        without, added, meetings = counted.step(sampler.batches.draw(epoch, step))
        steps, introductions, met = (
            steps + without * stands_for,
            introductions + added,
            met + meetings,
        )
    if not met or len(drawn) == config.epochs * sampler.batches.steps:
        return steps + introductions
    expected = expected_meetings(topology, config.epochs * sampler.batches.total)
    return steps + introductions * (max(expected, met) / met)


def expected_meetings(topology: Topology, samples: int) -> float:
    """Σ_ũ (|U| − |N_ũ|)·(1 − (1 − p_ũ/|U|)^samples): who owns an item meets whoever draws it as
    a negative and lists nothing of its owner, with p_ũ = |owned by ũ| / (|I| − mean |listed|)."""
    n, listed = topology.n_clients, topology.listed.lengths.mean()
    drawn = np.minimum(1, topology.owned.lengths / max(1, topology.n_items - listed))
    never = (1 - drawn / n) ** samples
    return float(((n - topology.by_owner.lengths) * (1 - never)).sum())


def _cost(tally: Tally) -> Cost:
    heaviest = int(np.argmax(tally.up + tally.down))
    return Cost(
        rounds=round(tally.rounds),
        up=float(tally.up.mean()),
        down=float(tally.down.mean()),
        heaviest_up=float(tally.up[heaviest]),
        heaviest_down=float(tally.down[heaviest]),
        slowest=tally.slowest,
    )


def _paper(
    split: Split, config: Config, topology: Topology, rounds_per_step: int, asked: int | None
) -> PaperCost:
    """A triple for each sample and the paper's batch size, whatever ours are. Where a pool serves
    somebody who lists all items, a triple would not: one of them is taken to be unlisted."""
    settings = config.sampled(PAPER_BATCH_SIZE)
    batches = Sampler(split.train, settings).batches
    if config.pooled and isinstance(batches, Batches):
        of_all = np.flatnonzero(topology.listed.lengths == topology.n_items) * topology.n_items
        batches = replace(batches, listed_keys=np.setdiff1d(batches.listed_keys, of_all))
    steps = asked or min(PAPER_STEPS, PAPER_EPOCHS * batches.steps)
    drawn = [
        paper_traffic(topology, settings, batches.draw(epoch, 0)).bytes(settings)
        for epoch in range(DRAWN)
    ]
    up, down = (np.mean(drawn, axis=0) / topology.n_clients).tolist()
    return PaperCost(
        layers=config.layers,
        steps=steps,
        is_assumed=asked is None,
        rounds=rounds_per_step * steps,
        up_per_step=up,
        down_per_step=down,
        up=up * steps,
        down=down * steps,
    )


def some_users(split: Split, count: int, seed: int) -> Split:
    """A data set of so many users at random, and the items that these have in any part."""
    if count > split.n_users:
        raise EstimationError(
            f"{count:,} devices were asked for, but {split.name} has {split.n_users:,} users; ask "
            "for as many or fewer"
        )
    users = np.sort(permutation(seed, Purpose.SPLIT, split.n_users, _SOME_USERS)[:count])
    kept = [
        (part.users[chosen], part.items[chosen])
        for part in (split.train, split.valid, split.test)
        for chosen in [np.isin(part.users, users)]
    ]
    items = np.unique(np.concatenate([of_part for _, of_part in kept]))
    train, valid, test = (
        Interactions.from_pairs(
            np.searchsorted(users, users_of_part),
            np.searchsorted(items, items_of_part),
            len(users),
            len(items),
        )
        for users_of_part, items_of_part in kept
    )
    ids = Ids(split.user_ids.values[users]), Ids(split.item_ids.values[items])
    return Split(split.name, train, valid, test, *ids)
