"""Documentation that is true: examples run, links lead somewhere, files are what they say."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import lpgcn
from lpgcn.cli import main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SCRIPTS = Path(sys.executable).parent
EXAMPLES = ("tutorial.md", "how-to/own-data.md", "how-to/report.md")


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """(language, content) of everything between fences."""
    yield from re.findall(r"^```(\w+)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[list[str]]:
    """Every `$ lpgcn …` of a page, as words; what follows a # is a remark."""
    lines = [
        line.removeprefix("$ ")
        for language, content in blocks(page)
        if language == "console"
        for line in content.splitlines()
        if line.startswith("$ lpgcn ")
    ]
    return [shlex.split(line, comments=True) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run_from_the_first_to_the_last(name: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"}
    ran = 0
    for language, content in blocks(DOCS / name):
        if language == "python":
            steps = [[sys.executable, "-c", content]]
        elif language == "console":
            steps = [shlex.split(line[2:]) for line in content.splitlines() if line[:2] == "$ "]
        else:
            continue
        for step in steps:
            done = subprocess.run(
                step, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{step}\n{done.stdout}\n{done.stderr}"
            ran += 1
    assert ran >= 2


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))], ids=str)
def test_commands_of_every_page_are_understood(page: Path) -> None:
    """Each is read as far as its options: a flag that is gone is found without a run."""
    for program, *words in commands(page):
        assert program == "lpgcn"
        context, command = None, main
        while hasattr(command, "commands"):
            context = command.make_context(words[0], [], parent=context, resilient_parsing=True)
            command = command.commands[words.pop(0)]
        options = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        flags = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
        assert flags <= options, f"{page.name}: lpgcn {command.name} has no {flags - options}"


@pytest.mark.parametrize("page", [*ROOT.glob("*.md"), *sorted(DOCS.rglob("*.md"))], ids=str)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if not re.match(r"[a-z]+:|#", target):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name}: {target}"


def test_every_public_name_is_in_the_reference() -> None:
    listed = re.findall(r"^::: lpgcn\.(\w+)$", (DOCS / "reference/python.md").read_text(), re.M)
    assert sorted(listed) == sorted(lpgcn.__all__)


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """Links and anchors are checked by MkDocs."""
    done = subprocess.run(
        [SCRIPTS / "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site" / "reference" / "commands.html").read_text()
    assert all(f"lpgcn {name}" in page for name in main.commands)
    pages = [path.read_text() for path in (tmp_path / "site").rglob("*.html")]
    assert not [one for one in pages if re.search(r'(src|href)="https?://fonts', one)]


def test_the_citation_names_this_version() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["version"] == lpgcn.__version__
    assert cited["license"] == "MIT" and cited["authors"]
