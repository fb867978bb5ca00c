"""The dashboard over plain HTTP: what it shows, what it does, what it refuses."""

import asyncio
import re
from html import unescape
from urllib.parse import quote

import httpx
import pytest
from markupsafe import escape

import reliq
from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.model.keys import QueueKeys
from reliq_api.app import create_app
from reliq_api.settings import Settings
from reliq_api.ui import render
from reliq_api.ui.guard import POLICY
from tests.integration.api.serving import serving
from tests.integration.ui.dying import bury
from tests.support.workers import aged, eventually

PAGES = ("/", "/queues/orders", "/queues/orders/purge", "/queues/orders/dead", "/queues/orders/dead/redrive",
         "/queues/orders/dead/purge", "/queues/orders/delayed", "/queues/orders/policy", "/topics", "/topics?key=a",
         "/jobs", "/schedules", "/schedules/none", "/queues/none", "/find", "/find?id=none",
         "/queues/orders/send")  # fmt: skip
OF_SLICES = {"message", "search", "delayed/cancel"}  #: pages of a queue to which those of the core lead


def test_the_bar_of_every_page_leads_to_each_section(client):
    bar = re.findall(r'<a class="to" href="/(\w+)">(\w+)</a>', client.get("/").text)
    assert sorted(bar) == [(one.lower(), one) for one in ("Batches", "Flows", "Jobs", "Schedules", "Topics", "Workers")]


@pytest.mark.parametrize("gone", [set(), {"/find"} | {f"/queues/{{name}}/{one}" for one in OF_SLICES}])
def test_no_page_leads_to_one_that_a_deleted_slice_had(app, client, monkeypatch, gone):
    monkeypatch.setitem(render._environment.globals, "pages", render.PAGES - gone)
    app.queue("orders").send_many([1, 2])
    app.queue("orders").send(3, delay=60)
    with app.queue("orders").consumer() as consumer:
        consumer.claim(limit=1)
        found = set()
        for page in ("/", "/queues/orders", "/queues/orders/delayed", "/queues/orders/dead", "/workers"):
            found |= set(re.findall(r'(?:href|action)="(/[^"?#]*)', client.get(page).text))
    lead = {path for path in OF_SLICES if f"/queues/orders/{path}" in found} | ({"/find"} & found)
    assert lead == (set() if gone else {*OF_SLICES, "/find"})


def test_pages_are_those_of_the_start_whatever_is_installed_since(client, monkeypatch):
    """`pip install` replaces the templates while the service runs; those of another version ask for other values."""
    monkeypatch.setattr(render._environment, "cache", None)
    monkeypatch.setattr("jinja2.loaders.open", None, raising=False)
    assert [client.get(path).status_code for path in ("/", "/topics", "/workers")] == [200, 200, 200]


def text_of(answer: httpx.Response) -> str:
    """What a reader sees: no tags, single spaces."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", answer.text)))


def finished(client: httpx.Client, answer: httpx.Response) -> str:
    """Follow a redrive's redirect and wait for its end; what its page says then."""
    assert answer.status_code == 303

    def over() -> str:
        text = text_of(client.get(answer.headers["location"]))
        return "" if "running" in text else text

    return eventually(over, timeout=30)


# --- reading ---------------------------------------------------------------------------------------------------------


def test_the_queues_are_listed_with_their_numbers(app, client):
    app.queue("orders").send_many([1, 2, 3])
    app.queue("orders").send(4, delay=60)
    bury(app, "emails", [b"x"])
    text = text_of(client.get("/"))
    assert "orders no consumers 3 0 1 0" in text
    assert "emails dead letters 0 0 0 1" in text


def test_the_first_page_begins_with_trouble_and_can_be_ordered_and_filtered(app, client):
    app.queue("a-calm").send(1, delay=60)
    app.queue("b-paused").send_many(range(5))
    app.queue("b-paused").pause()
    app.queue("c-waiting").send_many(range(3))
    bury(app, "d-dead", [b"x"])

    def listed(**query: str) -> list[str]:
        return re.findall(r'<tr id="queue-([^"]+)"', client.get("/", params=query).text)

    in_trouble_first = ["d-dead", "c-waiting", "b-paused", "a-calm"]
    eventually(lambda: listed() == in_trouble_first)  # a look at the queues may have begun before they were there
    assert listed(sort="name") == ["a-calm", "b-paused", "c-waiting", "d-dead"]
    assert listed(sort="ready") == ["b-paused", "c-waiting", "a-calm", "d-dead"]
    assert listed(sort="nonsense") == listed()
    assert listed(state="unattended") == ["c-waiting"]
    assert listed(state="dead", q="calm") == []
    assert "All 4 Dead letters 1 No consumers 1 Paused 1 Idle 1" in text_of(client.get("/"))
    tiles = re.findall(r'class="card tile (\w+)[^"]*"><a href="([^"]+)"', client.get("/").text)
    assert dict(tiles)["dead"] == "/?q=&amp;state=&amp;sort=dead"


