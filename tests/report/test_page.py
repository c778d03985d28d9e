"""Markup that escapes what it is given, and files that are not the user's."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lpgcn.errors import LpgcnError
from lpgcn.files import StorageError
from lpgcn.report.page import (
    Fact,
    Section,
    check_place,
    element,
    joined,
    page,
    table,
    write,
)


class Text(HTMLParser):
    """What a reader finds between the tags."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str | None] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [value for _, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


printable = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1)


@given(printable, printable)
def test_text_stays_text(inside: str, attribute: str) -> None:
    found = Text(element("td", element("b", inside), inside, title=attribute))
    assert (found.tags, found.text, found.attributes) == (["td", "b"], 2 * inside, [attribute])


@given(st.lists(st.lists(printable, min_size=2, max_size=2), min_size=1))
def test_a_table_has_all_its_cells(rows: list[list[str]]) -> None:
    found = Text(table("caption", ["one", "two"], rows))
    assert found.tags.count("tr") == len(rows) + 1
    assert found.text == "captiononetwo" + "".join(map("".join, rows))


def test_a_page_forbids_itself_to_load_anything() -> None:
    content = page("A & B", "lead", [Fact("f", "1")], [Section("S", joined("body"))]).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', content)
    assert policy is not None and policy[1].startswith("default-src &#x27;none&#x27;")
    assert not re.search(r"(src|href)=\"(?!#)", content)
    assert "url(" not in content and "@import" not in content
    assert "<title>A &amp; B</title>" in content


def test_a_report_replaces_a_report_and_nothing_else(tmp_path: Path) -> None:
    made = page("t", "l", [], [])
    own, foreign = tmp_path / "own.html", tmp_path / "foreign.html"
    write(own, made, overwrite=False)
    write(own, page("second", "l", [], []), overwrite=False)
    assert b"<title>second" in own.read_bytes()
    foreign.write_text("<p>mine")
    with pytest.raises(StorageError, match="already there"):
        write(foreign, made, overwrite=False)
    assert foreign.read_text() == "<p>mine"
    write(foreign, made, overwrite=True)
    assert foreign.read_bytes() == made
    (tmp_path / "folder.html").mkdir()
    for place in (tmp_path / "folder.html", tmp_path / "report.pdf"):
        with pytest.raises(LpgcnError, match="not"):
            check_place(place, overwrite=False)
