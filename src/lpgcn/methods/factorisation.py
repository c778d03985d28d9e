"""Matrix factorisation with the BPR loss (Rendle et al., 2009), centralised and federated.

    y_ui = e_u · e_i      Loss = Σ_(u,i,j) [−ln σ(y_ui − y_uj) + ½λ(‖e_u‖² + ‖e_i‖² + ‖e_j‖²)] / B

It is the paper's Eq. 5 on layer-0 vectors: the loss, the grid, Adam and the samples are those of
our backbones, and nothing is propagated.

FedMF (Chai et al., 2020, with BPR as the paper compares it) is the same model with rounds of users:
who is in a round downloads all item vectors, makes the step of its own user vector, and adds the
gradient of its items to a secure sum, which is exact here because it is a sum of integers. All
items are in it, or the sum's shape would tell what a client has.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from lpgcn import fixed_point
from lpgcn.array_types import Int64
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import Scorer, Vectors
from lpgcn.methods.method import FACTORS, Losses, Method, UserRounds
from lpgcn.methods.traffic import RoundTraffic
from lpgcn.model.adam import Adam, Gradient, restore_states, states
from lpgcn.model.batches import Batch, UserBatches
from lpgcn.model.grid import Grid
from lpgcn.model.initial import initial_vectors
from lpgcn.model.kernels import Floats
from lpgcn.model.losses.gradient import LossGradient
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.engines.objectives import Touched, of_pairs
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.machine import Machine


class Factorisation:
    """See `Learner`."""

    _share = 1.0
    """Of a parameter in the final vector."""

    def __init__(
        self, split: Split, config: Config, machine: Machine, users_a_round: int | None = None
    ) -> None:
        self._config, self._kernels = config, machine.kernels
        self._sampler = Sampler(split.train, config, users_a_round=users_a_round)
        self._users_a_round = users_a_round
        batches = self._sampler.batches
        size = batches.most_samples if isinstance(batches, UserBatches) else config.batch_size
        self._grid = Grid.backward(config.dtype, size)
        tables = initial_vectors(config, split.n_users, split.n_items)
        self._adam = {name: Adam(table, machine.kernels) for name, table in tables.items()}
        # All rows of a table step, most of them with a gradient of zero: these are kept.
        self._gradients = {
            name: np.zeros(table.shape, dtype=np.int64) for name, table in tables.items()
        }

    @property
    def steps_per_epoch(self) -> int:
        return self._sampler.batches.steps

    def step(self, epoch: int, step: int, learning_rate: float) -> Losses:
        batch = self._sampler.batches.draw(epoch, step)
        assert isinstance(batch, Batch), "softmax is refused"
        touched = Touched.of(batch, self._sampler)
        found = of_pairs(
            touched,
            self._vectors("users", touched.users),
            self._vectors("items", touched.items),
            self._grid,
            self._kernels,
        )
        # A user's vector is its own to change, so nobody else's steps in a round.
        own = None if self._users_a_round is None else found.users.rows
        total = found.total + self._update("users", found.users, batch.size, learning_rate, own)
        total += self._update("items", found.items, batch.size, learning_rate, None)
        return Losses(fixed_point.decode(total), batch.size)

    def _vectors(self, name: str, rows: Int64) -> Floats:
        """The final vectors of some users or items, as a copy."""
        return self._adam[name].parameter[rows]

    def _update(
        self, name: str, loss: LossGradient, size: int, learning_rate: float, own: Any
    ) -> int:
        """One step of Adam; the regulariser's part of the loss, in fixed point."""
        adam, integers, rows = self._adam[name], self._gradients[name], loss.rows
        squares = np.einsum(
            "nd,nd->n", adam.parameter[rows], adam.parameter[rows], dtype=np.float64
        )
        decay = np.zeros(len(integers))
        decay[rows] = loss.in_samples * (self._config.reg / size)
        factor = np.full(len(integers), self._share * self._grid.unit / size)
        integers[rows] = loss.sums
        adam.step(Gradient(integers, factor, decay), learning_rate, own)
        integers[rows] = 0
        return fixed_point.total(0.5 * self._config.reg * loss.in_samples * squares)

    def scorer(self) -> Scorer:
        every = {name: np.arange(len(adam.parameter)) for name, adam in self._adam.items()}
        return Vectors(*(self._vectors(name, every[name]) for name in ("users", "items")))

    def state(self) -> Tables:
        return states(self._adam)

    def restore(self, state: Tables) -> None:
        restore_states(self._adam, state)

    def traffic(self) -> RoundTraffic | None:
        """All item vectors down, all their gradients up."""
        if self._users_a_round is None:
            return None
        n_users, table = len(self._sampler.members), self._adam["items"].parameter
        return RoundTraffic.summed(table.size, self._config, n_users, self.steps_per_epoch)


def fit_bpr(split: Split, config: Config, options: Any, machine: Machine) -> Factorisation:
    return Factorisation(split, config, machine)


def fit_fedmf(split: Split, config: Config, options: UserRounds, machine: Machine) -> Factorisation:
    return Factorisation(split, config, machine, options.users_a_round)


BPR: Final = Method(
    name="bpr",
    summary="matrix factorisation with the BPR loss (Rendle et al., 2009)",
    fit=fit_bpr,
    protects="Nothing: the data centre has all interactions.",
    uses=FACTORS | {"batch_size", "dtype"},
)
FEDMF: Final = Method(
    name="fedmf",
    summary="federated matrix factorisation, BPR, with secure sums (after Chai et al., 2020)",
    fit=fit_fedmf,
    options=UserRounds,
    protects="Single gradients, by a secure sum; a client's vector never leaves it. Whoever sees "
    "the item vectors before and after a round sees which items its clients touched, and with few "
    "of them in a round, who has what can be guessed from many rounds.",
    uses=FACTORS | {"dtype"},
)
