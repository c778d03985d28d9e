"""Pictures in files. Matplotlib (extra `lpgcn[plot]`) is loaded only when one is drawn."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lpgcn.errors import LpgcnError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KINDS: Final = (".png", ".svg", ".pdf")


class PictureError(LpgcnError):
    """A picture that cannot be drawn."""


def can_draw() -> bool:
    return find_spec("matplotlib") is not None


def check_place(path: Path) -> None:
    """Refuse now, before the work, what could not be drawn after it."""
    if path.suffix not in _KINDS:
        raise PictureError(f"{path} is not the name of a picture; use one of {', '.join(_KINDS)}")
    if not can_draw():
        raise PictureError(
            "a picture needs matplotlib, which is not installed; run `pip install 'lpgcn[plot]'`"
        )
    path.parent.mkdir(parents=True, exist_ok=True)


def new_figure(width: float, height: float = 4.0) -> Figure:
    """In inches. No window is ever opened."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, path: Path) -> None:
    """Write the picture beside its place, then rename it, so that no half picture is left."""
    check_place(path)
    partial = path.with_name(f".{path.stem}.partial{path.suffix}")
    figure.savefig(partial, dpi=120)
    partial.replace(path)
