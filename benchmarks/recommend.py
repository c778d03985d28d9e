"""Recommendations to every user of Gowalla at once, against its evaluation in the same run.

    LPGCN_DATA=… python benchmarks/recommend.py [--dataset gowalla] [--rounds 5]

Both rank the same vectors, which are random: for everybody the best 20 of all items but those that
it has. The evaluation then counts hits of users who have test items, the recommendations become
columns of ids. The ratio is of the medians of rounds in turns, and is to be no more than 1, but
for users whom the evaluation leaves out because they have nothing to test.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np

from lpgcn.config import Config
from lpgcn.data import load
from lpgcn.evaluation import Vectors
from lpgcn.runtime.runs.saved_model import FORMAT, ModelCard, Recommender

K, DIM = 20, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="gowalla")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    split = load(options.dataset)
    draw = np.random.default_rng(0)
    users, items = (
        draw.standard_normal((n, DIM), dtype=np.float32) for n in (split.n_users, split.n_items)
    )
    card = ModelCard(
        format=FORMAT,
        dataset=split.name,
        fingerprint=split.fingerprint,
        config=Config(),
        n_users=split.n_users,
        n_items=split.n_items,
    )
    model = Recommender(card, Vectors(users, items), split.user_ids, split.item_ids, split.train)
    seconds: dict[str, list[float]] = {"evaluation": [], "recommendations": []}
    for _ in range(options.rounds + 1):
        began = time.perf_counter()
        model.evaluate(split, (K,))
        middle = time.perf_counter()
        found = model.recommend_batch(k=K)
        ended = time.perf_counter()
        seconds["evaluation"].append(middle - began)
        seconds["recommendations"].append(ended - middle)
    # The first round compiles.
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    tested = int((split.test.user_degrees > 0).sum())
    print(f"{split.name}: {split.n_users:,} users ({tested:,} tested), {split.n_items:,} items")
    print(f"evaluation {medians['evaluation']:.2f} s, {len(found):,} recommendations "
          f"{medians['recommendations']:.2f} s: ratio "
          f"{medians['recommendations'] / medians['evaluation']:.2f}")  # fmt: skip


if __name__ == "__main__":
    main()
