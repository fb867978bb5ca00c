"""Pictures of every page, light, dark and at phone width: `make screenshots`.

Takes five and a half minutes, because the plots show five real minutes: SECONDS=30 is enough to look at the layout.
"""

import logging
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page

from reliq.cli.progress import Progress
from reliq.embedded import EmbeddedRedis
from tests.integration.api.serving import serving
from tests.integration.ui.chromium import browsing
from tests.integration.ui.scene import Shop

FOLDER = Path(os.environ.get("FOLDER", "docs/screenshots"))
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light", "is_mobile": True, "has_touch": True},
}


def main() -> int:
    logging.getLogger("reliq").setLevel(logging.CRITICAL)  # the messages that fail are part of the scene
    seconds = int(os.environ.get("SECONDS", "310"))
    FOLDER.mkdir(parents=True, exist_ok=True)
    with EmbeddedRedis() as server, Shop(server.url).open() as app, serving(server.url) as client:
        base = str(client.base_url).rstrip("/")
        wait(seconds)
        letter = app.queue("legacy.imports").dead.list(limit=1, reason="rejected")[0].id
        job = ""
        with browsing() as browser:
            for look, options in LOOKS.items():
                job = job or dry_run(browser, base)
                for name, path in pages(letter, job).items():
                    picture(browser, base + path, FOLDER / f"{name}-{look}.png", options)
    squeeze()
    return 0


def pages(letter: str, job: str) -> dict[str, str]:
    dead = "/queues/payments/dead"
    return {
        "overview": "/",
        "queue": "/queues/payments",
        "dead": "/queues/legacy.imports/dead",
        "letter": f"/queues/legacy.imports/dead/letter?id={letter}",
        "redrive": f"{dead}/redrive?error=PaymentDeclined",
        "progress": job,
        "purge": "/queues/payments/purge",
        "policy": "/queues/invoices@eu/policy",
        "search": "/queues/payments/search?text=order",
        "workers": "/workers",
        "topics": "/topics?key=order.created.eu",
        "schedules": "/schedules",
        "schedule": "/schedules/daily-report",
    }


def wait(seconds: int) -> None:
    progress = Progress("traffic", seconds)
    for second in range(seconds):
        time.sleep(1)
        progress.update(second + 1, final=second + 1 == seconds)


def dry_run(browser: Browser, base: str) -> str:
    page = browser.new_page()
    page.goto(f"{base}/queues/payments/dead/redrive")
    page.get_by_role("button", name="Dry run").click()
    page.get_by_text("done").wait_for()
    path = page.url.removeprefix(base)
    page.close()
    return path


def picture(browser: Browser, address: str, file: Path, options: dict[str, Any]) -> None:
    context = browser.new_context(device_scale_factor=1, **options)
    page: Page = context.new_page()
    answer = page.goto(address)
    assert answer is not None and answer.ok, f"{address} is no page"
    page.screenshot(path=file, full_page="dead" not in file.name)  # a list: its first screenful says it all
    context.close()


def squeeze() -> None:
    """Fewer colours, a third of the size; without pngquant the pictures stay as they are."""
    if shutil.which("pngquant"):
        files = [str(file) for file in FOLDER.glob("*.png")]
        subprocess.run(["pngquant", "--force", "--ext", ".png", "--speed", "1", "128", *files], check=True)
    print(f"{sum(file.stat().st_size for file in FOLDER.glob('*.png')):,} bytes in {FOLDER}")


if __name__ == "__main__":
    sys.exit(main())
