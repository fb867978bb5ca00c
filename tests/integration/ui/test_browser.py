"""The dashboard in a real Chromium. `look` fails each test with pages that used the console or asked another host."""

import contextlib
import re
from collections.abc import Iterator
from urllib.parse import urlencode

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.model.keys import owner_of
from reliq.model.policy import RunOver
from reliq.testing import work_off
from tests.integration.api.serving import serving
from tests.integration.ui.dying import bury
from tests.support.workers import eventually

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


def tile(page, name):
    return page.locator("dl.tiles > div", has=page.locator(f'dt:text-is("{name}")')).locator("dd")


def test_a_message_is_sent_seen_killed_redriven_and_drained(app, address, look):
    page = look("/")
    expect(page.get_by_text("There is no queue yet")).to_be_visible()

    sent = httpx.post(f"{address}/v1/queues/orders/messages", json={"body": {"order": 17}}).json()["id"]
    page.get_by_role("link", name="orders").click()
    expect(tile(page, "Ready")).to_have_text("1")
    expect(page.get_by_text('{"order":17}')).to_be_visible()

    with app.queue("orders").consumer() as consumer:
        (message,) = consumer.claim()
        expect(tile(page, "Processing")).to_have_text("1")
        expect(page.get_by_role("rowheader", name=consumer.id)).to_be_visible()
        consumer.dead(message, "no order 17 in the warehouse")
    expect(tile(page, "Dead")).to_have_text("1")

    tile(page, "Dead").get_by_role("link").click()
    expect(page.get_by_text("no order 17 in the warehouse")).to_be_visible()
    page.get_by_role("link", name=sent).click()
    expect(page.locator("pre.body")).to_have_text('{\n  "order": 17\n}')

    page.get_by_role("link", name="Dead letters").click()
    page.get_by_role("link", name="Redrive all…").click()
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_text("1 of at most 1")).to_be_visible()
    assert app.queue("orders").stats().dead == 1
    page.get_by_role("button", name="Redrive 1 letter").click()
    expect(page.locator(".badge", has_text="done")).to_be_visible()
    page.get_by_role("link", name="To the queue").click()
    expect(tile(page, "Ready")).to_have_text("1")
    expect(tile(page, "Dead")).to_have_text("0")

    with app.queue("orders").consumer() as consumer:
        consumer.ack(*consumer.claim())
    expect(tile(page, "Ready")).to_have_text("0")
    expect(page.locator("dl.counts")).to_contain_text("redriven")
    assert app.queue("orders").stats().counters["acked"] == 1


def test_a_slow_redrive_is_watched_and_stopped(app, look):
    bury(app, "orders", list(range(300)))
    page = look("/queues/orders/dead/redrive")
    page.get_by_label("Messages a second").fill("1")
    page.get_by_role("button", name="Redrive now").click()
    expect(page.locator(".badge", has_text="running")).to_be_visible()
    expect(page.locator("dl.facts b")).to_have_text(re.compile(r"^[1-9]"))
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".badge", has_text="stopped")).to_be_visible()
    assert 0 < app.queue("orders").stats().ready < 300


def test_chosen_letters_are_deleted_after_the_name_is_typed(app, look):
    first, second, third = bury(app, "orders", [1, 2, 3])
    page = look("/queues/orders/dead")
    page.get_by_label(f"Choose {first}").check()
    page.get_by_label(f"Choose {third}").check()
    page.get_by_role("button", name="Delete chosen…").click()
    expect(page.get_by_text("2 chosen letters")).to_be_visible()
    page.get_by_role("button", name="Delete for good").click()
    assert page.get_by_label("to confirm").evaluate("field => field.validity.valueMissing")
    page.get_by_label("to confirm").fill("orders")
    page.get_by_role("button", name="Delete for good").click()
    expect(page.get_by_text("Dead letters deleted: 2.")).to_be_visible()
    assert [letter.id for letter in app.queue("orders").dead.list()] == [second]


