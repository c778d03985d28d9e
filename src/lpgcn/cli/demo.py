"""`lpgcn demo`."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

import click

from lpgcn.cli.report import write_report
from lpgcn.cli.terminal import metrics_table, say, show, table, traffic_report

_OUT: Final = Path("runs/federated-demo")


@click.command(
    epilog="""\b
Example:
  lpgcn demo --out runs/federated-demo""",
)
@click.option("--out", type=click.Path(path_type=Path), default=_OUT, show_default=True)
@click.option("--overwrite", is_flag=True, help="Replace runs in another --out than the default.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="What to train, if not the demo's own configuration.",
)
@click.option("--user", default="user-1", show_default=True, help="Whose client recommends.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True)
def demo(out: Path, overwrite: bool, config_file: Path | None, user: str, workers: int) -> int:
    """The whole system on the built-in data set.

    Trains a federation whose clients hold only their own interactions, under encryption; trains the
    same model centralised; shows that both are the same to the last bit; and recommends, on a
    client.
    """
    from lpgcn.cli.progress import ProgressDisplay
    from lpgcn.config import read_config
    from lpgcn.data import load
    from lpgcn.runtime.engines.engine import Engine
    from lpgcn.runtime.engines.federated import Federated
    from lpgcn.runtime.memory import keep_freed_memory
    from lpgcn.runtime.runs.saved_model import Recommender
    from lpgcn.runtime.runs.training import train
    from lpgcn.runtime.verification import table_differences

    keep_freed_memory()
    with as_file(files("lpgcn.cli") / "demo.toml") as own:
        config, split = read_config(config_file or own), load("demo")
    index = split.user_ids.index_of(user)
    best: list[tuple[int, float]] = []

    class Display(ProgressDisplay):
        """Asks the user's client for recommendations while it is still there."""

        def run_ended(self, engine: Engine) -> None:
            if isinstance(engine, Federated):
                best.extend(engine.recommend(index, 10))

    central = out.with_name(f"{out.name}-centralized")
    replace = overwrite or out == _OUT
    with Display(out) as display:
        ours = train("demo", config, out=out, overwrite=replace, workers=workers, observer=display)
    say("now the same model, centralised, to compare")
    with Display(central) as display:
        config = config.changed(mode="centralized")
        theirs = train("demo", config, out=central, overwrite=replace, observer=display)
    found, expected = (Recommender.load(folder).vectors.arrays() for folder in (out, central))
    difference = max(table_differences(found, expected))
    verdict = "lossless, bit for bit" if difference == 0 else "NOT lossless"
    show(metrics_table({"federated": ours.test, "centralized": theirs.test}, "Test"))
    show(f"Largest difference of any final vector: {difference:g}: {verdict}.")
    if ours.traffic is not None:
        show(*traffic_report(ours.traffic))
    rows = [[str(split.item_ids[item]), f"{score:.4f}"] for item, score in best]
    show(table(rows, "item", "score", title=f"For {user}, ranked on its own client"))
    page = out / "report.html"
    write_report(page, (out, central), user=user)
    show(f"The results are in {out} and {central}.", f"The report is {page}: open it in a browser.")
    return int(difference != 0)
