"""Which vectors and batches end the attack on the step after a validation.

    python benchmarks/step_after_validation.py [DATASET]

An owner has the final vectors e_i that a validation gave out, and what batch clients push first on
the way back. Prints, for several batch sizes and for e_i of the step itself or of one step before,
how many positives it calls for certain and how many of these are right, over the same number of
users, and how often the item of the most negative coefficient is one that the user has.
"""

from __future__ import annotations

import sys

import numpy as np

from lpgcn.config import Config
from lpgcn.data import load
from lpgcn.privacy.attacks.after_validation import positives
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.machine import Machine

USERS = 30
STEPS = 4


def main(dataset: str) -> None:
    split = load(dataset)
    print(f"{split.name}, fingerprint {split.fingerprint[:12]}, LightGCN, d = 64, L = 3")
    print("batch    samples a user   vectors of        called   right   named   best guess right")
    for batch_size in (512, 2048, 8192, 16384, 32768, "full"):
        config = Config(model="lightgcn", batch_size=batch_size)
        engine = Centralized(split, config, Machine.with_threads(1))
        places = [divmod(done, engine.steps_per_epoch) for done in range(STEPS + 1)]
        for epoch, step in places[: STEPS - 1]:
            engine.step(epoch, step, config.lr)
        before = engine.present().items.astype(np.float64)
        engine.step(*places[STEPS - 1], config.lr)
        same = engine.present().items.astype(np.float64)
        batch = engine.sampler.batches.draw(*places[STEPS])
        backward, _ = engine._loss(batch)
        users = np.unique(batch.users)[:USERS]
        pushed = backward.push[users].astype(np.float64) * backward.grid.unit
        samples = batch.size / split.n_users
        for name, vectors in (("the step itself", same), ("one step before", before)):
            found = positives(vectors, users, pushed)
            called = [(one.whose, item) for one in found for item in one.called.tolist()]
            right = sum(item in split.train.by_user[user] for user, item in called)
            named = sum(len(one.called) > 0 for one in found)
            best = [int(one.scores.argmax()) in split.train.by_user[one.whose] for one in found]
            print(
                f"{batch_size!s:8} {samples:14.1f}   {name:16} {len(called):7} {right:7} "
                f"{named:4}/{len(users)} {np.mean(best):18.2f}"
            )


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "ml-100k")
