"""The skeleton of a report: one HTML page that needs no network, and no script to be read.

Whatever is put into an element is escaped unless it is `Html`, which only `element` makes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal

from lpgcn import __version__
from lpgcn.errors import LpgcnError
from lpgcn.files import check_output, write_atomically

GENERATOR: Final = b'<meta name="generator" content="lpgcn'
_VOID: Final = {"meta", "line", "rect", "circle", "path"}
Tone = Literal["plain", "good", "bad"]


class ReportError(LpgcnError):
    """A report that cannot be written."""


class Html(str):
    """Markup. Everything else is text."""

    __slots__ = ()


@dataclass(frozen=True)
class Section:
    """A part of a report, with a title of its own in the list of contents."""

    title: str
    body: Html


@dataclass(frozen=True)
class Fact:
    """A headline figure."""

    label: str
    value: str
    note: str = ""
    tone: Tone = "plain"


def element(name: str, /, *content: str, **attributes: object) -> Html:
    """<name …>content</name>; `class_` is class, `data_label` data-label, None and "" are left out.

    >>> element("td", "a < b", class_="figure")
    '<td class="figure">a &lt; b</td>'
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value != ""
    )
    if name in _VOID and not content:
        return Html(f"<{name}{written}/>")
    return Html(f"<{name}{written}>{joined(*content)}</{name}>")


def joined(*content: str) -> Html:
    return Html("".join(one if isinstance(one, Html) else escape(one) for one in content))


def table(
    caption: str, headers: Sequence[str], rows: Sequence[Sequence[str]], *, sortable: bool = False
) -> Html:
    """Names to the left, figures to the right; wide ones scroll within themselves."""
    figures = [
        bool(rows) and all(row[column][:1] in "-.0123456789–" for row in rows)
        for column in range(len(headers))
    ]
    kinds = ["figure" if is_figure else "" for is_figure in figures]
    head = [
        element("th", header, scope="col", class_=kind)
        for header, kind in zip(headers, kinds, strict=True)
    ]
    body = [
        element(
            "tr",
            element("th", row[0], scope="row", class_=kinds[0]),
            *(
                element("td", cell, class_=kind)
                for cell, kind in zip(row[1:], kinds[1:], strict=True)
            ),
        )
        for row in rows
    ]
    made = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *head)),
        element("tbody", *body),
        class_="sortable" if sortable else "",
    )
    return element("div", made, class_="wide", role="region", aria_label=caption, tabindex="0")


def folded(summary: str, *content: str) -> Html:
    return element("details", element("summary", summary), *content)


def paragraph(*content: str) -> Html:
    return element("p", *content)


def side_by_side(*figures: Html) -> Html:
    return element("div", *figures, class_="figures")


def banner(tone: Tone, headline: str, *content: str) -> Html:
    """The answer to a question, large."""
    return element("div", element("strong", headline), paragraph(*content), class_=f"banner {tone}")


def losslessness(difference: float, said: str) -> Html:
    """The verdict on the largest difference from a centralised run."""
    if difference == 0:
        return banner("good", "Lossless, bit for bit: difference 0", said)
    return banner("bad", f"NOT lossless: difference {difference:g}", said)


def cards(facts: Sequence[Fact]) -> Html:
    return element(
        "dl",
        *(
            element(
                "div",
                element("dt", fact.label),
                element("dd", fact.value, class_="value"),
                element("dd", fact.note, class_="note") if fact.note else Html(),
                class_=f"card {fact.tone}",
            )
            for fact in facts
        ),
        class_="cards",
    )


def page(title: str, lead: str, facts: Sequence[Fact], sections: Sequence[Section]) -> bytes:
    """The whole file. Its own policy forbids it to load anything."""
    style, script = (
        Html((files("lpgcn.report") / name).read_text(encoding="utf-8"))
        for name in ("page.css", "page.js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    anchors = [f"part-{number}" for number in range(1, len(sections) + 1)]
    contents = [
        element("li", element("a", section.title, href=f"#{anchor}"))
        for section, anchor in zip(sections, anchors, strict=True)
    ]
    parts = [
        element(
            "section",
            element("h2", section.title, id=f"{anchor}-title"),
            section.body,
            id=anchor,
            aria_labelledby=f"{anchor}-title",
        )
        for section, anchor in zip(sections, anchors, strict=True)
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content=f"lpgcn {__version__}"),
        element("title", title),
        element("style", style),
    )
    body = element(
        "body",
        element("a", "To the content", href="#content", class_="skip"),
        element("header", element("h1", title), paragraph(lead), cards(facts)),
        element("nav", element("ol", *contents), aria_label="Contents"),
        element("main", *parts, id="content"),
        element(
            "footer",
            paragraph(
                f"Written by lpgcn {__version__}. Nothing on this page is loaded from anywhere."
            ),
        ),
        element("script", script),
    )
    return b"<!doctype html>\n" + element("html", head, body, lang="en").encode() + b"\n"


def check_place(path: Path, *, overwrite: bool) -> None:
    """Refuse now, before the work, what could not be written after it. A report may be replaced
    by a newer one; nothing else is, unasked."""
    if path.suffix not in (".html", ".htm"):
        raise ReportError(f"{path} is not the name of a report; expected one that ends in .html")
    check_output(path, overwrite=overwrite or _is_report(path))


def _is_report(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return GENERATOR in file.read(2048)


def write(path: Path, content: bytes, *, overwrite: bool) -> None:
    check_place(path, overwrite=overwrite)
    write_atomically(path, content)
