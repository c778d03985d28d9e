"""`lpgcn evaluate`."""

from __future__ import annotations

from pathlib import Path

import click

from lpgcn.cli.terminal import json_option, metrics_table, print_json, show


@click.command(
    epilog="""\b
Example:
  lpgcn evaluate runs/demo --at 5 --at 20""",
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--at",
    "-k",
    multiple=True,
    type=click.IntRange(min=1),
    help="K of the metrics @K; as in the run.",
)
@json_option
def evaluate(folder: Path, at: tuple[int, ...], as_json: bool) -> None:
    """Measure a trained model at any K.

    DIR is the folder of a finished run. Its test set is read again.
    """
    from lpgcn.evaluation.beyond_accuracy import beyond_accuracy
    from lpgcn.runtime.runs.run_folder import RunFolder
    from lpgcn.runtime.runs.saved_model import Recommender

    run = RunFolder(folder).describe()
    model = Recommender.load(folder)
    split = run.source.open()
    cutoffs = sorted(set(at)) or run.config.cutoffs
    of_users = model.user_metrics(split, cutoffs)
    found = of_users.mean()
    lists = beyond_accuracy(of_users.top, split.train.item_degrees, split.n_users, cutoffs)
    if as_json:
        about = {"dataset": split.name, "fingerprint": split.fingerprint, "config": run.config}
        test = {"test": found.values, "lists": lists, "test_users": found.n_users}
        print_json({**about, **test})
        return
    title = f"{split.name} · {run.config.model} · {found.n_users:,} users tested"
    show(
        metrics_table({"test": found.values}, title),
        metrics_table({"lists": lists}, "What the lists are like"),
        "Coverage: share of the catalogue in some list. Gini: 0 if all items are shown alike. "
        "Novelty: mean −log2 of an item's share of users, in bits. Popularity: its mean users.",
    )
