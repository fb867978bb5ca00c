"""The pages agree with the repository: each link leads somewhere, and each script is described and has an op."""

import functools
import inspect
import itertools
import os
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from reliq.ops.request import Call
from tests.support.pages import blocks
from tests.support.scripts import FEATURES, LUA, scripts
from tools.site.reference import PAGES

ROOT = Path(__file__).parents[2]
_FENCED = re.compile(r"^ *(```+|~~~+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_INLINE_CODE = re.compile(r"(`+)[^`].*?\1")
_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)|^ {0,3}\[[^\]]+\]:\s*(\S+)|\b(?:src|href)=\"([^\"]+)\"", re.MULTILINE)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
_PATH = re.compile(r"`((?:api|bench|deploy|docs|examples|monitor|reliq|tests)/[\w./-]+)`")
_HEADING = re.compile(r"^#{1,6} +(.+?)#* *$", re.MULTILINE)
_FOLLOWED = re.compile(r"\bcd (\S+)|\bpip (?:install '|wheel --no-deps --wheel-dir \S+ )(\.[^\[\n]*)")
_BUILT = re.compile(r"\bsignatures\.(\w+)")


@functools.cache
def documents() -> list[Path]:
    """Every page of the repository, none of an installed package or a tool's cache."""
    return list(_documents())


def _documents() -> Iterator[Path]:
    for folder, names, files in os.walk(ROOT):
        names[:] = [name for name in names if _is_ours(Path(folder, name))]
        yield from (Path(folder, file) for file in files if file.endswith(".md"))


def _is_ours(folder: Path) -> bool:
    hidden = folder.name.startswith(".") and folder.name != ".github"
    return not hidden and folder.name != "node_modules" and not (folder / "pyvenv.cfg").exists()


def broken_links(page: Path, root: Path = ROOT) -> list[str]:
    """The relative links of a page that lead to no file, or to no heading of one."""
    text = _INLINE_CODE.sub("", _FENCED.sub("", page.read_text(encoding="utf-8")))
    links = [next(filter(None, groups)) for groups in _LINK.findall(text)]
    return [link for link in links if not _ELSEWHERE.match(link) and not _leads_somewhere(page, link, root)]


def _leads_somewhere(page: Path, link: str, root: Path) -> bool:
    path, _, heading = link.partition("#")
    target = root / path.lstrip("/") if path.startswith("/") else page.parent / path if path else page
    text = _text(Path(os.path.normpath(target)))
    if text is None:
        return False
    return not heading or target.suffix != ".md" or heading in _anchors(text)


@functools.cache  # many pages lead to the same ones, and some of these take half a second to make
def _text(target: Path) -> str | None:
    """The text of a file or of a page that the site makes; None if there is none."""
    if target.suffix == ".md" and target.is_relative_to(ROOT / "docs"):
        made = PAGES.get(target.relative_to(ROOT / "docs").as_posix())
        if made:
            return made()
    if not target.exists():
        return None
    return target.read_text(encoding="utf-8") if target.suffix == ".md" else ""


