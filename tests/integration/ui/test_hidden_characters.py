"""Text that is written to be misread: the pages show its hidden characters as escapes, and forms keep them."""

import re
from html import unescape

from tests.integration.ui.dying import bury

TURNED = "\u202egpj.exe"


def value_of(html, name):
    """What a field of the page's form holds."""
    (held,) = re.findall(rf'name="{name}"[^>]*>\n(.*?)</textarea>', html, re.DOTALL)
    return unescape(held)


def test_no_page_is_turned_around_by_a_message(app, client):
    headers = {"file": TURNED, "\u2066name": "x"}
    (one,) = bury(app, "orders", [f"open {TURNED}"], reason=f"refused: {TURNED}", headers=headers)
    ready = app.queue("orders").send({"file": TURNED}, headers=headers, key=TURNED)
    for path in (
        "/queues/orders", "/queues/orders/dead", f"/queues/orders/dead/letter?id={one}",
        f"/queues/orders/message?id={ready}", f"/queues/orders/dead?header=file%3D{TURNED}x",
    ):  # fmt: skip
        answer = client.get(path)
        assert answer.status_code == 200
        shown = re.sub(r'\b(?:value|content)="[^"]*"', "", answer.text)
        assert not re.search("[\u202e\u2066]", shown), path
    letter = client.get(f"/queues/orders/dead/letter?id={one}").text
    for part in (r"open \u202egpj.exe", r"refused: \u202egpj.exe", r"\u2066name"):
        assert part in letter


def test_a_form_keeps_what_the_message_has(app, client):
    (one,) = bury(app, "orders", [f"open {TURNED}"], headers={"file": TURNED})
    html = client.get(f"/queues/orders/dead/edit?id={one}").text
    assert value_of(html, "body") == f"open {TURNED}"
    assert value_of(html, "headers") == f"file: {TURNED}"


def test_a_filter_by_a_header_keeps_its_value(client, app):
    bury(app, "orders", ["x"], headers={"file": TURNED})
    html = client.get("/queues/orders/dead", params={"header": f"file={TURNED}"}).text
    assert f'value="file={TURNED}"' in html
