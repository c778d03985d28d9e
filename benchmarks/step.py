"""A LightGCN training step of ours against PyG's LightGCN and a plain torch COO one, on Gowalla.

    LPGCN_DATA=… python benchmarks/step.py [--rounds 3] [--steps 5] [--batch-size 2048]

All three start from the same parameters and take the same samples. Ours draws its samples within
the step, the others get them ready-made. PyG has the fastest adjacency that it takes without extra
packages: torch CSR, normalised once and for all. The COO model does what the public
LightGCN-PyTorch does. Before anything is timed, the losses of three steps must agree: then all
three do the same work. Ours rounds what travels to multiples of 2^-24 and 2^-25, the others round
as float32 does, so that losses agree to some units of their seventh digit.

After a call of torch its OpenMP threads spin for milliseconds and hold the processors that our
threads would be woken on. So each contender is measured in a block of consecutive steps, after one
step that is not counted, and blocks, not steps, take turns. Where others use the machine as well,
threads that spin suffer far more than ours, and the ratios say little: the share of the processors
that others took is printed. The ratio of the median steps and that of the best must both reach a
target.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.models import LightGCN

from lpgcn.config import Config
from lpgcn.data import Split, load
from lpgcn.runtime.engines.centralized import Centralized
from lpgcn.runtime.machine import Machine
from lpgcn.runtime.memory import keep_freed_memory
from processors import Others, seconds_in_turns

CHECKED_STEPS = 3
LOSS_TOLERANCE = 1e-5
TARGETS = {"PyG LightGCN, CSR": 8.0, "torch COO autograd": 12.0}

Step = Callable[[int], float]
"""Makes the step of this number and returns the loss of its batch, before the update."""


def ours(engine: Centralized, config: Config) -> Step:
    def step(number: int) -> float:
        engine.step(0, number, config.lr)
        return engine.take_loss()

    return step


def triples(engine: Centralized, number: int, split: Split) -> tuple[Tensor, Tensor, Tensor]:
    """Users, positives and negatives of a batch; item i is node n_users + i."""
    pairs = engine.sampler.pairs(engine.sampler.batches.draw(0, number))
    items = torch.from_numpy(engine.sampler.item_ids[pairs.items])
    users = torch.from_numpy(pairs.users)
    return (
        users[pairs.positive],
        split.n_users + items[pairs.positive],
        split.n_users + items[pairs.negative],
    )


def adjacency(split: Split) -> Tensor:
    """D^-½ A D^-½ of the bipartite graph over users and items, coalesced COO."""
    users = torch.from_numpy(split.train.users)
    items = split.n_users + torch.from_numpy(split.train.items)
    edges = torch.stack((torch.cat((users, items)), torch.cat((items, users))))
    nodes = split.n_users + split.n_items
    edges, weights = gcn_norm(edges, None, nodes, add_self_loops=False)
    return torch.sparse_coo_tensor(edges, weights, (nodes, nodes)).coalesce()


def pyg(
    graph: Tensor, start: Tensor, config: Config, batches: list[tuple[Tensor, Tensor, Tensor]]
) -> Step:
    csr = graph.to_sparse_csr()
    model = LightGCN(len(start), config.dim, config.layers, normalize=False)
    model.embedding.weight.data.copy_(start)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)

    def step(number: int) -> float:
        users, positives, negatives = batches[number]
        optimizer.zero_grad()
        pairs = torch.stack((torch.cat((users, users)), torch.cat((positives, negatives))))
        positive, negative = model(csr, pairs).chunk(2)
        loss = model.recommendation_loss(
            positive,
            negative,
            node_id=torch.cat((users, positives, negatives)),
            lambda_reg=config.reg / 2,
        )
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def coo(
    graph: Tensor, start: Tensor, config: Config, batches: list[tuple[Tensor, Tensor, Tensor]]
) -> Step:
    table = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([table], lr=config.lr)

    def step(number: int) -> float:
        layers = [table]
        for _ in range(config.layers):
            layers.append(torch.sparse.mm(graph, layers[-1]))
        final = torch.stack(layers, dim=1).mean(dim=1)
        users, positives, negatives = batches[number]
        scores = [(final[users] * final[items]).sum(1) for items in (positives, negatives)]
        squares = sum(table[rows].norm(2).pow(2) for rows in batches[number])
        loss = softplus(scores[1] - scores[0]).mean() + config.reg / 2 * squares / len(users)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def check_same_work(contenders: dict[str, Step]) -> None:
    for number in range(CHECKED_STEPS):
        losses = {name: step(number) for name, step in contenders.items()}
        spread = max(losses.values()) - min(losses.values())
        assert spread < LOSS_TOLERANCE, f"step {number}: the losses differ: {losses}"
        print(f"step {number}: losses agree, {min(losses.values()):.6f} ± {spread:.0e}")


def measure(contenders: dict[str, Step], rounds: int, steps: int) -> dict[str, tuple[float, float]]:
    """The median and the best seconds of a step of each, in blocks that take turns."""
    seconds = seconds_in_turns(contenders, rounds, steps, CHECKED_STEPS)
    return {name: (statistics.median(times), min(times)) for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="blocks of each contender")
    parser.add_argument("--steps", type=int, default=5, help="counted steps of a block")
    parser.add_argument("--batch-size", type=int, default=2048)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
    torch.sparse.check_sparse_tensor_invariants.disable()
    torch.set_num_threads(2)
    # It holds for the whole process, so the others gain from it as well.
    keep_freed_memory()
    split = load("gowalla")
    config = Config(
        model="lightgcn",
        layers=3,
        dim=64,
        batch_size=arguments.batch_size,
        init_deviation=0.3,
    )
    engine = Centralized(split, config, Machine.with_threads(2))
    graph = adjacency(split)
    state = engine.inspector().state()
    tables = [state[f"{kind}.parameter"] for kind in ("users", "items")]
    start = torch.from_numpy(np.concatenate(tables))
    total = CHECKED_STEPS + arguments.rounds * (arguments.steps + 1)
    batches = [triples(engine, number, split) for number in range(total)]
    contenders = {
        "ours": ours(engine, config),
        "PyG LightGCN, CSR": pyg(graph, start, config, batches),
        "torch COO autograd": coo(graph, start, config, batches),
    }
    print(
        f"Gowalla, {len(split.train)} interactions, LightGCN, d={config.dim}, L={config.layers}, "
        f"batch {config.batch_size}, 2 threads, torch {torch.__version__}"
    )
    check_same_work(contenders)
    others = Others()
    seconds = measure(contenders, arguments.rounds, arguments.steps)
    ratios = {
        name: [theirs / ours for theirs, ours in zip(figures, seconds["ours"], strict=True)]
        for name, figures in seconds.items()
    }
    print(f"\nothers took {others.share():.0%} of the processors")
    print(f"{'a step':<22}{'median ms':>10}{'/ ours':>8}{'best ms':>10}{'/ ours':>8}")
    for name, (median, best) in seconds.items():
        print(
            f"{name:<22}{1e3 * median:10.1f}{ratios[name][0]:8.1f}"
            f"{1e3 * best:10.1f}{ratios[name][1]:8.1f}"
        )
    print(
        "targets: "
        + "; ".join(
            f"{target:.0f}x of {name} {'reached' if min(ratios[name]) >= target else 'NOT reached'}"
            for name, target in TARGETS.items()
        )
    )


if __name__ == "__main__":
    main()
