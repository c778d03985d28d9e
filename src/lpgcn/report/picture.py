"""Pictures in files. Matplotlib (extra `lpgcn[plot]`) is loaded only when one is drawn."""

from __future__ import annotations

from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lpgcn.errors import LpgcnError
from lpgcn.files import check_output, write_atomically

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_KINDS: Final = (".png", ".svg", ".pdf")


class PictureError(LpgcnError):
    """A picture that cannot be drawn."""


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def check_place(path: Path, *, overwrite: bool) -> None:
    """Refuse now, before the work, what could not be drawn after it."""
    if path.suffix not in _KINDS:
        raise PictureError(f"{path} is not the name of a picture; use one of {', '.join(_KINDS)}")
    if not can_draw():
        raise PictureError(
            "a picture needs matplotlib, which is not installed; run `pip install 'lpgcn[plot]'`"
        )
    check_output(path, overwrite=overwrite)


def new_figure(width: float, height: float = 4.0) -> Figure:
    """In inches. No window is ever opened."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plain_figures(axis: Axis) -> None:
    """Under a logarithmic axis 1, 2 and 5 times powers of ten, where matplotlib writes 2 × 10²."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=9))
    axis.set_major_formatter(StrMethodFormatter("{x:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def save(figure: Figure, path: Path) -> None:
    """Whole or not at all."""
    check_place(path, overwrite=True)
    drawn = BytesIO()
    figure.savefig(drawn, format=path.suffix.removeprefix("."), dpi=120)
    write_atomically(path, drawn.getvalue())
