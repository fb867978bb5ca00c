"""Files of the repository that pages link to: the site has a copy of each under `source/`, to be complete offline."""

import os
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(\]\(<?)([^)\s>#]+)(#[^)\s>]*)?")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//|/", re.IGNORECASE)
_FENCE = re.compile(r"^ *(```+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_LANGUAGES = {
    ".py": "python",
    ".lua": "lua",
    ".toml": "toml",
    ".yml": "yaml",
    ".yaml": "yaml",
    ".json": "json",
    ".sh": "sh",
}


def linked_from(pages: Iterable[Path]) -> list[Path]:
    """Return the files and folders outside `docs` that the pages link to, and those that these link to."""
    found: set[Path] = set()
    waiting = list(pages)
    while waiting:
        page = waiting.pop()
        new = {target for target in _targets(page) if not _is_page_of_site(target)} - found
        found |= new
        waiting.extend(target for target in new if target.suffix == ".md")
    return sorted(found)


def page_of(path: Path) -> str:
    """Return the page of the site that shows this file or folder."""
    name = path.relative_to(ROOT).as_posix()
    return f"source/{name}" if path.suffix == ".md" else f"source/{name}.md"


def origin_of(uri: str) -> Path:
    """Return the file from which this page of the site is made: its relative links start there."""
    return ROOT / uri.removeprefix("source/") if uri.startswith("source/") else ROOT / "docs" / uri


def shown(path: Path) -> str:
    """Return the page of a file as Markdown: of Markdown itself, of code in a block, of a folder the names in it."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    title = f"# {path.relative_to(ROOT).as_posix()}\n\n"
    if path.is_dir():
        names = sorted(one.name for one in path.iterdir() if not one.name.startswith(("__pycache__", ".")))
        return title + "\n".join(f"- `{name}`" for name in names) + "\n"
    return f"{title}````{_LANGUAGES.get(path.suffix, '')}\n{path.read_text(encoding='utf-8').rstrip()}\n````\n"


def relinked(markdown: str, origin: Path, uri: str) -> str:
    """Return the text with its links as they are from the page `uri` of the site."""
    if origin.suffix != ".md" or not origin.exists():
        return markdown

    def link(match: re.Match[str]) -> str:
        target = _target(origin, match[2])
        if target is None:
            return match[0]
        there = target.relative_to(ROOT / "docs").as_posix() if _is_page_of_site(target) else page_of(target)
        return f"{match[1]}{os.path.relpath(there, Path(uri).parent)}{match[3] or ''}"

    return _outside_code(markdown, lambda text: _LINK.sub(link, text))


def _outside_code(markdown: str, change: Callable[[str], str]) -> str:
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [change(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(markdown[end:])])


def _targets(page: Path) -> set[Path]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {target for _, link, _ in _LINK.findall(text) if (target := _target(page, link))}


@cache
def _target(page: Path, link: str) -> Path | None:
    if _ELSEWHERE.match(link):
        return None
    target = Path(os.path.normpath(page.parent / link))
    return target if target.exists() and target.is_relative_to(ROOT) else None


def _is_page_of_site(path: Path) -> bool:
    return path.is_relative_to(ROOT / "docs") and path.is_file()
