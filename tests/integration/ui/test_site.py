"""The documentation site as a reader has it: opened from files, without a server or a network."""

import subprocess
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, expect

from tests.support.workers import ROOT

LIGHT = {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}}
DARK = {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}}
PHONE = {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
LOCAL = ("file:", "data:", "blob:")
SEEN = [("index", LIGHT), ("concepts/reclaim", DARK), ("operations/metrics", PHONE)]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder],
        cwd=ROOT, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT / 'api'}:{ROOT / 'monitor'}",
                       "NO_MKDOCS_2_WARNING": "1"}, check=True,
    )  # fmt: skip
    return folder


@pytest.fixture
def read(browser, site):
    """Opens a page of the site; nothing may go wrong in it, and it may ask no other place for anything."""
    faults: list[str] = []
    contexts: list[BrowserContext] = []

    def opened(page_name, **options):
        while contexts:
            contexts.pop().close()
        contexts.append(context := browser.new_context(**options))
        page = context.new_page()
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: faults.extend(one for one in [request.url] if not one.startswith(LOCAL)))
        page.goto(f"file://{site}/{page_name}.html")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def violations(page) -> list[str]:
    found = Axe().run(page, options={"resultTypes": ["violations"], "preload": False}).response["violations"]
    return [f"{one['id']}: {node['html'][:150]}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize(("name", "look"), SEEN, ids=["light", "dark", "phone"])
def test_a_page_has_no_faults(read, name, look):
    page = read(name, **look)
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "it scrolls sideways"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("look", [LIGHT, DARK, PHONE], ids=["light", "dark", "phone"])
def test_no_page_has_faults(read, site, look):
    files = [file.relative_to(site) for file in sorted(site.rglob("*.html"))]
    names = [str(file.with_suffix("")) for file in files if file.parts[0] not in ("assets", "source", "404.html")]
    assert {name: found for name in names if (found := violations(read(name, **look)))} == {}


def test_the_search_finds_a_word_without_a_server(read):
    page = read("index", **LIGHT)
    page.get_by_placeholder("Search").fill("poison")
    found = page.locator(".md-search-result__link").first
    expect(found).to_be_visible()
    found.click()
    expect(page.locator("article h1").first).to_be_visible()


@pytest.mark.browser  # it needs none, but those that do have made the site
def test_each_page_has_a_markdown_twin_and_the_index_lists_it(site):
    pages = {file.relative_to(site).with_suffix(".md") for file in site.rglob("*.html") if file.name != "404.html"}
    assert {page for page in pages if not (site / page).exists()} == set()
    listed = (site / "llms.txt").read_text()
    missing = {str(page) for page in pages if page.parts[0] != "source" and f"({page})" not in listed}
    assert missing == {"decisions/index.md", "runbooks/index.md"}  # listed as README.md, of which they are copies
