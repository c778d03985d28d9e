"""Mult-VAE: a variational auto-encoder with a multinomial likelihood (Liang et al., 2018).

    x_u = I_u as a vector of 0 and 1, divided by its norm; in training every entry is dropped with
          probability p, and those that stay are divided by 1 − p
    a_u = tanh(x_u W + b)      μ_u = a_u W_μ + b_μ      ln σ²_u = a_u W_σ + b_σ
    z_u = μ_u + σ_u ⊙ ε        h_u = tanh(z_u W_z + b_z)      y_u = h_u Vᵀ + c

    Loss = −Σ_{i ∈ I_u} ln softmax(y_u)_i + β·KL(N(μ_u, σ²_u) ‖ N(0, 1)), mean over a batch

with 600 numbers in a and h, 200 in z. β grows linearly over some epochs and then stays. (It is
customary to count steps, 200,000 of them, which are thousands of epochs on data of our size.)
A ranking takes z_u = μ_u of all of I_u. Scores are linear in h_u: the scorer has vectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import numpy as np
from msgspec import Meta

from lpgcn.array_types import Float64, Int64
from lpgcn.config import Config
from lpgcn.data import Split
from lpgcn.evaluation import Vectors
from lpgcn.methods.autograd import Parameters, weighted_sums, xavier
from lpgcn.methods.method import LEARNING, Losses, Method
from lpgcn.methods.traffic import RoundTraffic
from lpgcn.model.kernels import Floats
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, normal, permutation, uniform
from lpgcn.runtime.engines.engine import Tables
from lpgcn.runtime.machine import Machine

if TYPE_CHECKING:
    import torch

_USERS_AT_ONCE: Final = 1 << 12


class MultVaeOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """See the formulas of this module."""

    hidden: Annotated[int, Meta(ge=1, description="Numbers in each of the two hidden layers.")] = (
        600
    )
    latent: Annotated[int, Meta(ge=1, description="Numbers in z.")] = 200
    dropout: Annotated[float, Meta(ge=0, lt=1, description="Share of the input left out.")] = 0.5
    beta: Annotated[float, Meta(ge=0, description="β in the end; the paper tries .2 to .8.")] = 0.2
    anneal_epochs: Annotated[int, Meta(ge=1, description="Epochs in which β grows from 0.")] = 50
    users_a_batch: Annotated[int, Meta(ge=1, description="Users of a step.")] = 500


class MultVae:
    """See `Learner`."""

    def __init__(
        self, split: Split, config: Config, options: MultVaeOptions, machine: Machine
    ) -> None:
        self._config, self._options = config, options
        self._items = split.train.by_user
        self._entries = Ragged(self._items.offsets, np.arange(len(self._items.values)))
        """Interactions by number, for whom dropout is drawn."""
        self._parameters = Parameters(initial_tables(split.n_items, config, options), machine)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self._items) // self._options.users_a_batch)

    def beta(self, epoch: int, step: int) -> float:
        passed = (epoch + step / self.steps_per_epoch) / self._options.anneal_epochs
        return self._options.beta * min(1.0, passed)

    def step(self, epoch: int, step: int, learning_rate: float) -> Losses:
        size, seed = self._options.users_a_batch, self._config.seed
        order = permutation(seed, Purpose.ROUND, len(self._items), epoch)
        users = np.sort(order[step * size : (step + 1) * size])
        names = ("encoder", "encoder_bias", *_LATENT, "decoder", "decoder_bias")
        leaves = self._parameters.leaves(dict.fromkeys(names))
        tensors = {name: leaf.tensor for name, leaf in leaves.items()}
        items = self._items.only(users)
        noise = normal(seed, Purpose.LATENT, users, epoch, count=self._options.latent)
        loss = negative_elbo(
            tensors, items, self._weights(users, epoch), noise, self.beta(epoch, step)
        )
        self._parameters.step(loss, leaves, learning_rate)
        return Losses(float(loss.detach()) * len(users), len(users))

    def _weights(self, users: Int64, epoch: int) -> Float64:
        """Of every item in the input: 1 / √|I_u|, or, where it is dropped, none."""
        entries, share = self._entries.only(users), self._options.dropout
        drawn = uniform(self._config.seed, Purpose.DROPOUT, entries.values, epoch)[:, 0]
        return (drawn >= share) * norms(entries) / (1 - share)

    def scorer(self) -> Vectors:
        """[h_u, 1] and [V, c]."""
        import torch

        hidden = []
        with torch.no_grad():
            tensors = {
                name: torch.tensor(self._parameters[name])
                for name in ("encoder", "encoder_bias", *_LATENT)
            }
            for first in range(0, len(self._items), _USERS_AT_ONCE):
                items = self._items.part(
                    slice(first, min(first + _USERS_AT_ONCE, len(self._items)))
                )
                mean, _ = encoded(tensors, items, norms(items))
                hidden.append(decoded(tensors, mean).numpy())
        users = np.concatenate(hidden)
        ones = np.ones((len(users), 1), dtype=users.dtype)
        return Vectors(
            np.hstack((users, ones)),
            np.hstack((self._parameters["decoder"], self._parameters["decoder_bias"])),
        )

    def state(self) -> Tables:
        return self._parameters.state()

    def restore(self, state: Tables) -> None:
        self._parameters.restore(state)

    def traffic(self) -> RoundTraffic | None:
        return None


_LATENT: Final = ("mean", "mean_bias", "spread", "spread_bias", "hidden", "hidden_bias")
"""W_μ, b_μ, W_σ, b_σ, W_z, b_z."""


def initial_tables(n_items: int, config: Config, options: MultVaeOptions) -> dict[str, Floats]:
    """Xavier, and biases at zero."""
    hidden, latent, kind = options.hidden, options.latent, config.dtype
    shapes = {
        "encoder": (n_items, hidden),
        "mean": (hidden, latent),
        "spread": (hidden, latent),
        "hidden": (latent, hidden),
        "decoder": (n_items, hidden),
    }
    tables = {
        name: xavier(config, Purpose.PERCEPTRON, shape, number)
        for number, (name, shape) in enumerate(shapes.items())
    }
    biases = {
        f"{name}_bias": np.zeros((1, columns), dtype=kind)
        for name, (_, columns) in shapes.items()
        if name != "decoder"
    }
    return {**tables, **biases, "decoder_bias": np.zeros((n_items, 1), dtype=kind)}


def norms(items: Ragged) -> Float64:
    """1 / √|I_u| for every entry."""
    return items.lengths[items.rows].astype(np.float64) ** -0.5


def encoded(
    tables: dict[str, torch.Tensor], items: Ragged, weights: Float64
) -> tuple[torch.Tensor, torch.Tensor]:
    """μ and ln σ²; x_u W is a weighted sum of the rows of W that are the user's items."""
    summed = weighted_sums(tables["encoder"], items, weights)
    hidden = (summed + tables["encoder_bias"]).tanh()
    mean = hidden @ tables["mean"] + tables["mean_bias"]
    return mean, hidden @ tables["spread"] + tables["spread_bias"]


