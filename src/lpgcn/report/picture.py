"""Pictures in files. Matplotlib (extra `lpgcn[plot]`) is loaded only when one is drawn."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from lpgcn.errors import LpgcnError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class PictureError(LpgcnError):
    """A picture that cannot be drawn."""


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def new_figure(width: float, height: float = 4.0) -> Figure:
    """In inches. No window is ever opened."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as missing:
        raise PictureError(
            "a picture needs matplotlib, which is not installed; run `pip install 'lpgcn[plot]'`"
        ) from missing
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write the picture beside its place, then rename it, so that no half picture is left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    try:
        figure.savefig(partial, dpi=120)
    except ValueError as unknown:
        raise PictureError(
            f"{path} cannot be drawn: {unknown}; use .png, .svg or .pdf"
        ) from unknown
    partial.replace(path)