def test_without_a_queue_it_says_how_to_make_one(client):
    assert "There is no queue yet" in client.get("/").text


def test_a_part_of_a_name_finds_a_queue(app, client):
    app.queue("orders").send(1)
    app.queue("emails").send(1)
    found = client.get("/?q=ORD").text
    assert "/queues/orders" in found and "/queues/emails" not in found


def test_a_queue_has_its_consumers_policy_counters_and_next_messages(app, client):
    queue = app.queue("orders")
    queue.configure(max_length=5000, max_deliveries=7)
    queue.send_many(["first", "second"])
    with queue.consumer(lease=30) as consumer:
        consumer.claim()
        text = text_of(client.get("/queues/orders"))
        assert re.search(rf"{consumer.id} 1 \d+ s left connected", text)
    assert "Limit of messages 5,000 Limit of bytes no limit Worker deaths before a message is dead 7" in text
    assert "claimed 1 enqueued 2" in text
    assert "0 6 B second" in text


def test_what_waits_for_a_retry_is_shown_with_its_last_error(app, client):
    queue = app.queue("orders")
    assert "Waiting for a retry" not in client.get("/queues/orders").text
    queue.send("first", delay="1m")
    identity = queue.send("bad")
    with queue.consumer() as consumer:
        consumer.retry(consumer.claim()[0], "1h", "no such <order>")
    answer = client.get("/queues/orders")
    assert re.search(rf"{identity} in 59 min \d+ s 1 (0|<1|\d+) s ago Retry no such <order>", text_of(answer))
    assert "<order>" not in answer.text


def test_what_a_producer_pushed_by_hand_is_shown_too(app, client):
    app.queue("orders").send(1)
    app.store.run(ops.one(ops.command("RPUSH", QueueKeys("orders").messages, b"\x00raw")))
    assert "does not decode" in client.get("/queues/orders").text


def test_a_dead_letter_has_its_reason_headers_errors_and_body(app, client):
    (letter,) = bury(app, "orders", [{"order": 7}], "no such <order>", headers={"tenant": "acme"})
    text = text_of(client.get("/queues/orders/dead/letter", params={"id": letter}))
    assert f"{letter} rejected" in text
    assert "tenant acme" in text
    assert '{ "order": 7 }' in text
    assert "Dead" in text and "no such <order>" in text


def test_dead_letters_are_found_by_reason_error_header_and_id(app, client):
    ids = bury(app, "orders", [1], headers={"tenant": "acme"}) + bury(app, "orders", [2], headers={"tenant": "other"})

    def found(**search: str) -> list[str]:
        text = client.get("/queues/orders/dead", params=search).text
        return [one for one in ids if f">{one}<" in text]

    assert found() == ids
    assert found(header="tenant=acme") == ids[:1]
    assert found(id=ids[1]) == ids[1:]
    assert found(reason="rejected", error="Dead", newer="15m") == ids
    assert found(reason="expired") == found(error="ValueError") == found(older="1h") == []


def test_dead_letters_come_in_pages_latest_first(app, client):
    ids = bury(app, "orders", list(range(60)))
    seen, path = [], "/queues/orders/dead"
    while path:
        text = client.get(path).text
        seen += re.findall(r'name="id" value="([^"]+)" aria-label="Choose', text)
        following = re.search(r'rel="next" href="([^"]+)"', text)
        path = unescape(following[1]) if following else ""
    assert sorted(seen) == sorted(ids)
    assert len(seen) == 60


def test_the_page_of_dead_letters_counts_them_by_reason(app, client):
    bury(app, "orders", [1, 2])
    app.queue("orders").send(3, ttl=0.001)
    aged(app.queue("orders"), 0.005)
    with app.queue("orders").consumer() as consumer:
        consumer.claim()
    text = text_of(client.get("/queues/orders/dead"))
    assert "All rejected 2 expired 1" in text


@pytest.mark.parametrize("identity", ["../../etc", "a/b?c#d", "%2e%2e", '"><svg/onload=alert(1)>', "&amp;"])
def test_an_id_may_hold_any_printable_character(app, client, identity):
    bury(app, "orders", [reliq.NewMessage("body", id=identity)])
    (link,) = re.findall(r'href="(/queues/orders/dead/letter[^"]+)"', client.get("/queues/orders/dead").text)
    answer = client.get(unescape(link))
    assert answer.status_code == 200
    assert f'value="{escape(identity)}"' in answer.text


# --- doing -----------------------------------------------------------------------------------------------------------


