"""The documentation site as a reader has it: opened from files, without a server or a network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from tests.integration.ui.conftest import PATIENCE
from tests.support.workers import ROOT

LIGHT = {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}}
DARK = {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}}
PHONE = {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
LOCAL = ("file:", "data:", "blob:")
FITS = "document.documentElement.scrollWidth <= window.innerWidth"
OF_COLOURS = ("color-contrast", "link-in-text-block")  #: the rules of axe that depend on colours, and on no width
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


def violations(page, **options) -> list[str]:
    """What axe finds in the page, which has its script from the first look on."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    options = {"reporter": "no-passes", "preload": False, **options}
    found = page.evaluate("options => axe.run(document, options).then(results => results.violations)", options)
    return [f"{one['id']}: {node['html'][:150]}" for one in found for node in one["nodes"]]


@pytest.mark.parametrize(("name", "look"), SEEN, ids=["light", "dark", "phone"])
def test_a_page_has_no_faults(read, name, look):
    page = read(name, **look)
    assert violations(page) == []
    assert page.evaluate(FITS), "it scrolls sideways"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_page_has_faults(read, site):
    """Each page is loaded once: all rules in light, those of colours in dark, all others on a phone's width."""
    files = [file.relative_to(site) for file in sorted(site.rglob("*.html"))]
    names = [str(file.with_suffix("")) for file in files if file.parts[0] not in ("assets", "source", "404.html")]
    page = read("index", **LIGHT)
    page.add_init_script("localStorage.clear()")  # or the next page begins as dark as the last one ended
    assert {name: found for name in names if (found := _looked_at(page, f"file://{site}/{name}.html"))} == {}


def _looked_at(page, address) -> list[str]:
    page.set_viewport_size(LIGHT["viewport"])
    page.goto(address)
    found = violations(page)
    page.get_by_title("Switch to dark").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    found += violations(page, runOnly=list(OF_COLOURS))
    page.set_viewport_size(PHONE["viewport"])
    found += violations(page, rules={rule: {"enabled": False} for rule in OF_COLOURS})
    return found if page.evaluate(FITS) else [*found, "it scrolls sideways"]


WIDE, NARROW = {"viewport": {"width": 1280, "height": 900}}, {"viewport": {"width": 390, "height": 844}}

#: Whether the reader sees where the focus is: on an element that shows, with an outline or, in the search, its results
FOCUS_IS_SEEN = """() => {
    const focused = document.activeElement;
    const shown = focused.matches(".md-option") ? focused.nextElementSibling : focused;
    const box = shown.getBoundingClientRect();
    const style = getComputedStyle(shown);
    const marked = focused.matches(".md-search__input") ? document.getElementById("__search").checked
                                                        : style.outlineStyle !== "none" && style.outlineWidth !== "0px";
    const inside = box.bottom > 0 && box.right > 0 && box.top < innerHeight && box.left < innerWidth;
    let opacity = 1;
    for (let one = shown; one; one = one.parentElement) opacity *= getComputedStyle(one).opacity;
    return marked && inside && box.width > 0 && box.height > 0 && style.visibility === "visible" && opacity > 0.5;
}"""

#: Marks what a reader without a mouse must reach: each link, field and button that shows
MARK = """() => {
    const shows = one => one.checkVisibility({visibilityProperty: true, opacityProperty: true})
        && one.getBoundingClientRect().width > 0;
    const kinds = "a[href], button, input, summary, .md-typeset__scrollwrap, pre > code";
    const wanted = [...document.querySelectorAll(kinds)].filter(shows);
    wanted.forEach((one, number) => one.dataset.wanted = number);
    return wanted.length;
}"""
FOCUSED = """() => {
    const {tagName, className, textContent, dataset} = document.activeElement;
    return [tagName === "BODY" ? "" : `${tagName} ${className}: ${textContent.trim().slice(0, 40)}`, dataset.wanted];
}"""


@pytest.mark.parametrize("width", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", [name for name, _ in SEEN])
def test_the_keyboard_reaches_everything_that_shows_and_the_focus_is_seen(read, name, width):
    page = read(name, **width)
    wanted = page.evaluate(MARK)
    reached: list[str | None] = []
    while (focused := _tab(page))[0]:  # until it leaves the page
        _see_focus(page, focused[0])
        reached.append(focused[1])
        assert len(reached) < 500, "the focus does not leave the page"
    assert wanted
    missed = [page.locator(f"[data-wanted='{one}']").inner_html() for one in range(wanted) if str(one) not in reached]
    assert missed == []


def _see_focus(page, focused) -> None:
    if page.evaluate(FOCUS_IS_SEEN):
        return
    try:
        page.wait_for_function(FOCUS_IS_SEEN, timeout=3 * PATIENCE)
    except PlaywrightTimeoutError:
        pytest.fail(f"the focus is not seen: {focused}")


def _tab(page) -> list[str]:
    page.keyboard.press("Tab")
    focused: list[str] = page.evaluate(FOCUSED)
    return focused


def test_the_first_key_skips_to_the_content(read):
    page = read("concepts/reclaim", **WIDE)
    assert _tab(page)[0].endswith("Skip to content")
    page.keyboard.press("Enter")
    _tab(page)
    assert page.evaluate("document.activeElement.closest('article') !== null")


def test_the_search_works_by_keyboard_and_escape_leaves_it(read):
    page = read("index", **WIDE)
    page.keyboard.press("/")
    expect(page.get_by_placeholder("Search")).to_be_focused()
    page.keyboard.type("poison")
    first = page.locator(".md-search-result__link").first
    expect(first).to_be_visible()
    page.keyboard.press("Escape")
    expect(first).not_to_be_visible()
    page.keyboard.press("/")
    expect(first).to_be_visible()
    page.keyboard.press("ArrowDown")
    expect(first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"\?h=poison"))


def test_the_colours_are_switched_by_keyboard(read):
    page = read("index", **WIDE)
    page.get_by_label("Switch to dark").first.focus()
    page.keyboard.press("Enter")
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")


def test_the_navigation_of_a_narrow_page_opens_by_keyboard_and_escape_leaves_it(read):
    page = read("concepts/reclaim", **NARROW)
    opener, leases = page.get_by_title("Navigation"), page.get_by_role("link", name="Leases", exact=True)
    expect(leases).not_to_be_visible()
    opener.focus()
    page.keyboard.press("Enter")
    expect(leases).to_be_visible()
    assert _tab(page)[0].endswith("The life of a message")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")  # on the title: up one level
    expect(leases).not_to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("link", name="Home", exact=True)).not_to_be_visible()
    expect(opener).to_be_focused()


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
