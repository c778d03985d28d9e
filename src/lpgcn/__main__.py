"""`python -m lpgcn` is the command `lpgcn`."""

from __future__ import annotations

import sys


def main() -> None:
    """Ctrl-C ends it quietly also while it is being loaded."""
    try:
        from lpgcn.cli import main as program
    except KeyboardInterrupt:
        sys.exit(130)
    program(prog_name="lpgcn")


if __name__ == "__main__":
    main()
