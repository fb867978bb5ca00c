"""Hooks of the documentation site, called by MkDocs in this order.

They add what lies outside `docs`: the generated reference, and each file of the repository that a page links to. They
put pictures in place of Mermaid blocks, and write beside each page the Markdown it was made of, and `llms.txt`.
"""

from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from tools.site import diagrams, sources
from tools.site.reference import PAGES

ROOT = Path(__file__).parents[2]
#: How much a page counts in the search, by the beginning of its path: what to do comes before how it is defined.
RANKS = {"tutorial/": 2.0, "how-to/": 3.0, "runbooks/": 2.0, "reference/": 0.5, "decisions/": 0.3, "source/": 0.1}
_markdown: dict[str, tuple[Page, str]] = {}  #: by the path of a page: the page and its Markdown


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace a folder in the navigation by its pages, the index first."""
    config.nav = _expanded(config.nav, Path(config.docs_dir))
    _markdown.clear()
    return config


def _expanded(entry: Any, docs: Path) -> Any:
    if isinstance(entry, list):
        return [_expanded(one, docs) for one in entry]
    if isinstance(entry, dict):
        return {title: _expanded(value, docs) for title, value in entry.items()}
    if isinstance(entry, str) and entry.endswith("/"):
        names = {page.name for page in (docs / entry).glob("*.md")}
        names |= {uri.removeprefix(entry) for uri in PAGES if uri.startswith(entry)}
        return [entry + name for name in sorted(names, key=lambda name: (name not in ("README.md", "index.md"), name))]
    return entry


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the reference, and the files of the repository that the pages link to."""
    for uri, page in PAGES.items():
        files.append(File.generated(config, uri, content=page()))
    pages = [ROOT / "docs" / file.src_uri for file in files.documentation_pages() if file.src_uri not in PAGES]
    for path in sources.linked_from(pages):
        files.append(File.generated(config, sources.page_of(path), content=sources.shown(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rank the page in the search, lead its links to files of the repository on the site, and draw its diagrams."""
    page.meta["search"] = {"boost": rank_of(page.file.src_uri)}
    origin = sources.origin_of(page.file.src_uri)
    markdown = sources.relinked(markdown, origin, page.file.src_uri)
    _markdown[page.file.src_uri] = (page, markdown)
    return diagrams.replaced(markdown, page.file.src_uri)


def rank_of(uri: str) -> float:
    """Return by what the search multiplies the score of a page."""
    return next((rank for folder, rank in RANKS.items() if uri.startswith(folder)), 1.0)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:
    """Give names to what the theme leaves without: screen readers say them."""
    output = output.replace(
        '"md-search" data-md-component="search"', '"md-search" data-md-component="search" aria-label="Search"'
    )
    return output.replace("<th></th>", "<td></td>")


def on_post_build(*, config: MkDocsConfig) -> None:
    """Write the Markdown of each page beside it, and the index of all for programs."""
    site = Path(config.site_dir)
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for uri, (page, markdown) in sorted(_markdown.items()):
        for twin in {uri, page.file.dest_uri.replace(".html", ".md")}:  # README.md is the page index.html
            (site / twin).parent.mkdir(parents=True, exist_ok=True)
            (site / twin).write_text(markdown, encoding="utf-8")
        if not uri.startswith("source/"):
            lines.append(f"- [{page.title}]({uri})")
    (site / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
