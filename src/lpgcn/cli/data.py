"""`lpgcn data`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lpgcn.cli.options import SectionedCommand, field_options, given, overwrite_option
from lpgcn.cli.terminal import counted, json_option, print_json, show, table
from lpgcn.runtime.runs.source import FEATURES, Source


@click.group(
    epilog="""\b
Example:
  lpgcn data list"""
)
def data() -> None:
    """Look at the data sets."""


@data.command(
    "list",
    epilog="""\b
Example:
  LPGCN_DATA=~/datasets lpgcn data list""",
)
@json_option
def list_(as_json: bool) -> None:
    """List the data sets that have a name."""
    from lpgcn.data import describe, names
    from lpgcn.data.named import data_folder

    datasets = [describe(name) for name in names()]
    if as_json:
        listed = [
            {"name": one.name, "summary": one.summary, "source": one.source, "files": one.files}
            | {"missing": one.missing()}
            for one in datasets
        ]
        print_json({"folder": str(data_folder()), "datasets": listed})
        return
    rows = [(one.name, "missing" if one.missing() else "ready", one.summary) for one in datasets]
    show(
        table(
            rows, "name", "files", "what it is", title=f"Data sets in the folder {data_folder()}"
        ),
        "Set LPGCN_DATA to use another folder. `lpgcn data show NAME` reads one.",
    )


@data.command(
    "show",
    cls=SectionedCommand,
    epilog="""\b
Examples:
  lpgcn data show demo
  lpgcn data show mine --train ratings.csv --minimum-rating 4""",
)
@click.argument("dataset", metavar="NAME")
@json_option
@field_options(Source, "Data, and files of your own", without=FEATURES)
def show_(dataset: str, as_json: bool, **fields: Any) -> None:
    """Read a data set and count what is in it.

    NAME is one of `lpgcn data list`, or, with --train, what your own data is called.
    """
    source = Source(dataset=dataset, **given(Source, fields))
    split = source.open()
    parts = {
        name: {
            "interactions": len(part),
            "users": int((part.user_degrees > 0).sum()),
            "items": int((part.item_degrees > 0).sum()),
            "most_items_of_a_user": int(part.user_degrees.max()),
            "most_users_of_an_item": int(part.item_degrees.max()),
        }
        for name, part in split.parts.items()
    }
    if as_json:
        about = {"name": split.name, "users": split.n_users, "items": split.n_items}
        print_json({**about, "fingerprint": split.fingerprint, "parts": parts})
        return
    rows = [(name, *(f"{count:,}" for count in counts.values())) for name, counts in parts.items()]
    interactions = sum(counts["interactions"] for counts in parts.values())
    show(
        f"{split.name}: {_what(source)}",
        table(
            rows,
            "part",
            "interactions",
            "users",
            "items",
            "most items",
            "most users",
        ),
        "The last columns: the most items of a user, and the most users of an item.",
        f"{counted(split.n_users, 'user')} and {counted(split.n_items, 'item')}; "
        f"{interactions / (split.n_users * split.n_items):.2%} of all pairs are interactions.",
        f"Fingerprint {split.fingerprint}",
    )


@data.command(
    "cooccurrence",
    cls=SectionedCommand,
    epilog="""\b
Examples:
  lpgcn data cooccurrence ml-100k --sample 0.5 --out ml-100k-together.npz
  lpgcn train ml-100k --virtual-items 1.0x --virtual-draw coherent \\
    --cooccurrence ml-100k-together.npz""",
)
@click.argument("dataset", metavar="NAME")
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path),
    help="The file to write.",
)
@click.option(
    "--sample",
    type=click.FloatRange(min=0, max=1, min_open=True),
    default=1.0,
    show_default=True,
    help="The share of users, at random, whose training items are counted.",
)
@overwrite_option
@json_option
@field_options(Source, "Data, and files of your own", without=FEATURES)
def cooccurrence(
    dataset: str, out: Path, sample: float, overwrite: bool, as_json: bool, **fields: Any
) -> None:
    """Count which items go together, for --virtual-draw coherent.

    NAME is a public data set over the federation's catalogue: virtual items are drawn from what is
    counted here, and everybody may see it. Whoever is counted is no longer private; with --sample,
    count some people of a data set who agreed to it.
    """
    from lpgcn.files import check_output
    from lpgcn.model.cooccurrence import Cooccurrence
    from lpgcn.random import Purpose, permutation

    check_output(out, overwrite=overwrite)
    source = Source(dataset=dataset, **given(Source, fields))
    split = source.open()
    count = max(1, round(sample * split.n_users))
    chosen = permutation(source.split_seed, Purpose.COOCCURRENCE_SAMPLE, split.n_users)[:count]
    found = Cooccurrence.counted(split.train.by_user.only(chosen), split.n_items)
    found.write(out)
    about = {"users": count, "items": split.n_items, "pairs": len(found.counts)}
    if as_json:
        print_json({**about, "out": str(out), "fingerprint": split.fingerprint})
    else:
        show(
            f"{counted(about['pairs'], 'pair')} of {counted(split.n_items, 'item')}, counted among "
            f"{counted(count, 'user')}: {out}."
        )


def _what(source: Source) -> str:
    from lpgcn.data import describe

    if source.train:
        return source.train
    named = describe(source.dataset)
    return f"{named.summary}; {named.source}"
