"""Reports in a real browser: nothing is loaded, nothing overflows, everything has a name.

Needs Chromium (Debian's package `chromium`), which nothing here installs.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KINDS = ("two", "one", "verification", "sweep", "audit")
SCREENS = [(400, "light"), (400, "dark"), (1600, "dark"), (1600, "light")]
SIZES = """[...document.querySelectorAll('figure > svg')].map(picture => {
    const size = one => [one.getBoundingClientRect().width, one.getBoundingClientRect().height];
    return [size(picture), [...picture.querySelectorAll('.line, .bar')].map(size)];
})"""
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("no browser: install Debian's package `chromium` to look at reports in one")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield started
        started.close()


class Visit:
    """A page as somebody sees it without a network, and what went wrong meanwhile."""

    def __init__(self, browser: Any, path: Path, width: int, scheme: str, **options: Any) -> None:
        self.troubles: list[str] = []
        self.context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, offline=True, **options
        )
        self.page = self.context.new_page()
        self.page.on("console", lambda message: self.troubles.append(message.text))
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("dialog", lambda dialog: self.troubles.append(dialog.message))
        self.requests: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())

    def see(self, width: int, scheme: str) -> None:
        """The same page on another screen."""
        self.page.set_viewport_size({"width": width, "height": 900})
        self.page.emulate_media(color_scheme=scheme)

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_opens_anywhere(browser: Any, pages: dict[str, Path], kind: str) -> None:
    with Visit(browser, pages[kind], *SCREENS[0]) as visit:
        for width, scheme in SCREENS:
            visit.see(width, scheme)
            widest = visit.page.evaluate("document.documentElement.scrollWidth")
            assert widest <= width, "the page scrolls sideways"
            background = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (background == "rgb(255, 255, 255)") == (scheme == "light")
            pictures = visit.page.evaluate(SIZES)
            assert pictures
            for drawn, marks in pictures:
                assert 250 <= drawn[0] <= width and drawn[1] > 60
                assert any(mark[0] > 5 and mark[1] > 1 for mark in marks)
        assert visit.requests == [pages[kind].as_uri()]
        assert visit.troubles == []


@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_nothing(browser: Any, pages: dict[str, Path], kind: str) -> None:
    """Contrast, texts in place of pictures, names, order of headings, reach of the keyboard. In the
    other scheme nothing but the colours is another."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    everything = {"resultTypes": ["violations"]}
    colours = {**everything, "runOnly": {"type": "rule", "values": ["color-contrast"]}}
    with Visit(browser, pages[kind], 400, "dark", bypass_csp=True) as visit:
        visit.page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        for width, scheme, options in ((400, "dark", everything), (1600, "light", colours)):
            visit.see(width, scheme)
            found = axe.run(visit.page, options=options)
            assert found.violations_count == 0, found.generate_report()
            checked = {rule["id"] for rule in found.response["passes"]}
            every = {"color-contrast", "svg-img-alt", "document-title", "region"}
            assert checked >= every if options is everything else checked == {"color-contrast"}


def test_letters_in_pictures_keep_their_size(browser: Any, pages: dict[str, Path]) -> None:
    sizes = """[...document.querySelectorAll('figure > svg text')].map(text => {
        const turned = text.getScreenCTM();
        return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(turned.a, turned.b);
    })"""
    for width in (400, 1600):
        with Visit(browser, pages["two"], width, "light") as visit:
            found = visit.page.evaluate(sizes)
            assert found and 9 <= min(found) <= max(found) <= 20


def test_a_table_is_sorted_by_the_heading_that_is_pressed(
    browser: Any, pages: dict[str, Path]
) -> None:
    with Visit(browser, pages["sweep"], 1600, "light") as visit:
        table = visit.page.locator("table.sortable")
        heading = table.locator("th button", has_text="C in KB")
        rows = "[...document.querySelectorAll('table.sortable tbody tr')]"
        column = f"{rows}.map(row => +row.cells[3].textContent)"
        heading.focus()
        visit.page.keyboard.press("Enter")
        rising = visit.page.evaluate(column)
        visit.page.keyboard.press("Enter")
        assert rising == sorted(rising) and len(set(rising)) > 1
        assert visit.page.evaluate(column) == rising[::-1]


def test_everything_is_there_without_scripts(browser: Any, pages: dict[str, Path]) -> None:
    texts = []
    for scripts in (True, False):
        with Visit(browser, pages["two"], 1600, "light", java_script_enabled=scripts) as visit:
            texts.append(visit.page.locator("main").text_content())
    assert texts[0] == texts[1]


def test_a_report_can_be_printed(browser: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    with Visit(browser, pages["two"], 1600, "light") as visit:
        visit.page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
