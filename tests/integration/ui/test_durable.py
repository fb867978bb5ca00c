"""Pages of durable handlers in Chromium: a form gives a signal, output grows while it is read, a flow is drawn."""

import re
import threading
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

import reliq
from reliq.testing import work_off
from tests.support.workers import eventually, working

LOOKS = [{"color_scheme": "light"}, {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}}]


@pytest.mark.parametrize("options", LOOKS, ids=["light", "dark", "narrow"])
def test_a_signal_is_given_by_its_form_and_the_keyboard(app, look, options):
    answers = []

    @app.handler("orders")
    def handle(message: reliq.Message) -> None:
        answers.append(message.wait("approval", timeout="2d"))

    one, other = app.queue("orders").send_many([1, 2])
    work_off(app)
    page = look("/queues/orders", **options)
    page.get_by_role("link", name="Parked").or_(page.locator("dl.tiles a[href$='/parked']")).first.click()
    expect(page.locator("h1")).to_contain_text("2")
    expect(page.locator("td[data-label=Until]").first).to_have_text(re.compile("^in "))
    field = page.get_by_label(f"Value of approval for {one}")
    field.focus()
    page.keyboard.type('{"by": "<b>ann</b>"}')
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Give"
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_text("The signal is given.")).to_be_visible()
    expect(page.get_by_role("rowheader", name=one)).to_have_count(0)
    expect(page.get_by_role("rowheader", name=other)).to_be_visible()
    page.get_by_label(f"Value of approval for {other}").fill("no JSON")
    page.get_by_role("button", name="Give").click()
    expect(page.get_by_text("No message of this queue waits for a signal.")).to_be_visible()
    work_off(app)
    assert answers == [{"by": "<b>ann</b>"}, "no JSON"]


def test_the_question_of_a_purge_counts_parked_messages(app, client):
    @app.handler("orders")
    def handle(message: reliq.Message) -> None:
        message.wait("approval", timeout="2d")

    asked = "<b>{} ready message{}</b> and <b>0 delayed messages</b> for good"
    app.queue("orders").send("x")
    assert asked.format(1, "") + "." in client.get("/queues/orders/purge").text
    work_off(app)
    also = "and <b>1 parked message</b> and <b>0 prepared messages</b>."
    assert f"{asked.format(0, 's')},\n  {also}" in client.get("/queues/orders/purge").text
    assert app.queue("orders").purge() == 1


def test_a_signal_for_a_message_that_was_cancelled_meanwhile_is_refused_in_words(app, look):
    @app.handler("orders")
    def handle(message: reliq.Message) -> None:
        message.wait("first")
        message.wait("approval")

    one = app.queue("orders").send(1)
    work_off(app)
    app.queue("orders").signal(one, "first")
    work_off(app)
    page = look("/queues/orders/parked")
    assert app.queue("orders").cancel(one)
    page.get_by_role("button", name="Give").click()
    expect(page.get_by_text("The signal was refused")).to_be_visible()


@pytest.mark.parametrize("options", LOOKS, ids=["light", "dark", "narrow"])
def test_output_is_read_while_its_handler_runs(app, look, options):
    go_on = threading.Semaphore(0)

    @app.handler("questions")
    def answer(message: reliq.Message) -> None:
        for word in ("because ", "<i>light</i> ", "scatters"):
            message.emit(word)
            assert go_on.acquire(timeout=60)

    queue = app.queue("questions")
    one = queue.send("why is the sky blue?")
    with working(app):
        eventually(lambda: queue.stats().processing)
        page = look(f"/queues/questions/message?{urlencode({'id': one})}", **options)
        page.get_by_role("link", name="Output").click()
        expect(page.locator("pre")).to_have_text("because ")
        go_on.release()
        expect(page.locator("pre")).to_have_text("because <i>light</i> ")
        go_on.release(2)
        expect(page.locator("pre")).to_have_text("because <i>light</i> scatters")
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        eventually(lambda: queue.stats().counters.get("acked"))


def test_a_browser_follows_output_by_server_sent_events(app, address, look):
    """An EventSource, as a page of one's own would use it: each chunk comes once, then the end."""
    more = threading.Event()

    @app.handler("questions")
    def answer(message: reliq.Message) -> None:
        message.emit({"word": "ä"})
        assert more.wait(60)
        message.emit("last")

    queue = app.queue("questions")
    one = queue.send("x")
    with working(app):
        eventually(lambda: next(iter(queue.output(one, follow=False)), None))
        page = look("/")
        page.evaluate(
            """path => {
              window.got = [];
              const source = new EventSource(path);
              source.onmessage = event => window.got.push([event.lastEventId, JSON.parse(event.data).value]);
              source.addEventListener("end", () => { source.close(); window.got.push("end"); });
            }""",
            f"{address}/v1/queues/questions/messages/{one}/output",
        )
        eventually(lambda: page.evaluate("window.got.length") == 1)
        more.set()
        eventually(lambda: page.evaluate("window.got.at(-1)") == "end")
        got = page.evaluate("window.got")
    chunks = list(queue.output(one, follow=False))
    assert got == [*([chunk.id, chunk.value] for chunk in chunks), "end"]
    assert [chunk.value for chunk in chunks] == [{"word": "ä"}, "last"]


@pytest.mark.parametrize("options", LOOKS, ids=["light", "dark", "narrow"])
def test_a_flow_is_drawn_with_the_states_of_its_messages(app, look, options):
    @app.handler("parts")
    def make(message: reliq.Message) -> None:
        pass

    with app.flow() as flow:
        parts = [flow.send("parts", number) for number in range(2)]
        end = flow.send("assembly", "end", after=parts)
    page = look("/flows", **options)
    page.get_by_role("link", name=flow.id).click()
    graph = page.locator("main svg[role=group]")
    expect(graph).to_be_visible()
    expect(graph).to_contain_text("assembly")
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
    before = graph.text_content()
    work_off(app)
    page.goto(page.url)
    assert page.locator("main svg[role=group]").text_content() != before
    page.locator("main a", has_text=end.id).first.focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/message?id=*")
