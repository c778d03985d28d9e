"""Whom the owners of a run have seen after several terms: every term has a plan of its own.

    python benchmarks/owners_over_terms.py demo --planner cover greedy partition

One person joins in each term. An owner sees its neighbours' vectors, and which of its items they
really have; what it saw in the terms before, it still knows. The load limit is one of each plan.
"""

from __future__ import annotations

import argparse

import numpy as np

from lpgcn.config import Config
from lpgcn.data import load
from lpgcn.plan import TokenGraph, make_plan
from lpgcn.runtime.planning import plan_options


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("--planner", nargs="+", default=["cover", "greedy"])
    parser.add_argument("--terms", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    train = load(arguments.dataset).train
    for planner in arguments.planner:
        options, before = plan_options(Config(planner=planner)), None
        # Whether an owner has been somebody's in some term.
        met = np.zeros((train.n_users, train.n_users), dtype=np.bool_)
        for term in range(arguments.terms):
            n = train.n_users - arguments.terms + 1 + term
            users, items = train.users[train.users < n], train.items[train.users < n]
            graph = TokenGraph.from_pairs(users, items, n_clients=n, n_tokens=train.n_items)
            owner = make_plan(graph, options, arguments.seed).owner
            now = np.zeros_like(met)
            now[owner[items], users] = True
            np.fill_diagonal(now, val=False)
            met |= now
            moved = "" if before is None else f"{(owner != before).mean():4.0%} of items moved; "
            before = owner
            print(
                f"{planner:9} term {term}, {n} members: {moved}"
                f"an owner sees {now.sum(axis=1).max()} people at most, has seen "
                f"{met.sum(axis=1).max()}; a person has been seen by {met.sum() / n:.1f} owners, "
                f"{now.sum() / n:.1f} of them now"
            )


if __name__ == "__main__":
    main()