def decoded(tables: dict[str, torch.Tensor], z: torch.Tensor) -> torch.Tensor:
    """h."""
    return (z @ tables["hidden"] + tables["hidden_bias"]).tanh()


def negative_elbo(
    tables: dict[str, torch.Tensor], items: Ragged, weights: Float64, noise: Float64, beta: float
) -> torch.Tensor:
    """The loss of a batch. −Σ ln softmax(y)_i = |I_u|·ln Σ_j e^{y_j} − Σ_{i ∈ I_u} y_i."""
    import torch

    mean, log_variance = encoded(tables, items, weights)
    kind = mean.dtype
    z = mean + torch.from_numpy(noise).to(kind) * (log_variance / 2).exp()
    scores = decoded(tables, z) @ tables["decoder"].T + tables["decoder_bias"].T
    counts = torch.from_numpy(items.lengths).to(kind)
    own = scores[torch.from_numpy(items.rows), torch.from_numpy(items.values)]
    likelihood = own.sum() - (counts * scores.logsumexp(1)).sum()
    divergence = (mean.square() + log_variance.exp() - 1 - log_variance).sum() / 2
    return (beta * divergence - likelihood) / len(items)


MULT_VAE: Final = Method(
    name="mult-vae",
    summary="variational auto-encoder, multinomial likelihood (Liang et al., 2018)",
    fit=MultVae,
    options=MultVaeOptions,
    protects="Nothing: the data centre has all interactions. (FedVAE sends the gradients of the "
    "same model, whose last layer alone tells what a client has.)",
    uses=LEARNING | {"dtype"},
    grid={"beta": (0.2, 0.4, 0.6, 0.8)},
    needs_torch=True,
)
