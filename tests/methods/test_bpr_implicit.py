"""BPR-MF against `implicit`'s, on MovieLens 100K.

Its samples are others than ours: a positive is any interaction, not any user's, and a negative is
the item of any interaction, so that popular items are negatives often, which costs it much of the
recall here. And it steps by SGD, not by Adam, so that the best on the way cannot be compared.
But with the same samples and the same λ both minimise the same function, and where they end they
must be equally good.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lpgcn.data import Split
from lpgcn.evaluation import Scorer, Vectors, evaluate
from lpgcn.methods import factorisation
from lpgcn.methods.factorisation import Factorisation
from lpgcn.methods.registry import configured
from lpgcn.model.batches import Batch
from lpgcn.model.losses.bpr import Pairs
from lpgcn.model.sampling import contains
from lpgcn.runtime.engines.sampler import Sampler
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.runs.source import Source

SEEDS, REG = (0, 1, 2), 0.01


@pytest.fixture(scope="module")
def split(real_data: Path) -> Split:
    return Source(dataset="ml-100k").open()


class AsImplicit(Sampler):
    """Draws what `implicit` draws; a negative that the user has is left out, as there."""

    def pairs(self, batch: Batch) -> Pairs:
        own, n_items = self.real, len(self.catalogue)
        draw = np.random.default_rng([batch.epoch, int(batch.positions[0])])
        entries = draw.integers(len(own.values), size=batch.size)
        users, positives = own.rows[entries], own.values[entries]
        negatives = own.values[draw.integers(len(own.values), size=batch.size)]
        good = ~contains(own.rows * n_items + own.values, users * n_items + negatives)
        return Pairs.from_samples(users[good], positives[good], negatives[good], 2 * n_items)


def recall(scorer: Scorer, split: Split) -> float:
    found = evaluate(scorer, split.train.by_user, split.parts["valid"].by_user, (20,))
    return found.values["recall@20"]


def ours(split: Split, seed: int, epochs: int) -> float:
    config = configured({"model": "bpr", "lr": 0.002, "reg": REG, "seed": seed})
    learner = Factorisation(split, config, Machine.with_threads())
    for epoch in range(epochs):
        rate = config.lr if epoch < 150 else config.lr / 5
        for step in range(learner.steps_per_epoch):
            learner.step(epoch, step, rate)
    return recall(learner.scorer(), split)


def theirs(split: Split, seed: int) -> float:
    """Biases of items are one more column."""
    from implicit.bpr import BayesianPersonalizedRanking
    from scipy.sparse import csr_matrix

    train = split.train
    ones = csr_matrix(
        (np.ones(len(train), dtype=np.float32), (train.users, train.items)),
        (train.n_users, train.n_items),
    )
    model = BayesianPersonalizedRanking(
        factors=64, learning_rate=0.01, regularization=REG, iterations=500, num_threads=1,
        random_state=seed,
    )  # fmt: skip
    model.fit(ones, show_progress=False)
    return recall(Vectors(model.user_factors, model.item_factors), split)


@pytest.mark.slow
def test_as_good_as_implicit_with_its_samples(
    split: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    their = np.mean([theirs(split, seed) for seed in SEEDS])
    assert ours(split, 0, epochs=40) > 1.2 * their
    monkeypatch.setattr(factorisation, "Sampler", AsImplicit)
    our = np.mean([ours(split, seed, epochs=200) for seed in SEEDS])
    assert our == pytest.approx(their, rel=0.05)
