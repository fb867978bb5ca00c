"""Single messages on the dashboard: find, look, cancel, send, edit and redrive, over plain HTTP and in Chromium."""

import logging
import re

import pytest
from playwright.sync_api import expect

from reliq.features.tracking.model import Cancellation
from tests.integration.ui.dying import bury
from tests.integration.ui.test_pages import text_of


def fields_of(html):
    """The hidden fields of a page."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', html))


@pytest.fixture
def orders(app):
    return app.queue("orders")


@pytest.fixture
def audit(caplog):
    caplog.set_level(logging.INFO, logger="reliq.api.audit")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "reliq.api.audit"]


def test_the_search_leads_to_the_message_in_whichever_queue(app, client, orders):
    app.queue("emails").send("x")
    one = orders.send('{"order": 7}', delay="1h", headers={"tenant": "acme"}, key="k")
    assert 'name="id" aria-label="Find a message by its id"' in client.get("/queues/emails").text
    found = client.get("/find", params={"id": f" {one} "})
    assert (found.status_code, found.headers["location"]) == (303, f"/queues/orders/message?id={one}")
    text = text_of(client.get(found.headers["location"]))
    for part in ("delayed", "not due yet", "tenant acme", '"order": 7', "Key k"):
        assert part in text
    assert client.get("/find", params={"id": "unknown"}).status_code == 404
    assert "no blank" in client.get("/find", params={"id": "a b"}).text
    assert client.get("/find").status_code == 200
    assert client.get("/queues/orders/message?id=unknown").status_code == 404


def test_a_ready_message_says_what_keeps_it_and_shows_its_body(client, orders):
    orders.send("first")
    one = orders.send("second")
    orders.pause()
    text = text_of(client.get(f"/queues/orders/message?id={one}"))
    assert "after about 1 others; none starts now: paused" in text
    assert "second" in text


def test_a_cancellation_is_confirmed_and_noted(client, orders, audit):
    ready, held = orders.send_many(["x", "y"])
    assert "Cancel the message" in client.get(f"/queues/orders/message/cancel?id={ready}").text
    answer = client.post("/queues/orders/message/cancel", data={"id": ready})
    assert answer.headers["location"] == "/queues/orders?notice=cancel-cancelled"
    assert orders.find(ready) is None
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        answer = client.post("/queues/orders/message/cancel", data={"id": held})
        assert "Its consumer is told" in client.get(answer.headers["location"]).text
        assert orders.cancel(held) is Cancellation.TOLD
        consumer.ack(message)
    answer = client.post("/queues/orders/message/cancel", data={"id": held})
    assert "cancel-unknown" in answer.headers["location"]
    first, *_ = audit()
    assert first == (f"dashboard: this machine, without a key did POST /queues/orders/message/cancel id='{ready}'")


def test_a_message_is_sent_from_a_form_and_the_log_does_not_quote_it(client, orders, audit):
    orders.send("x", id="taken")
    form = {"body": "a\r\nb", "headers": "tenant: acme\r\nkind: x", "delay": "1h", "key": "k", "priority": "high"}
    answer = client.post("/queues/orders/send", data=form)
    assert "The message is sent" in client.get(answer.headers["location"]).text
    (sent,) = orders.delayed.list()
    assert (sent.body, sent.headers, sent.key, sent.priority) == (
        b"a\nb", {"tenant": "acme", "kind": "x"}, "k", "high",
    )  # fmt: skip
    assert "acme" not in audit()[0]


@pytest.mark.parametrize(
    ("field", "value"), [("delay", "soon"), ("headers", "no colon"), ("key", "k" * 5000), ("priority", "urgent")]
)
def test_a_fault_of_a_form_stands_beside_its_field_and_nothing_is_sent(client, orders, field, value):
    orders.send("x")
    answer = client.post("/queues/orders/send", data={"body": "as typed", field: value})
    assert (answer.status_code, f'id="{field}-fault"' in answer.text) == (422, True)
    assert "as typed" in answer.text
    assert orders.stats().ready == 1


def test_a_form_sets_no_header_that_is_reliqs_alone(client, orders, app):
    forged = {"body": "x", "headers": "reliq-dead-from: victim"}
    (one,) = bury(app, "orders", ["x"], headers={"reliq-dead-from": "source"})
    answer = client.post("/queues/orders/send", data=forged)
    assert (answer.status_code, 'id="headers-fault"' in answer.text) == (422, True)
    form = {**fields_of(client.get(f"/queues/orders/dead/edit?id={one}").text), "body": "y"}
    answer = client.post("/queues/orders/dead/edit", data={**form, **forged})
    assert (answer.status_code, 'id="headers-fault"' in answer.text) == (422, True)
    assert (orders.stats().ready, orders.stats().dead) == (0, 1)
    client.post("/queues/orders/dead/edit", data={**form, "headers": "reliq-dead-from: source"})
    assert orders.stats().ready == 1


def test_an_edited_letter_goes_back_under_its_id_and_the_log_says_who(client, orders, app, audit):
    (one,) = bury(app, "orders", ['{"order": "seven"}'], headers={"tenant": "acme"}, key="k")
    page = client.get(f"/queues/orders/dead/edit?id={one}").text
    form = {**fields_of(page), "body": '{"order": 7}', "headers": "tenant: acme\nedited: yes"}
    faulty = client.post("/queues/orders/dead/edit", data={**form, "headers": "no colon"})
    assert (faulty.status_code, 'id="headers-fault"' in faulty.text, app.queue("orders").stats().dead) == (422, True, 1)
    answer = client.post("/queues/orders/dead/edit", data=form)
    assert "The edited message is back" in client.get(answer.headers["location"]).text
    assert audit()[-1].endswith(f"POST /queues/orders/dead/edit id='{one}', changed='body and headers'")
    assert client.post("/queues/orders/dead/edit", data=form).status_code == 404
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        assert (message.id, message.body, message.key, message.failures) == (one, b'{"order": 7}', "k", 0)
        assert message.headers == {"tenant": "acme", "edited": "yes"}
        consumer.dead(message, "again")
    answer = client.post("/queues/orders/dead/edit", data=form)
    assert (answer.status_code, "died again since" in answer.text) == (409, True)
    stats = orders.stats()
    assert (stats.dead, stats.counters["redriven"]) == (1, 1)


def test_letters_that_cannot_be_edited_are_refused_with_a_sentence(client, app):
    large, binary = bury(app, "orders", [b"x" * 5000, b"\xff\x00"])
    (lines,) = bury(app, "orders", ["x"], headers={"a": "1\n2"})
    reasons = {large: "more than 1 KiB cannot be edited here", binary: "Its body is not text", lines: "have line ends"}
    for one, reason in reasons.items():
        assert reason in client.get(f"/queues/orders/dead/edit?id={one}").text
        letter = app.queue("orders").dead.get(one)
        answer = client.post("/queues/orders/dead/edit", data={"id": one, "tag": letter.tag, "body": "y"})
        assert (answer.status_code, reason in answer.text) == (422, True)
    assert app.queue("orders").stats().dead == 3


def test_the_lines_of_an_edited_body_end_as_they_did(client, app, orders):
    unix, windows = bury(app, "orders", ["a\nb", "a\r\nb"])
    for one, body in ((unix, b"a\nc"), (windows, b"a\r\nc")):
        form = fields_of(client.get(f"/queues/orders/dead/edit?id={one}").text)
        client.post("/queues/orders/dead/edit", data={**form, "body": "a\r\nc"})
        with orders.consumer() as consumer:
            (message,) = consumer.claim()
            consumer.ack(message)
        assert (message.id, message.body) == (one, body)


def test_a_message_that_is_done_has_its_history(client, orders):
    orders.configure(history="1h")
    one = orders.send("x")
    with orders.consumer() as consumer:
        consumer.ack(*consumer.claim())
    text = text_of(client.get(f"/queues/orders/message?id={one}"))
    assert "done" in text and "it has left the queue: acked" in text
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC .* ago"
    assert re.search(rf"History.*enqueued {time}.*claimed {time} {consumer.id} acked {time}", text)
    assert "Cancel" not in text


def test_a_message_shows_the_trace_that_it_belongs_to(client, orders):
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    traced = orders.send("x", headers={"traceparent": f"00-{trace}-00f067aa0ba902b7-01"})
    wrong = orders.send("x", headers={"traceparent": "no-trace"})
    assert f"Trace {trace}" in text_of(client.get(f"/queues/orders/message?id={traced}"))
    assert "Trace " not in text_of(client.get(f"/queues/orders/message?id={wrong}"))


def test_open_batches_are_listed_with_their_progress(client, app):
    assert "No batch is open" in client.get("/batches").text
    with app.batch() as batch:
        batch.send_many("orders", [1, 2, 3, 4])
    with app.queue("orders").consumer() as consumer:
        consumer.ack(*consumer.claim())
    text = text_of(client.get("/batches"))
    assert batch.id in text and "25 %" in text


def test_in_chromium_a_message_is_found_watched_and_cancelled(orders, look):
    one = orders.send('{"rows": 30}')
    with orders.consumer() as consumer:
        (message,) = consumer.claim()
        message.progress(0.25, "page 7 of 30")
        page = look("/queues/orders")
        expect(page.get_by_role("table").filter(has_text="page 7 of 30")).to_be_visible()
        page.get_by_label("Find a message by its id").fill(one)
        page.keyboard.press("Enter")
        expect(page.locator("h1 .badge")).to_have_text("processing")
        expect(page.locator("pre.body")).to_have_text('{\n  "rows": 30\n}')
        bar = page.get_by_role("progressbar")
        expect(bar).to_have_attribute("value", "0.25")
        message.checkpoint({"page": 14})
        message.progress(1, "page 30 of 30")
        expect(bar).to_have_attribute("value", "1.0")
        expect(page.get_by_text("page 30 of 30")).to_be_visible()
        page.get_by_role("link", name="Cancel…").click()
        page.get_by_role("button", name="Cancel the message").click()
        expect(page.get_by_text("Its consumer is told")).to_be_visible()
        consumer.heartbeat()
        assert message.cancelled
        consumer.ack(message)


def test_in_chromium_a_letter_is_edited_and_redriven(app, orders, look):
    (one,) = bury(app, "orders", ['{"order": "seven"}'])
    page = look(f"/queues/orders/dead/letter?id={one}")
    page.get_by_role("link", name="Edit and redrive…").click()
    expect(page.get_by_label("Body")).to_have_value('{"order": "seven"}')
    page.get_by_label("Headers").fill("edited: yes")
    page.get_by_label("Body").fill('{"order": 7}')
    page.get_by_role("button", name="Save and redrive").click()
    expect(page.get_by_text("The edited message is back in the queue")).to_be_visible()
    expect(page.locator("pre.body")).to_contain_text('"order": 7')
    assert orders.find(one).message.headers == {"edited": "yes"}


def test_lists_show_the_first_line_of_an_error_and_details_all_of_it(app, client, orders):
    several = "no such order\nhint: look\nbye"
    dead, delayed = orders.send("x"), orders.send("y")
    with orders.consumer() as consumer:
        for message in consumer.claim(2):
            if message.id == dead:
                consumer.dead(message, several)
            else:
                consumer.retry(message, "1h", several)
    for page in ("/queues/orders/dead", "/queues/orders"):
        text = client.get(page).text
        assert ("no such order" in text, "bye" in text) == (True, False)
    for page in (f"/queues/orders/dead/letter?id={dead}", f"/queues/orders/message?id={delayed}"):
        assert several in client.get(page).text


# --- delayed messages ---


def test_delayed_messages_are_listed_by_their_error_and_header(client, orders):
    plain = orders.send("x", delay="2h", headers={"tenant": "acme"})
    with orders.consumer() as consumer:
        retry = orders.send("y")
        consumer.retry(consumer.claim()[0], "1h", "no such <order>")

    def listed(**query):
        answer = client.get("/queues/orders/delayed", params=query)
        assert answer.status_code == 200
        return [one for one in (plain, retry) if f">{one}<" in answer.text]

    assert listed() == [plain, retry]
    assert listed(failed="1") == listed(error="Retry") == [retry]
    assert listed(header="tenant=acme") == [plain]
    assert listed(error="ValueError") == []
    assert "no such &lt;order&gt;" in client.get("/queues/orders/delayed").text
    assert client.get("/queues/orders/delayed", params={"header": "tenant"}).status_code == 422


def test_chosen_delayed_messages_run_now_or_are_cancelled(app, client, orders, audit):
    first, second, third, fourth = (orders.send("x", delay="1h") for _ in range(4))
    assert client.post("/queues/orders/delayed/run", data={}).status_code == 400
    assert client.post("/queues/orders/delayed/cancel", data={}).status_code == 400
    answer = client.post("/queues/orders/delayed/run", data={"id": first})
    assert answer.headers["location"] == "/queues/orders/delayed?notice=hastened&count=1"
    assert "Messages that run now: 1." in text_of(client.get(answer.headers["location"]))
    assert orders.find(first).due_at < orders.find(second).due_at
    answer = client.post("/queues/orders/delayed/cancel", data={"id": [second, third]})
    assert answer.headers["location"] == "/queues/orders/delayed?notice=cancelled&count=2"
    shown = client.get(answer.headers["location"])
    assert (shown.status_code, "Messages cancelled: 2." in text_of(shown)) == (200, True)
    assert {one.id for one in orders.delayed.list()} == {first, fourth}
    assert any(f"POST /queues/orders/delayed/run id='{first}'" in line for line in audit())


def test_all_that_failed_with_an_error_run_now(client, orders):
    later = orders.send("x", delay="3h")
    with orders.consumer() as consumer:
        for _ in range(2):
            orders.send("y")
            consumer.retry(consumer.claim()[0], "1h", "no such order")
    page = client.get("/queues/orders/delayed", params={"error": "Retry"})
    hidden = fields_of(page.text)
    assert hidden == {"error": "Retry", "all": "1"}
    answer = client.post("/queues/orders/delayed/run", data=hidden)
    assert answer.headers["location"] == "/queues/orders/delayed?error=Retry&notice=hastened&count=2"
    assert [one.id for one in orders.delayed.list()][-1] == later


def test_the_search_of_a_queue_shows_what_contains_a_text_and_how_far_it_looked(client, orders):
    one = orders.send({"customer": "Grace <b>"}, delay="1h")
    orders.send_many(["x"] * 3)
    assert 'action="/queues/orders/search"' in client.get("/queues/orders").text
    page = client.get("/queues/orders/search", params={"text": "Grace"})
    text = text_of(page)
    for part in ("1 found", "Looked through 4 of 4 messages", one, '{"customer":"Grace <b>"}', "delayed", "body"):
        assert part in text
    assert "<b>" not in page.text
    assert "No message contains this text" in text_of(client.get("/queues/orders/search?text=grace"))
    assert "Search messages" in text_of(client.get("/queues/orders/search"))
    assert client.get("/queues/orders/search?text=x&place=processing").status_code == 422


def test_a_large_body_shows_its_start_wherever_the_message_is(client, orders, app):
    start = "the start of a large body "
    bodies = [start + str(n) + "x" * 300_000 for n in range(3)]
    held, ready = orders.send_many(bodies[:2])
    later = orders.send(bodies[2], delay="1h")
    with orders.consumer() as consumer:
        assert [one.id for one in consumer.claim()] == [held]
        for number, identity in enumerate((held, ready, later)):
            text = text_of(client.get(f"/queues/orders/message?id={identity}"))
            assert f"{start}{number}xxx" in text
            assert "Only its start is shown" in text
        assert f"{start}1xxx" in text_of(client.get("/queues/orders"))
    (letter,) = bury(app, "letters", [bodies[0]])
    assert f"{start}0xxx" in text_of(client.get("/queues/letters/dead"))
    assert f"{start}0xxx" in text_of(client.get(f"/queues/letters/dead/letter?id={letter}"))
