"""One run of Mt-KaHyPar, alone in its process: `python mtkahypar_process.py FOLDER`.

Reads FOLDER/problem.npz and writes FOLDER/parts.npy. Mt-KaHyPar keeps state for the whole process,
holds the interpreter's lock while it works and prints as it likes; in a process of its own none of
that reaches anybody. Its default preset looks at the clock to decide how long to refine a large
problem, so that a busy machine would get another plan. The result of the deterministic one depends
on the problem and the seed alone; it takes about twice as long.
"""

from __future__ import annotations

import signal
import sys
from itertools import pairwise
from pathlib import Path

import mtkahypar
import numpy as np


def main(folder: Path) -> None:
    """Partition vertices into parts of balanced weight, at the least Σ (parts of an edge − 1)."""
    problem = np.load(folder / "problem.npz")
    pins, offsets = problem["pins"].tolist(), problem["offsets"].tolist()
    edges = [pins[first:last] for first, last in pairwise(offsets)]
    library = mtkahypar.initialize(1, False)
    mtkahypar.set_seed(int(problem["seed"]))
    context = library.context_from_preset(mtkahypar.PresetType.DETERMINISTIC)
    context.set_partitioning_parameters(
        int(problem["n_parts"]), float(problem["imbalance"]), mtkahypar.Objective.KM1
    )
    context.logging = False
    weights = problem["weights"].tolist()
    hypergraph = library.create_hypergraph(
        context, len(weights), len(edges), edges, weights, [1] * len(edges)
    )
    np.save(folder / "parts.npy", np.array(hypergraph.partition(context).get_partition()))


if __name__ == "__main__":
    # Ctrl-C ends this process at once, and not only when Mt-KaHyPar returns to the interpreter.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main(Path(sys.argv[1]))