def test_a_queue_is_paused_and_resumed(app, client):
    app.queue("orders").send(1)
    answer = client.post("/queues/orders/pause")
    assert (answer.status_code, answer.headers["location"]) == (303, "/queues/orders?notice=paused")
    assert app.queue("orders").stats().paused
    client.post("/queues/orders/resume")
    assert not app.queue("orders").stats().paused


def test_a_purge_needs_the_name_typed(app, client):
    app.queue("orders").send_many([1, 2])
    assert client.post("/queues/orders/purge", data={"confirm": "order"}).status_code == 400
    assert app.queue("orders").stats().ready == 2
    answer = client.post("/queues/orders/purge", data={"confirm": "orders"})
    assert "Messages deleted: 2." in client.get(answer.headers["location"]).text
    assert app.queue("orders").stats().ready == 0


def test_dead_letters_are_deleted_as_searched(app, client):
    kept, gone = bury(app, "orders", [1, 2])
    client.post("/queues/orders/dead/purge", data={"confirm": "orders", "id": gone})
    assert [letter.id for letter in app.queue("orders").dead.list()] == [kept]


def test_all_dead_letters_are_deleted_without_a_search(app, client):
    bury(app, "orders", [1, 2])
    assert client.post("/queues/orders/dead/purge", data={"confirm": ""}).status_code == 400
    client.post("/queues/orders/dead/purge", data={"confirm": "orders"})
    assert app.queue("orders").stats().dead == 0


def test_a_dry_run_counts_and_moves_nothing(app, client):
    bury(app, "orders", [1, 2, 3])
    text = finished(client, client.post("/queues/orders/dead/redrive", data={"dry_run": "1"}))
    assert "Would move 3 of at most 3" in text
    assert "Redrive 3 letters" in text
    assert app.queue("orders").stats().dead == 3


def test_a_redrive_moves_what_was_searched(app, client):
    ids = bury(app, "orders", [1], headers={"tenant": "acme"}) + bury(app, "orders", [2, 3])
    text = finished(client, client.post("/queues/orders/dead/redrive", data={"header": "tenant=acme"}))
    assert "Moved back 1 of at most 3" in text
    stats = app.queue("orders").stats()
    assert (stats.ready, stats.dead) == (1, 2)
    finished(client, client.post("/queues/orders/dead/redrive", data={"id": ids[1:], "limit": "1"}))
    assert app.queue("orders").stats().ready == 2


def test_a_slow_redrive_shows_its_progress_and_can_be_stopped(app, client):
    bury(app, "orders", list(range(20)))
    answer = client.post("/queues/orders/dead/redrive", data={"rate": "0.01"})
    running = client.get(answer.headers["location"])
    assert 'data-live="500"' in running.text
    assert "is running" in client.get("/queues/orders").text
    client.post(answer.headers["location"] + "/stop")
    assert "stopped" in finished(client, answer)
    stats = app.queue("orders").stats()
    assert (stats.ready, stats.dead) in [(0, 20), (1, 19)]


def test_a_redrive_ends_when_they_die_again(app, client):
    bury(app, "orders", [1, 2])
    path = "/queues/orders/dead/redrive"
    for given in ({"stop_above": "20"}, {"stop_above": "101", "rate": "1"}, {"stop_above": "x", "rate": "1"}):
        assert client.post(path, data=given).status_code == 422
    text = finished(client, client.post(path, data={"stop_above": "20", "rate": "1000", "dry_run": "1"}))
    assert "Would move 2" in text
    page = client.get(client.post(path, data={"stop_above": "20", "rate": "1000", "dry_run": "1"}).headers["location"])
    assert page.status_code == 200
    finished(client, client.post(path, data={"stop_above": "20", "rate": "1000"}))
    assert app.queue("orders").stats().ready == 2


def test_only_a_few_redrives_run_at_once(app, client):
    bury(app, "orders", list(range(10)))
    started = [client.post("/queues/orders/dead/redrive", data={"rate": "0.01"}) for _ in range(5)]
    assert [answer.status_code for answer in started] == [303] * 4 + [429]


# --- refusing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_the_strict_policy_and_nothing_inline(app, client, path):
    bury(app, "orders", [1])
    answer = client.get(path)
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)|javascript:", answer.text)
    assert not re.search(r'(?:src|href|action)="(?:https?:)?//', answer.text)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
@pytest.mark.parametrize("path", ["pause", "purge", "dead/redrive", "dead/purge"])
def test_a_form_that_another_site_sends_changes_nothing(app, address, headers, path):
    bury(app, "orders", [1])
    app.queue("orders").send(2)
    answer = httpx.post(f"{address}/queues/orders/{path}", headers=headers, data={"confirm": "orders"})
    assert answer.status_code == 403
    stats = app.queue("orders").stats()
    assert (stats.ready, stats.dead, stats.paused) == (1, 1, False)


