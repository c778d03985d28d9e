"""Fold-in: users who were held out of training altogether, against the same users trained.

    LPGCN_DATA=… python benchmarks/fold_in.py ml-100k --config configs/ml-100k.toml
    LPGCN_DATA=… python benchmarks/fold_in.py gowalla --config configs/gowalla-few-rounds.toml

One user in ten is drawn. One model is trained on everybody, another one on the nine others, whose
items are all that it knows. Both recommend to the tenth: the first as to users whom it knows, the
second from their training items alone. Their test items that the second does not know are misses.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import msgspec
import numpy as np

from lpgcn.array_types import Int64
from lpgcn.config import Config, read_config
from lpgcn.data import Ids, Interactions, Split, load
from lpgcn.evaluation import Vectors, user_metrics
from lpgcn.ragged import Ragged
from lpgcn.random import Purpose, permutation
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.runs.saved_model import Recommender
from lpgcn.runtime.runs.training import train

K = 20


def drawn_users(split: Split, share: float, seed: int) -> Int64:
    """Of those who have test items."""
    tested = np.flatnonzero(split.test.user_degrees)
    order = permutation(seed, Purpose.SPLIT, len(tested), 2)
    return np.sort(tested[order[: int(share * len(tested))]])


def without(split: Split, users: Int64) -> Split:
    """The others, and the items that they have."""
    kept_users = np.setdiff1d(np.arange(split.n_users), users)
    parts = [
        (part.users[chosen], part.items[chosen])
        for part in split.parts.values()
        for chosen in [~np.isin(part.users, users)]
    ]
    kept_items = np.unique(np.concatenate([items for _, items in parts]))
    train, valid, test = (
        Interactions.from_pairs(
            np.searchsorted(kept_users, of_part),
            np.searchsorted(kept_items, items),
            len(kept_users),
            len(kept_items),
        )
        for of_part, items in parts
    )
    ids = Ids(split.user_ids.values[kept_users]), Ids(split.item_ids.values[kept_items])
    return Split(split.name, train, valid, test, *ids)


def folded_recall(model: Recommender, split: Split, users: Int64) -> float:
    """Mean Recall@20 of users whom the model does not know."""
    items = split.item_ids.values
    places = np.searchsorted(model.item_ids.values, items).clip(max=len(model.item_ids) - 1)
    place = np.where(model.item_ids.values[places] == items, places, -1)

    def known(part: Interactions) -> Ragged:
        rows = part.by_user.only(users)
        found = place[rows.values]
        return Ragged(rows.offsets, found).where(found >= 0)

    history, heldout = known(split.train), known(split.test)
    vectors = np.stack([model.fold_in([model.item_ids[i] for i in own]) if len(own) else
                        np.zeros_like(model.vectors.items[0])
                        for own in (history[row] for row in range(len(users)))])  # fmt: skip
    measured = user_metrics(
        Vectors(vectors, model.vectors.items), history, heldout, (K,), Machine.with_threads().ranker
    )
    hits = measured.values[f"recall@{K}"] * heldout.lengths[measured.users]
    return float((hits / split.test.user_degrees[users][measured.users]).sum() / len(users))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", nargs="?", default="ml-100k")
    parser.add_argument("--config", type=Path)
    parser.add_argument("--model", default="lightgcn+")
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args()
    split = load(options.dataset)
    config = (read_config(options.config) if options.config else Config()).changed(
        model=options.model
    )
    if options.epochs:
        config = config.changed(epochs=options.epochs)
    print(f"{split.name}, fingerprint {split.fingerprint[:12]}, {config.model}")
    print(msgspec.json.encode(config).decode())
    for seed in options.seeds:
        chosen = config.changed(seed=seed)
        users = drawn_users(split, options.share, seed)
        with tempfile.TemporaryDirectory() as folder:
            everybody, others = Path(folder) / "everybody", Path(folder) / "others"
            train(split, chosen, out=everybody)
            train(without(split, users), chosen, out=others)
            trained = Recommender.load(everybody).user_metrics(split, (K,))
            mine = np.isin(trained.users, users)
            recall = float(trained.values[f"recall@{K}"][mine].mean())
            folded = folded_recall(Recommender.load(others), split, users)
        print(
            f"seed {seed}, {len(users):,} users: Recall@{K} trained {recall:.4f}, folded in "
            f"{folded:.4f} ({folded / recall - 1:+.1%})",
            flush=True,
        )


if __name__ == "__main__":
    main()
