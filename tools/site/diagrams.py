"""Pictures of the Mermaid diagrams in the pages, so that the site needs no script and no network to show them.

`python -m tools.site.diagrams` draws the missing ones with the npm package mermaid in Chromium, and removes those that
no page needs. The name of a picture is the digest of its diagram: a changed diagram without a picture fails the build.
"""

import hashlib
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "assets" / "diagrams"
MERMAID = "mermaid@11.12.0"
_BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)


def replaced(markdown: str, uri: str) -> str:
    """Return the page with pictures in place of its diagrams."""

    def picture(match: re.Match[str]) -> str:
        path = _picture_of(match[1])
        if not path.exists():
            raise FileNotFoundError(f"{uri}: a diagram is new or changed; draw it with `make pictures`")
        headings = _HEADING.findall(markdown, 0, match.start())
        where = os.path.relpath(path, (ROOT / "docs" / uri).parent)
        return f"![Diagram: {headings[-1] if headings else uri}]({where}){{ .diagram }}"

    return _BLOCK.sub(picture, markdown)


def _picture_of(diagram: str) -> Path:
    return PICTURES / f"{hashlib.sha256(diagram.encode()).hexdigest()[:12]}.svg"


def draw() -> None:
    """Draw the missing pictures, and remove those of diagrams that are gone."""
    pages = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "reliq").rglob("*.md"), ROOT / "README.md"]
    wanted = {_picture_of(text): text for page in pages for text in _BLOCK.findall(page.read_text(encoding="utf-8"))}
    PICTURES.mkdir(parents=True, exist_ok=True)
    for path in set(PICTURES.glob("*.svg")) - set(wanted):
        path.unlink()
    missing = {path: text for path, text in wanted.items() if not path.exists()}
    if missing:
        _draw(missing)


def _draw(diagrams: dict[Path, str]) -> None:
    from playwright.sync_api import sync_playwright

    folder = ROOT / ".data" / "mermaid"
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["npm", "install", "--silent", "--no-save", "--prefix", folder, MERMAID], check=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page()
        page.add_script_tag(path=folder / "node_modules" / "mermaid" / "dist" / "mermaid.min.js")
        page.evaluate("mermaid.initialize({startOnLoad: false, theme: 'neutral', flowchart: {htmlLabels: false}})")
        for path, text in diagrams.items():
            drawn = page.evaluate("async ([id, text]) => (await mermaid.render(id, text)).svg", [f"d{path.stem}", text])
            path.write_text(_unclipped(drawn) + "\n", encoding="utf-8")
            print(path.relative_to(ROOT))  # noqa: T201
        browser.close()


def _unclipped(svg: str) -> str:
    """Let labels grow over their boxes: the reader's font may be wider than the one that they were measured with."""
    return svg.replace(">", "><style>foreignObject { overflow: visible; }</style>", 1)


if __name__ == "__main__":
    draw()