def test_a_page_whose_name_resolves_to_this_machine_reads_nothing(app, address):
    app.queue("orders").send(1)
    answer = httpx.get(address, headers={"Host": "rebound.example"})
    assert answer.status_code == 401
    assert "orders" not in answer.text


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_reading_an_action_does_not_do_it(app, client, method):
    app.queue("orders").send(1)
    assert client.request(method, "/queues/orders/pause").status_code in {404, 405}
    assert not app.queue("orders").stats().paused


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/queues/none", 404),
        ("/queues/" + quote("{x}:messages", safe=""), 400),
        ("/queues/orders/dead/letter", 400),
        ("/queues/orders/dead/letter?id=gone", 404),
        ("/queues/orders/dead/letter?id=%00", 404),
        ("/queues/orders/dead?after=nonsense", 422),
        ("/queues/orders/dead?reason=nonsense", 422),
        ("/queues/orders/dead?newer=nonsense", 422),
        ("/queues/orders/dead?header=nonsense", 422),
        ("/queues/orders/dead/redrive?header=nonsense", 422),
        ("/queues/orders/dead/redrives/none", 404),
        ("/assets/x/nothing.js", 404),
        ("/assets/x/..%2Fsampler.py", 404),
    ],
)
def test_what_makes_no_sense_is_answered_by_a_page(app, client, path, status):
    app.queue("orders").send(1)
    answer = client.get(path)
    assert answer.status_code == status
    if "%2F" not in path:
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert "Traceback" not in answer.text


@pytest.mark.parametrize("field", ["rate", "limit"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "0", "many", "1e99"])
def test_a_redrive_with_a_strange_number_is_refused(app, client, field, value):
    bury(app, "orders", [1])
    assert client.post("/queues/orders/dead/redrive", data={field: value}).status_code == 422
    assert app.queue("orders").stats().dead == 1


def test_a_form_without_end_is_refused(app, client):
    app.queue("orders").send(1)
    answer = client.post("/queues/orders/purge", content=b"confirm=" + b"x" * 1_000_000)
    assert answer.status_code == 413


def test_a_notice_says_only_what_the_dashboard_says(app, client):
    app.queue("orders").send(1)
    text = client.get("/queues/orders?notice=purged&count=<b>").text
    assert "Messages deleted: some." in text
    assert 'class="notice"' not in client.get("/queues/orders?notice=<b>pwned").text


def test_behind_a_proxy_that_cuts_a_prefix_off_every_address_has_it(app, url):
    bury(app, "orders", [1])

    async def fetched() -> list[httpx.Response]:
        service = create_app(Settings(url=url, no_auth=True))
        transport = httpx.ASGITransport(service, root_path="/reliq")
        async with (
            service.router.lifespan_context(service),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            paths = ("/", "/queues/orders", "/queues/orders/dead", "/queues/orders/purge")
            return [await client.get(path) for path in paths] + [await client.post("/queues/orders/pause")]

    *pages, posted = asyncio.run(fetched())
    for page in pages:
        addresses = re.findall(r'(?:href|src|action|formaction)="([^"]+)"', page.text)
        assert page.status_code == 200
        assert [one for one in addresses if not one.startswith(("/reliq/", "#", "?span="))] == []
    assert posted.headers["location"] == "/reliq/queues/orders?notice=paused"


def test_a_body_is_downloaded_as_a_file_and_never_as_a_page(app, client):
    (letter,) = bury(app, "orders", [b"<script>alert(1)</script>\xff"])
    answer = client.get("/queues/orders/dead/body", params={"id": letter})
    assert answer.content == b"<script>alert(1)</script>\xff"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["content-disposition"].startswith("attachment;")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"] == POLICY


def test_redis_away_is_said_on_a_page():
    with EmbeddedRedis() as server, serving(server.url) as client:
        assert client.post("/v1/queues/orders/messages", json={"body": 1}).status_code == 201
        server.kill()
        answer = client.get("/queues/orders")
        server.start()
    assert answer.status_code in {503, 504}  # the connection was refused, or it broke under the request
    assert "Redis" in text_of(answer)


def test_dead_letters_are_grouped_by_class_and_first_line_of_their_error(app, client):
    bury(app, "orders", ["first", "second"], "no such order\nin the warehouse")
    (other,) = bury(app, "orders", ["third"], "card declined")
    answer = client.get("/queues/orders/dead")
    assert "By error Letters Error 2 Dead no such order 1 Dead card declined" in text_of(answer)
    assert ">first<" in answer.text  # the start of a body
    (link,) = re.findall(r'href="([^"]+)"><b title="Dead">Dead</b> <span class="text">card declined', answer.text)
    text = text_of(client.get(unescape(link)))
    assert other in text and "third" in text and "second" not in text
    assert app.queue("orders").dead.purge(error_text="no such order") == 2
    assert [one.id for one in app.queue("orders").dead.list(error_text="declined")] == [other]