@functools.cache
def _anchors(text: str) -> set[str]:
    """The fragments by which a page's headings are linked, as GitHub makes them, and those that it names itself."""
    headings = _HEADING.findall(_FENCED.sub("", text))
    named = set(re.findall(r"\{ #(\S+) \}$", text, re.MULTILINE))
    return named | {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", sorted(documents()), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_an_existing_file(page):
    assert broken_links(page) == []


def test_every_path_that_a_page_names_exists():
    history = ROOT / "CHANGELOG.md"
    pages = {page: page.read_text(encoding="utf-8") for page in documents() if page != history}
    named = {(page.name, path) for page, text in pages.items() for path in _PATH.findall(text)}
    assert {(page, path) for page, path in named if not (ROOT / path).exists()} == set()


def test_no_page_has_the_marks_of_a_merge():
    marks = re.compile(r"^(<<<<<<<|>>>>>>>) ", re.MULTILINE)
    assert [page.name for page in documents() if marks.search(page.read_text(encoding="utf-8"))] == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (tmp_path / "there.md").write_text("# A heading, with `code`\n\n```md\n# no heading\n```\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](there.md) [b](there.md#a-heading-with-code) [c](/there.md) [d](https://example.com/x) `[e](code.md)`\n"
        "```\n[f](fenced.md)\n```\n"
        "[g](gone.md) [![h](gone.png)](there.md#no-heading)\n[i]: gone.txt\n"
    )
    assert broken_links(page, tmp_path) == ["gone.md", "gone.png", "there.md#no-heading", "gone.txt"]


def test_the_table_of_scripts_names_each_script_once():
    text = (LUA / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", text, re.MULTILINE)
    described = [name for row in rows for name in re.findall(r"\w+", row)]
    assert sorted(described) == sorted(script.stem for script in scripts().values())


def test_every_script_has_an_op_and_every_op_its_script():
    packages = [ROOT / "reliq" / "ops", *(path.parent for path in FEATURES.glob("*/signatures.py"))]
    for package in packages:
        sources = [module.read_text(encoding="utf-8") for module in package.glob("*.py")]
        used = {name for source in sources for name in _BUILT.findall(source)}
        signatures = import_module(".".join([*package.relative_to(ROOT).parts, "signatures"]))
        builders = dict(inspect.getmembers(signatures, inspect.isfunction))
        assert used == set(builders)
        run = {name for name, builder in builders.items() if inspect.signature(builder).return_annotation == Call}
        lua = LUA if package.name == "ops" else package / "lua"
        assert run == {script.stem for script in lua.glob("*.lua")}


def test_a_record_of_a_decision_is_listed_and_short():
    records = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert records
    for record in records:
        text = record.read_text(encoding="utf-8")
        assert f"({record.name})" in index
        assert all(f"## {part}" in text for part in ("Context", "Decision", "Consequences"))
        assert len(text.splitlines()) <= 40


_TABLE = re.compile(r"(?:^[ ]*\|.*\n?)+", re.MULTILINE)


def texts() -> Iterator[tuple[str, str]]:
    """Every page without its fenced code, by its path: a test of each would take longer to begin than to run."""
    for page in documents():
        yield str(page.relative_to(ROOT)), _FENCED.sub("", page.read_text(encoding="utf-8"))


def test_each_table_begins_with_its_head():
    """A blank line between two rows ends a table, and the rows after it show as text."""
    tables = [(page, found.group().splitlines()) for page, text in texts() for found in _TABLE.finditer(text)]
    assert [(page, one[0]) for page, one in tables if not re.fullmatch(r" *\|[ :|-]+\|", "".join(one[1:2]))] == []


_UNWRAPPED = re.compile(
    r"!\[[^]]*]\([^)]*\)"  # an image
    r"|(?<=])\([^)]*\)"  # where a link leads to
    r"|<!--.*?-->"
    r"|^(?: *\||#)[^\n]*",  # a row of a table, a heading
    re.MULTILINE | re.DOTALL,
)


def test_lines_wrap_at_100_columns():
    """Tables, links and code aside."""
    lines = [(page, line) for page, text in texts() for line in _UNWRAPPED.sub("", text).splitlines()]
    assert [(page, line) for page, line in lines if len(line) > 100] == []


def test_no_heading_skips_a_level():
    levels = [(page, [len(one) for one in re.findall(r"^(#+) ", text, re.MULTILINE)]) for page, text in texts()]
    pairs = [(page, pair) for page, found in levels for pair in itertools.pairwise(found)]
    assert [(page, pair) for page, pair in pairs if pair[1] > pair[0] + 1] == []


def test_the_page_of_examples_has_each_of_them():
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    scripts = {file.name for file in (ROOT / "examples").glob("*.py")} - {"running.py"}  # what several of them need
    assert {name for name in scripts if f"`python examples/{name}" not in page} == set()


def test_the_tutorial_installs_from_the_checkout_in_the_folder_where_its_reader_is():
    folder, installed = Path("/home"), []
    tutorial = ROOT / "docs" / "tutorial"
    for page in (tutorial / "index.md", *sorted(tutorial.glob("[1-9]-*.md"))):
        for block in blocks(page):
            for change, source in _FOLLOWED.findall(block.code):
                if change:
                    folder = Path(os.path.normpath(folder / change))
                else:
                    installed.append((page.stem, os.path.normpath(folder / source)))
    assert installed == [("index", "/home/reliq"), ("5-spark", "/home/reliq")]


def test_the_readme_has_two_screens_and_leads_to_the_first_success_in_300_words():
    text = re.sub(r"<!--.*?-->", "", (ROOT / "README.md").read_text(encoding="utf-8"))
    before, _, after = text.partition("reliq worker shop:app")
    assert len(before.split()) <= 300
    assert len(after.split()) <= 300
