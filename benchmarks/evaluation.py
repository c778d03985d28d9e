"""Full evaluation of all Gowalla users at 20 against nothing but the scores and their top-k.

    LPGCN_DATA=… python benchmarks/evaluation.py [--rounds 5]

The bare figure is `torch.mm` into a reused buffer and `torch.topk(20)`: no masking, no metrics. It
is given twice, with the score rows as they come and aligned to 128 bytes, which suits it better.
All three take turns in one run on two threads; the best round of each counts. Last comes what one
client does on its device, with NumPy alone: the ranking of one user.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lpgcn.evaluation import Vectors, evaluate, top_items
from lpgcn.evaluation.compiled import CompiledRanker
from lpgcn.model.kernels.threads import Threads
from lpgcn.ragged import Ragged

K = 20
DIMENSION = 64
BARE_BUFFER_BYTES = 1 << 27


def read(path: Path, n_users: int) -> Ragged:
    """LightGCN text, `user item item …`; users that are not in the file have no items."""
    items = [np.empty(0, dtype=np.int64)] * n_users
    for line in path.read_text().splitlines():
        user, *own = map(int, line.split())
        items[user] = np.array(own, dtype=np.int64)
    return Ragged.from_arrays(items)


def bare(users: Tensor, items: Tensor, *, row_alignment: int) -> None:
    width = -(-len(items) // row_alignment) * row_alignment
    chunk = BARE_BUFFER_BYTES // (4 * width)
    buffer = torch.empty(chunk, width)
    for start in range(0, len(users), chunk):
        part = users[start : start + chunk]
        scores = buffer[: len(part), : len(items)]
        torch.mm(part, items.T, out=scores)
        scores.topk(K)


def best_of(rounds: int, contenders: dict[str, Callable[[], object]]) -> dict[str, float]:
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    folder = Path(os.environ.get("LPGCN_DATA", "data")) / "gowalla"
    n_users, n_items = 29_858, 40_981
    train, test = (read(folder / f"{part}.txt", n_users) for part in ("train", "test"))
    generator = np.random.default_rng(0)
    users = generator.standard_normal((n_users, DIMENSION), dtype=np.float32)
    items = generator.standard_normal((n_items, DIMENSION), dtype=np.float32)
    tensors = torch.from_numpy(users), torch.from_numpy(items)
    ranker = CompiledRanker(Threads(2))
    evaluate(
        Vectors(users[:8], items), train.only(np.arange(8)), test.only(np.arange(8)), [K], ranker
    )
    seconds = best_of(
        arguments.rounds,
        {
            "bare scores + top-k": lambda: bare(*tensors, row_alignment=1),
            "bare scores + top-k, aligned rows": lambda: bare(*tensors, row_alignment=32),
            "evaluate": lambda: evaluate(Vectors(users, items), train, test, [K], ranker),
        },
    )
    print(f"Gowalla, {n_users} users x {n_items} items, d={DIMENSION}, k={K}, 2 threads")
    for name, figure in seconds.items():
        print(f"{name:<36}{figure:7.2f} s   evaluate / this = {seconds['evaluate'] / figure:.2f}")
    own = train.only(np.arange(1))
    alone = best_of(100, {"one user": lambda: top_items(users[:1], items, own, K)})
    print(f"{'one user, NumPy alone':<36}{1000 * alone['one user']:7.2f} ms")


if __name__ == "__main__":
    main()
