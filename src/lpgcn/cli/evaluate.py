"""`lpgcn evaluate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from lpgcn.cli.terminal import counted, json_option, metrics_table, print_json, show
from lpgcn.config import EXPONENT_STEP, Mask

if TYPE_CHECKING:
    from lpgcn.data import Split
    from lpgcn.runtime.runs.saved_model import Recommender


@click.command(
    epilog="""\b
Example:
  lpgcn evaluate runs/demo --at 5 --at 20
  lpgcn evaluate runs/demo --mask train+valid
  lpgcn evaluate runs/demo --length-exponents""",
)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--at",
    "-k",
    multiple=True,
    type=click.IntRange(min=1),
    help="K of the metrics @K; as in the run.",
)
@click.option(
    "--length-exponents",
    "exponents",
    is_flag=True,
    help="Measure the validation set instead, with items ranked by each length-exponent.",
)
@click.option(
    "--mask",
    type=click.Choice(get_args(Mask)),
    help="Items left out of the ranking of the test set; as in the run.",
)
@json_option
def evaluate(
    folder: Path, at: tuple[int, ...], exponents: bool, mask: Mask | None, as_json: bool
) -> None:
    """Measure a trained model at any K.

    DIR is the folder of a finished run. Its test set is read again.
    """
    from lpgcn.evaluation.beyond_accuracy import beyond_accuracy
    from lpgcn.runtime.runs.run_folder import RunFolder
    from lpgcn.runtime.runs.saved_model import Recommender

    run = RunFolder(folder).describe()
    model = Recommender.load(folder)
    if mask is not None:
        model = model.with_mask(mask)
    split = run.source.open()
    cutoffs = sorted(set(at)) or run.config.cutoffs
    about = {"dataset": split.name, "fingerprint": split.fingerprint, "config": model.card.config}
    if exponents:
        valid = _by_exponent(model, split, cutoffs)
        columns = {f"p = {p}": values for p, values in valid.items()}
        title = f"{split.name} · {run.config.model} · validation"
        if as_json:
            print_json({**about, "valid": valid})
        else:
            show(metrics_table(columns, title))
        return
    of_users = model.user_metrics(split, cutoffs)
    found = of_users.mean()
    lists = beyond_accuracy(of_users.top, split.train.item_degrees, split.n_users, cutoffs)
    if as_json:
        test = {"test": found.values, "lists": lists, "test_users": found.n_users}
        print_json({**about, **test})
        return
    title = f"{split.name} · {run.config.model} · {counted(found.n_users, 'user')} tested"
    show(
        metrics_table({"test": found.values}, title),
        metrics_table({"lists": lists}, "What the lists are like"),
        "Coverage: share of the catalogue in some list. Gini: 0 if all items are shown alike. "
        "Novelty: mean −log2 of an item's share of users, in bits. Popularity: its mean users.",
    )


def _by_exponent(
    model: Recommender, split: Split, at: Sequence[int]
) -> dict[str, Mapping[str, float]]:
    """The metrics of the validation set under each p."""
    every = (quarter * EXPONENT_STEP for quarter in range(round(1 / EXPONENT_STEP) + 1))
    return {
        f"{p:g}": model.with_length_exponent(p).evaluate(split, at, "valid").values for p in every
    }
