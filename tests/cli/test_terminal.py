"""Tables on a terminal: what is in them is there whole."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lpgcn.cli.terminal import show, table

WORDS = st.text("abcdefgh", min_size=1, max_size=12)
ROWS = st.lists(
    st.tuples(WORDS, *[st.integers(0, 10**9).map("{:,} KB".format)] * 6), min_size=1, max_size=5
)


@example(
    rows=[
        ("a", "0 KB", "0 KB", "10,000,000 KB", "100,000,000 KB", "0 KB", "10,000,000 KB"),
        ("a", "0 KB", "10,000,000 KB", "0 KB", "0 KB", "0 KB", "0 KB"),
        ("a", "1,000,000 KB", "0 KB", "0 KB", "0 KB", "100,000,000 KB", "0 KB"),
    ],
    title="a",
)
@given(rows=ROWS, title=st.lists(WORDS, min_size=1, max_size=5).map(" ".join))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_no_name_and_no_figure_is_cut(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    rows: list[tuple[str, ...]],
    title: str,
) -> None:
    """On a narrow screen as well, where the table goes beyond the edge."""
    monkeypatch.setenv("COLUMNS", "60")
    show(table(rows, "model", *["bytes a client"] * 6, title=title))
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.rstrip() == title or len(title) > 60
    shown = [line.split() for line in lines]
    assert all(" ".join(row).split() in shown for row in rows)


def test_texts_are_broken_at_the_edge(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    show(table([("demo", "word " * 40, "7")], "name", "what it is", "figure"))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 60
    assert sum(line.count("word") for line in lines) == 40


def test_no_id_steers_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show(table([("1", "\x1b]0;owned\x07", "7")], "rank", "item", "score"))
    found = capsys.readouterr().out
    assert "owned" in found and found.replace("\n", "").isprintable()
