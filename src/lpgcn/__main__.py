"""`python -m lpgcn` is the command `lpgcn`."""

from lpgcn.cli import main

if __name__ == "__main__":
    main(prog_name="lpgcn")
