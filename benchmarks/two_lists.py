"""What two lists of the same people tell: virtual items drawn anew in a second run, or kept.

    LPGCN_DATA=… python benchmarks/two_lists.py ml-100k

A server that has served both runs sees who lists which tokens in each. Names of tokens are new in
the second run; it takes two tokens for the same item whose lists of people resemble one another
most. What somebody lists in both runs it calls real. α = |I_u|, so that half of a list is.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lpgcn.config import Config
from lpgcn.data import Split, load
from lpgcn.protocol.client.profile import Profile
from lpgcn.protocol.client.user import draw_virtual_items
from lpgcn.protocol.wire.reading import pack_numbers
from lpgcn.runtime.runs.kept_virtual_items import KeptVirtualItems

Lists = npt.NDArray[np.bool_]
"""Whether a user lists an item."""


def profile(split: Split, user: int, seed: int, config: Config) -> Profile:
    degrees = split.train.item_degrees.astype(np.float64)
    return Profile(
        index=user, n_users=split.n_users, n_items=split.n_items, config=config, seed=0,
        private_seed=seed, train=pack_numbers(split.train.items_of(user)), valid=b"",
        test=b"", popularity=(degrees / degrees.sum()).tobytes(),
    )  # fmt: skip


def listed(split: Split, config: Config, seeds: list[int], kept: KeptVirtualItems | None) -> Lists:
    """One run: everybody has a seed of its own."""
    found = np.zeros((split.n_users, split.n_items), dtype=np.bool_)
    for user, seed in enumerate(seeds):
        about = profile(split, user, seed, config)
        if kept is not None:
            about = kept.remembered(user, about, split.item_ids)
        real = split.train.items_of(user)
        found[user, real] = found[user, draw_virtual_items(about, real)] = True
    return found


def matched(first: Lists, second: Lists) -> npt.NDArray[np.intp]:
    """For each token of the first run the one of the second whose people resemble its most."""
    one, other = (lists - lists.mean(axis=0) for lists in (first, second))
    one, other = (rows / np.linalg.norm(rows, axis=0).clip(1e-9) for rows in (one, other))
    return (one.T @ other).argmax(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    split, generator = load(arguments.dataset), np.random.default_rng(arguments.seed)
    real = np.zeros((split.n_users, split.n_items), dtype=np.bool_)
    real[split.train.users, split.train.items] = True
    for draw in ("uniform", "popularity"):
        config = Config(virtual_items="1.0x", virtual_draw=draw)
        for what in ("drawn anew", "kept"):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "all.virtual-items"
                kept = KeptVirtualItems(path) if what == "kept" else None
                first, again = (
                    listed(
                        split, config, generator.integers(2**62, size=split.n_users).tolist(), kept
                    )
                    for _ in range(2)
                )
            tokens = generator.permutation(split.n_items)
            second = again[:, tokens]
            called_real = first & second[:, matched(first, second)]
            right = (called_real & real).sum()
            print(
                f"{draw:10} {what:10}  of what is called real {right / called_real.sum():.3f} is "
                f"(chance {real.sum() / first.sum():.3f}); found {right / real.sum():.3f} of it"
            )


if __name__ == "__main__":
    main()