def test_a_queue_is_paused_resumed_and_purged(app, look):
    app.queue("orders").send_many([1, 2])
    page = look("/queues/orders")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("h1")).to_contain_text("paused")
    assert app.queue("orders").stats().paused
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("h1")).to_contain_text("no consumers")
    page.get_by_role("link", name="Purge…").click()
    expect(page.get_by_text("2 ready messages")).to_be_visible()
    page.get_by_label("to confirm").fill("orders")
    page.get_by_role("button", name="Remove for good").click()
    expect(page.get_by_text("Messages deleted: 2.")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/queues/orders$"))  # what a reload asks for
    page.goto(page.url)
    expect(page.get_by_text("Messages deleted")).to_have_count(0)


def test_a_breaker_is_opened_and_closed_and_limits_are_seen(app, look):
    queue = app.queue("orders")
    queue.send_many([1, 2])
    queue.configure(rate="10/s", burst=20, concurrency=3, fair=True, key_rate="5/s")
    page = look("/queues/orders")
    policy = page.get_by_role("region", name="Policy")
    expect(policy).to_contain_text("10/s, 20 at once")
    expect(policy).to_contain_text("5/s, in turn with the others")
    page.get_by_role("button", name="Open breaker").click()
    expect(page.locator("h1")).to_contain_text("breaker open")
    assert queue.stats().breaker == "open"
    page.goto(page.url.partition("/queues/")[0] + "/")
    expect(page.get_by_role("row", name="orders")).to_contain_text("breaker open")
    page = look("/queues/orders")
    page.get_by_role("button", name="Close breaker").click()
    expect(page.get_by_role("button", name="Open breaker")).to_be_visible()
    assert queue.stats().breaker == "closed"


# --- hostile content -------------------------------------------------------------------------------------------------

ATTACKS = (
    "<script>window.pwned=1;alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\"><svg/onload=alert(3)>",
    "'\"></title></textarea></pre><iframe src=javascript:alert(4)>",
    "<style>body{display:none}</style><link rel=stylesheet href=//evil.example/x.css>",
    "<base href=//evil.example/><form action=//evil.example/><input autofocus onfocus=alert(5)>",
    "{{7*7}}{% raise %}&lt;script&gt;alert(6)&lt;/script&gt;",
)  # fmt: skip


@pytest.fixture
def hostile(app) -> list[str]:
    """Dead letters that attack in every place that a stranger can write to; their ids."""
    attack = iter(ATTACKS)

    @app.handler("orders", retry=reliq.fixed(0, limit=0))
    def fail(message: reliq.Message) -> None:
        text = next(attack)
        raise type(text, (Exception,), {"__module__": text})(text)

    for number, text in enumerate(ATTACKS):
        identity = text.replace(" ", "/")[:128]
        body = {text: text} if number % 2 else text
        app.queue("orders").send(body, id=identity, headers={text: text})
    assert work_off(app) == len(ATTACKS)
    for text in ATTACKS:
        app.queue("orders").send(text, headers={text: text})
    return [letter.id for letter in app.queue("orders").dead.list()]


def check_harmless(page):
    assert page.evaluate("window.pwned") is None
    assert page.locator("script:not([src]), style, iframe, base, svg[onload], img[onerror], [onfocus]").count() == 0
    assert page.locator("link[rel=stylesheet]").count() == 1
    assert page.locator("body").is_visible()


def test_hostile_messages_are_text_in_every_list(hostile, look):
    assert len(hostile) == len(ATTACKS)
    page = look("/queues/orders/dead")
    for text in ATTACKS:
        expect(page.locator("td.error .text").get_by_text(text, exact=True)).to_be_visible()
    check_harmless(page)
    page.goto(page.url.removesuffix("/dead"))
    for text in ATTACKS:
        expect(page.locator("code.start").get_by_text(text, exact=True)).to_be_visible()
    check_harmless(page)


def test_hostile_messages_are_text_on_their_own_page(hostile, look):
    page = look("/queues/orders/dead")
    letters = page.url
    for identity in hostile:
        page.goto(letters)
        page.get_by_role("link", name=identity, exact=True).click()
        expect(page.locator("h1")).to_contain_text(identity)
        expect(page.locator("pre.body")).to_contain_text("&lt;script" if "{{7" in identity else "<")
        expect(page.locator(".errors")).to_contain_text("7*7" if "{{7" in identity else "<")
        check_harmless(page)


def test_a_hostile_search_is_text_on_every_page_that_repeats_it(app, address, look):
    bury(app, "orders", [1])
    page = look("/")
    for text in ATTACKS:
        for path in ("/queues/orders/dead", "/queues/orders/dead/redrive", "/queues/orders/dead/purge"):
            page.goto(f"{address}{path}?{urlencode({'error': text})}")
            expect(page.locator("main")).to_contain_text(f"last error {text}")
            check_harmless(page)


def test_the_download_of_a_hostile_body_is_a_file(app, look):
    (letter,) = bury(app, "orders", [ATTACKS[0]])
    page = look(f"/queues/orders/dead/letter?id={letter}")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename == "message-body.txt"
    assert download.value.path().read_text() == ATTACKS[0]


# --- accessibility --------------------------------------------------------------------------------------------


@pytest.fixture
def paths(app) -> Iterator[list[str]]:
    """Every kind of page, with something on it."""
    app.queue("orders").configure(history="1h")
    running, _ = app.queue("orders").send_many([1, 2])
    app.queue("invoices").send(1)
    app.queue("invoices").pause()
    app.queue("late").send("x", delay="1h")
    (letter,) = bury(app, "emails", [{"to": "ada"}], "no such address", headers={"tenant": "acme"})
    dead = "/queues/emails/dead"
    of_dead = ["", "?reason=expired", f"/letter?id={letter}", f"/edit?id={letter}", "/redrive", "/purge"]
    app.subscribe("orders", "order.created.*")
    app.subscribe("invoices", "#")
    of_queues = ["/", "/?q=none", "/queues/orders", "/queues/invoices", "/queues/orders/purge", "/queues/orders/policy"]
    of_queues += ["/workers", "/jobs", "/batches", "/flows", "/topics", "/topics?key=order.created.eu"]
    app.schedules.add("daily-report@eu", "0 7 * * MON-FRI", "orders", "x", tz="Europe/Berlin", jitter="1m")
    app.schedules.run("daily-report@eu")
    app.schedules.add("paused", "30s", "orders")
    app.schedules.pause("paused")
    of_queues += ["/schedules", "/schedules/daily-report@eu", "/schedules/paused", "/find", "/queues/orders/send"]
    of_queues += ["/queues/emails/search?text=ada"]
    of_queues += [f"/queues/orders/{one}?id={running}" for one in ("message", "message/cancel")] + [
        "/queues/late/delayed"
    ]
    of_queues += durable_pages(app)
    with app.queue("orders").consumer() as consumer:
        consumer.claim()[0].progress(0.4, "page 12 of 30")
        of_queues.append(f"/workers/{owner_of(consumer.id)}")
        yield [*of_queues, *(dead + one for one in of_dead)]


def durable_pages(app) -> list[str]:
    """The pages of a message that waits for a signal and has output, and of a flow."""
    queue = app.queue("approvals")
    one = queue.send({"order": 7})
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        message.emit("asking the manager " * 20)
        with contextlib.suppress(RunOver):
            message.wait("approval", "2d")
    with app.flow() as flow:
        parts = [flow.send("parts", number) for number in range(3)]
        flow.send("assembly", "end", after=parts)
    with app.queue("parts").consumer() as consumer:
        (part,) = consumer.claim()
        with app.flow(parent=part) as within:
            within.send("parts", "more")
    return ["/queues/approvals", "/queues/approvals/parked", f"/queues/approvals/output?id={one}", f"/flows/{flow.id}"]


# The dark pages differ from the light ones in their colours only.
@pytest.mark.parametrize(
    ("options", "rules"),
    [
        ({"color_scheme": "light"}, RULES),
        ({"color_scheme": "dark"}, ["cat.color"]),
        ({"color_scheme": "dark", **PHONE}, RULES),
    ],
    ids=["light", "dark", "phone"],
)
def test_no_page_has_a_known_barrier(paths, look, options, rules):
    page = look("/", **options)
    origin = page.url.rstrip("/")
    found = {}
    for path in paths:
        page.goto(origin + path)
        report = Axe().run(page, options={"runOnly": rules, "resultTypes": ["violations"]})
        if report.violations_count:
            found[path] = report.generate_report()
    assert found == {}


def test_no_page_is_wider_than_a_phone(paths, look):
    page = look("/", **PHONE)
    origin = page.url.rstrip("/")
    for path in paths:
        page.goto(origin + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path


# Text that leaves its cell, its fact or its card; a table that a card cuts off; a label that touches the field above.
MISPLACED = """() => {
  const found = [], bounds = "td, th, dt, dd, .card, .bar .wide";
  const clipped = one => one.closest(".start, pre, svg, option, .skip, [hidden]") || hidden(one);
  const hidden = one => one !== null && (getComputedStyle(one).clipPath !== "none" || hidden(one.parentElement));
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode, box = text.parentElement.closest(bounds);
    if (!text.data.trim() || !box || clipped(text.parentElement)) continue;
    const range = document.createRange(), edge = box.getBoundingClientRect();
    range.selectNodeContents(text);
    const out = one => one.width > 1 && (one.right > edge.right + 1 || one.left < edge.left - 1);
    if ([...range.getClientRects()].some(out))
      found.push("leaves: " + text.data.trim());
  }
  for (const card of document.querySelectorAll(".table-card"))
    if (card.scrollWidth > card.clientWidth) found.push("cuts off: " + card.innerText.slice(0, 80));
  const fields = [...document.querySelectorAll("main input, main select")].map(one => one.getBoundingClientRect());
  const touches = (one, label) => one.height > 1 && one.bottom <= label.top + 1 && label.top - one.bottom < 6
    && one.left < label.right && one.right > label.left;
  for (const label of document.querySelectorAll("main label")) {
    const place = label.getBoundingClientRect();
    if (place.height > 1 && fields.some(one => touches(one, place))) found.push("touches: " + label.innerText);
  }
  return [...new Set(found)];
}"""


@pytest.mark.parametrize("options", [{"viewport": {"width": 1280, "height": 800}}, PHONE], ids=["desktop", "phone"])
def test_text_stays_in_its_place(app, paths, look, options):
    app.schedules.add("reports.of-the-night", "0 7 * * MON-FRI", "notifications.emails@europe", "x", tz="Europe/Berlin")
    app.queue("notifications.emails@europe").send({"to": "ada"})
    with app.queue("notifications.emails@europe").consumer() as consumer:
        consumer.claim()
        page = look("/", **options)
        origin = page.url.rstrip("/")
        found = {}
        for path in paths:
            page.goto(origin + path)
            if misplaced := page.evaluate(MISPLACED):
                found[path] = misplaced
    assert found == {}


def test_sixty_queues_fit_on_a_few_screens_of_a_phone(app, look):
    for number in range(60):
        app.queue(f"queue-{number}").send_many(range(number + 1))
    page = look("/", **PHONE)
    expect(page.locator("table.queues tbody tr")).to_have_count(60)
    assert page.evaluate("document.documentElement.scrollHeight") <= 3000


def test_everything_can_be_read_without_javascript(app, look):
    (letter,) = bury(app, "emails", [{"to": "ada"}], "no such address")
    page = look("/", java_script_enabled=False)
    expect(page.get_by_role("button", name="Live")).to_be_hidden()
    page.get_by_role("link", name="emails").click()
    expect(tile(page, "Dead")).to_have_text("1")
    tile(page, "Dead").get_by_role("link").click()
    page.get_by_role("link", name=letter).click()
    expect(page.locator("pre.body")).to_contain_text('"to": "ada"')
    page.get_by_role("button", name="Redrive").click()
    page.wait_for_url("**/dead/redrives/*")
    until_done(page)
    assert app.queue("emails").stats().ready == 1


def until_done(page):
    """Ask for a redrive's page until it is over: without JavaScript it does not do so itself."""
    progress = page.url

    def done() -> bool:
        page.goto(progress)
        return page.locator(".badge", has_text="done").is_visible()

    eventually(done)


def test_the_keyboard_reaches_everything_visibly(app, look):
    app.queue("orders").send(1)
    page = look("/queues/orders")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert page.locator(".skip").bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.name") == "text"  # of the search
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Pause"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("paused")


def test_an_update_keeps_the_focus_and_the_selection(app, look):
    app.queue("orders").send(1)
    page = look("/queues/orders")
    page.get_by_role("link", name="Purge…").focus()
    app.queue("orders").send(2)
    expect(tile(page, "Ready")).to_have_text("2")
    assert page.evaluate("document.activeElement.textContent") == "Purge…"


def test_a_page_that_is_still_stays_as_it_is(app, look):
    app.queue("orders").send(1)
    page = look("/queues/orders")
    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("button", name="Still")).to_have_attribute("aria-pressed", "false")
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    app.queue("orders").send(2)
    other = look("/queues/orders")
    app.queue("orders").send(3)
    expect(tile(other, "Ready")).to_have_text("3")
    assert requests == []
    expect(tile(page, "Ready")).to_have_text("1")
    page.get_by_role("button", name="Still").click()
    expect(tile(page, "Ready")).to_have_text("3")


@pytest.mark.parametrize("path", ["/", "/queues/orders"])
def test_while_redis_is_away_what_is_shown_is_grey_and_says_its_age(browser, path):
    with EmbeddedRedis() as server, serving(server.url) as client:
        client.post("/v1/queues/orders/messages", json={"body": 1}).raise_for_status()
        with contextlib.closing(browser.new_context()) as context:
            page = context.new_page()
            page.goto(f"{client.base_url}{path}")
            server.kill()
            expect(page.locator("[data-live]:not(.stale)")).to_have_count(0)
            expect(page.locator("#live")).to_contain_text("1")
            age = page.locator("#live-toggle, #live .notice")
            expect(age.filter(has_text=re.compile(r"\d+ s( |$)")).first).to_contain_text("old")
            server.start()
            expect(page.locator(".stale")).to_have_count(0)
            expect(page.locator("#live-toggle")).to_have_text("Live")


def test_rates_are_drawn(app, look):
    app.queue("orders").send(1)
    page = look("/queues/orders")
    expect(page.locator("path.line.ready")).to_have_attribute("d", re.compile(r"^M[\d.]+ [\d.]+L"))
    expect(page.get_by_role("img", name="Throughput, messages/s, the last 5 min")).to_be_visible()
    page.get_by_role("link", name="2h").click()
    expect(page.get_by_role("img", name="Throughput, messages/s, the last 2 h")).to_be_visible()
