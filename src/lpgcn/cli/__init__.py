"""The command `lpgcn`. A command is a module here and a line in `COMMANDS`.

A command prints its result to standard output, with `--json` as exactly one JSON object, and
everything else to standard error. It imports what it needs when it runs, so that help is quick.
"""

from __future__ import annotations

import click

from lpgcn import __version__
from lpgcn.cli.audit import audit
from lpgcn.cli.compare import compare
from lpgcn.cli.completion import completion
from lpgcn.cli.data import data
from lpgcn.cli.demo import demo
from lpgcn.cli.evaluate import evaluate
from lpgcn.cli.federation import federation
from lpgcn.cli.host import host
from lpgcn.cli.join import join
from lpgcn.cli.models import models
from lpgcn.cli.plan import plan
from lpgcn.cli.program import Program
from lpgcn.cli.recommend import recommend
from lpgcn.cli.report import report
from lpgcn.cli.serve import serve
from lpgcn.cli.train import train
from lpgcn.cli.verify import verify

__all__ = ["main"]

COMMANDS = (
    demo, train, compare, models, evaluate, recommend, report, verify, plan, audit, data, serve,
    join, host, federation, completion,
)  # fmt: skip

main = Program(
    "lpgcn",
    help="Lossless, private, federated graph-convolution recommendation.",
    epilog="""\b
Try it:
  lpgcn train demo --out runs/demo
  lpgcn recommend runs/demo --user user-1""",
    commands=COMMANDS,
)
click.version_option(__version__, prog_name="lpgcn", message="%(prog)s %(version)s")(main)
