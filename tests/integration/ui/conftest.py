from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Dialog, Page, expect

from tests.integration.api.serving import serving
from tests.integration.ui.chromium import browsing

PATIENCE = 30_000  #: ms: on a machine that does other things besides, a page may take its time
expect.set_options(timeout=PATIENCE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith("tests/integration/ui/") and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)


@pytest.fixture
def address(url: str) -> Iterator[str]:
    """The dashboard of an empty Redis."""
    with serving(url) as client:
        yield str(client.base_url).rstrip("/")


@pytest.fixture
def client(address: str) -> Iterator[httpx.Client]:
    """Speaks HTTP as a browser on the dashboard's own pages does."""
    with httpx.Client(base_url=address, headers={"Sec-Fetch-Site": "same-origin"}, timeout=30, verify=False) as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Not for the whole session: while Playwright runs, no other test of this process may run an event loop."""
    with browsing() as browser:
        yield browser


@pytest.fixture
def look(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Opens a page of the dashboard in Chromium; afterwards, nothing may have gone wrong in any of them.

    That is: no message on the console (a breach of the security policy would be one), no error in a script, no
    dialog, and no request to any other host.
    """
    contexts: list[BrowserContext] = []
    faults: list[str] = []

    def opened(path: str = "/", **options: Any) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda message: faults.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: faults.append(f"script: {error}"))
        page.on("dialog", lambda dialog: _dismiss(dialog, faults))
        page.on("request", lambda request: _check_host(request.url, address, faults))
        page.goto(address + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


def _dismiss(dialog: Dialog, faults: list[str]) -> None:
    faults.append(f"dialog: {dialog.message}")
    dialog.dismiss()


def _check_host(requested: str, address: str, faults: list[str]) -> None:
    if not requested.startswith(f"{address}/"):
        faults.append(f"request: {requested}")
