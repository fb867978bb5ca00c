"""Every code block of the documentation runs, or says why not."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from tests.support.pages import LANGUAGES, Block, Reader, _is_like, blocks, commands_on_path
from tests.support.workers import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Shown, not run: output, data, and what other programs read.
OTHERS = {"text", "json", "yaml", "toml", "mermaid", "sql", "lua", "md", "javascript", "go", "ruby", "ini", "nginx"}
TUTORIAL = [page for page in PAGES if page.parent.name == "tutorial"]
NEED_A_JVM = {ROOT / "docs" / "how-to" / "spark.md"}


def to_run(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language in LANGUAGES or block.file]


def stories() -> Iterator[Any]:
    """Each page is a story of its own, but for the tutorial, whose pages grow one application."""
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        if page not in TUTORIAL and any("not run" not in block.marks for block in to_run(page)):
            marks = [pytest.mark.spark, pytest.mark.slow] if page in NEED_A_JVM else []
            yield pytest.param([page], page in NEED_A_JVM, id=name, marks=marks)
    yield pytest.param(TUTORIAL, False, id="the tutorial", marks=pytest.mark.slow)
    yield pytest.param(TUTORIAL, True, id="the tutorial with Spark", marks=[pytest.mark.spark, pytest.mark.slow])


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("pages", "jvm"), list(stories()))
def test_the_code_of_the_pages_runs(pages, jvm, url, tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.setenv("RELIQ_URL", url)
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    paths = os.pathsep.join(str(ROOT / folder) for folder in ("", "monitor", "api"))
    monkeypatch.setenv("PYTHONPATH", paths)  # of the Python processes that Spark starts
    monkeypatch.setenv("PATH", commands_on_path(tmp_path / "bin"))
    environment = {"RELIQ_URL": url, "PYTHONPATH": paths, "PATH": os.environ["PATH"]}
    with patch.dict(os.environ), Reader(folder, environment, jvm) as reader:
        for page in pages:
            for block in to_run(page):
                reader.follow(block)


def test_every_block_has_a_language_and_every_one_that_is_not_run_a_reason():
    for page in PAGES:
        for block in blocks(page):
            assert block.language in {*LANGUAGES, *OTHERS}, (
                f"{block}: {block.language!r} is no language of this documentation"
            )
            assert len(block.marks.get("not run", "a reason")) > 5, f"{block}: say why it is not run"


@pytest.mark.parametrize(
    "text",
    [
        "```python\nassert 1 == 2\n```",
        "```sh\nfalse\n```",
        "<!-- before: x = 1 -->\n```python\nassert x == 2\n```",
        "<!-- after: assert x == 2 -->\n```python\nx = 1\n```",
    ],
)
def test_a_page_that_is_wrong_is_found(text, tmp_path):
    page = tmp_path / "wrong.md"
    page.write_text(text)
    (block,) = blocks(page)
    with Reader(tmp_path, {}) as reader, pytest.raises(AssertionError, match=r"wrong\.md"):
        reader.follow(block)


@pytest.mark.parametrize(("printed", "alike"), [("a 1 c\n", True), ("a c", False), ("a 1 c\nd", False)])
def test_what_a_console_prints_is_compared(printed, alike):
    assert _is_like(printed, "a ... c") == alike
