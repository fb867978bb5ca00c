"""The exporter: every name of the design, bounded labels, and an answer whatever state Redis is in."""

import re
import time
import urllib.request
from types import SimpleNamespace

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

import reliq
from reliq.observability.histograms import Measurements
from reliq.observability.prometheus import MOST_QUEUES, Exporter
from reliq.runtime.families import gauge
from reliq.transport.store import Store
from tests.support.turns import Monitor
from tests.support.workers import eventually

DESIGN = (
    "messages_enqueued", "messages_deduplicated", "messages_rejected", "messages_claimed", "messages_acked",
    "messages_retried", "messages_reclaimed", "messages_dead_lettered", "messages_redriven", "lease_lost",
    "reclaim_conflicts", "queue_messages", "queue_oldest_ready_age_seconds", "audit_mismatch_messages",
    "monitor_last_scan_timestamp_seconds", "message_wait_seconds", "message_process_seconds", "recovery_seconds",
    "http_request_seconds",
)  # fmt: skip


def scraped(exporter):
    body, content_type = exporter.render()
    assert content_type.startswith("text/plain")
    return {family.name: family for family in text_string_to_metric_families(body.decode())}


def values(family):
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


@pytest.fixture
def everything(app, url):
    """Of a process that has everything: a monitor, runs, requests."""
    app.queue("orders").send("x")
    measurements, monitor = Measurements(), Monitor(Store(url))
    measurements.recovered("orders", 1.0, 1)
    measurements.answered("GET", "/v1/queues", 200, 0.01)
    with app.queue("orders").consumer() as consumer:
        message = consumer.claim()[0]
        run = SimpleNamespace(message=message, started=time.monotonic())
        measurements.ran("orders", [(run, run.started + 0.01)], time.time() - time.monotonic())
        consumer.ack(message)
    monitor.scan()
    monitor._whole._leading = True  # as its loop notes
    return scraped(Exporter(Store(url), [measurements], slots={"orders": 1}, monitor=monitor.state))


@pytest.mark.parametrize("name", DESIGN)
def test_every_name_of_the_design_is_there(everything, name):
    assert everything[f"reliq_{name}"].samples


def test_names_and_labels_keep_the_conventions(everything):
    allowed = {"queue", "state", "priority", "reason", "duty", "le", "method", "route", "status", "version"}
    for name, family in everything.items():
        assert re.fullmatch(r"reliq_[a-z_]+[a-z]", name)
        assert family.documentation
        for sample in family.samples:
            assert sample.name.endswith("_total") == (family.type == "counter")
            assert set(sample.labels) <= allowed
    assert not any(re.search("_(ms|millis|minutes|kb|percent)", name) for name in everything)


def test_what_waits_is_told_by_priority_and_behind_keys(app, url):
    queue = app.queue("lanes")
    for options in ({}, {"priority": "high"}, {"priority": "low"}, {"priority": "low"}, {"key": "a"}, {"key": "a"}):
        queue.send("x", **options)
    app.queue("round").cycle.add("one", "two", "three")
    families = scraped(Exporter(Store(url)))
    ready = families["reliq_queue_ready_messages"].samples
    by_priority = {one.labels["priority"]: one.value for one in ready if one.labels["queue"] == "lanes"}
    assert by_priority == {"high": 1, "normal": 2, "low": 2}
    assert values(families["reliq_queue_waiting_messages"]) == {("lanes",): 1, ("round",): 0}
    assert values(families["reliq_messages_ordered"])["lanes",] == 1
    assert values(families["reliq_queue_messages"])["lanes", "ready"] == 6
    assert values(families["reliq_queue_cycle_members"]) == {("lanes",): 0, ("round",): 3}


@pytest.mark.parametrize("priority", ["high", "normal", "low"])
def test_a_message_of_any_priority_has_its_age(app, url, priority):
    app.queue("orders").send("x", priority=priority)
    eventually(lambda: values(scraped(Exporter(Store(url)))["reliq_queue_oldest_ready_age_seconds"])["orders",] > 0)
    eventually(lambda: app.queue("orders").stats().oldest_ready_age > 0)


def test_flows_are_counted_by_state(app, url):
    exporter = Exporter(Store(url))
    none = {("sending",): 0, ("open",): 0, ("cancelled",): 0, ("abandoned",): 0}
    assert values(scraped(exporter)["reliq_flows"]) == none
    for _ in range(3):
        with app.flow() as flow:
            flow.send("orders", "x")
    with app.queue("orders").consumer() as consumer:
        (one,) = consumer.claim(1)
        app.cancel_flow(one.headers["flow"])
        assert values(scraped(exporter)["reliq_flows"]) == none | {("open",): 2, ("cancelled",): 1}


def test_what_no_queue_is_bound_for_is_counted(app, url):
    exporter = Exporter(Store(url))
    assert values(scraped(exporter)["reliq_messages_unroutable"]) == {(): 0}
    app.publish("order.created", "x")
    app.subscribe("orders", "order.#")
    app.publish("order.created", "x")
    assert values(scraped(exporter)["reliq_messages_unroutable"]) == {(): 1}


def test_counters_begin_at_zero_so_that_the_first_one_is_an_increase(app, url):
    app.queue("orders").send("x")
    families = scraped(Exporter(Store(url)))
    assert values(families["reliq_messages_acked"]) == {("orders",): 0}
    assert values(families["reliq_messages_dead_lettered"])["orders", "max_failures"] == 0


def test_a_worker_exports_its_own_queues_only(app, url):
    for queue in ("orders", "mails"):
        app.queue(queue).send("x")
    families = scraped(Exporter(Store(url), slots={"orders": 4}))
    assert values(families["reliq_messages_enqueued"]) == {("orders",): 1}
    assert values(families["reliq_desired_workers"]) == {("orders",): 1}


def test_without_redis_it_says_so_and_what_the_process_knows_itself(url):
    measurements = Measurements()
    measurements.recovered("orders", 1.0, 1)
    families = scraped(Exporter(Store("redis://127.0.0.1:1/0"), [measurements]))
    assert values(families["reliq_redis_up"]) == {(): 0}
    assert families["reliq_recovery_seconds"].samples
    assert "reliq_queue_messages" not in families


class Asked(Collector):
    """Counts how often it was asked."""

    times = 0

    def collect(self):
        self.times += 1
        return iter([gauge("reliq_worker_info")])


@pytest.mark.parametrize("away", [True, False])
def test_a_redis_that_is_away_is_asked_once_in_a_scrape(url, away):
    asked = Asked()
    families = scraped(Exporter(Store("redis://127.0.0.1:1/0" if away else url), more=[asked]))
    assert (asked.times, "reliq_worker_info" in families) == ((0, False) if away else (1, True))


def test_a_monitor_that_has_not_scanned_yet_claims_no_scan(url):
    families = scraped(Exporter(Store(url), monitor=Monitor(Store(url)).state))
    assert values(families["reliq_monitor_leading"]) == {(): 0}
    assert "reliq_monitor_last_scan_timestamp_seconds" not in families


def test_redis_is_told_with_what_endangers_messages(app, url, redis_server):

    with redis.Redis(port=redis_server.port) as client:
        exporter = Exporter(Store(url, allow_eviction=True))
        client.config_set("maxmemory-policy", "allkeys-lru")
        try:
            unsafe = scraped(exporter)
        finally:
            client.config_set("maxmemory-policy", "noeviction")
    assert values(unsafe["reliq_redis_eviction_safe"]) == {(): 0}
    assert values(scraped(exporter)["reliq_redis_eviction_safe"]) == {(): 1}
    assert values(unsafe["reliq_redis_append_only"]) == values(unsafe["reliq_redis_writes_to_disk"]) == {(): 1}


def test_a_scrape_asks_each_of_a_thousand_queues_the_same_and_no_more_of_them(app, url):
    """Its time: `python -m bench.metrics`."""
    exporter = Exporter(Store(url))

    def commands_of_a_scrape():
        with redis.Redis.from_url(url) as client:
            before = client.info("stats")["total_commands_processed"]
            exporter.render()
            return client.info("stats")["total_commands_processed"] - before

    sent: dict[int, int] = {}
    for count in (10, 110, MOST_QUEUES, MOST_QUEUES + 1):
        for number in range(max(sent, default=0), count):
            app.queue(f"q{number:04}").send("x")
        sent[count] = commands_of_a_scrape()
    of_a_queue = (sent[110] - sent[10]) / 100
    assert sent[MOST_QUEUES] - sent[110] == pytest.approx(of_a_queue * (MOST_QUEUES - 110), rel=0.05)
    assert sent[MOST_QUEUES + 1] == pytest.approx(sent[MOST_QUEUES], rel=0.01)
    body, _ = exporter.render()
    assert body.count(b"\nreliq_messages_enqueued_total{") == MOST_QUEUES
    assert b"\nreliq_queues 1001.0\n" in body


def test_metrics_are_served_in_the_format_that_is_asked_for(url):
    with Exporter(Store(url)).serve(0, "127.0.0.1") as server:
        address = f"http://127.0.0.1:{server.port}/metrics"
        with urllib.request.urlopen(address, timeout=5) as plain:
            assert b"reliq_redis_up 1.0" in plain.read()
        asking = urllib.request.Request(address, headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        with urllib.request.urlopen(asking, timeout=5) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text")
            assert answer.read().endswith(b"# EOF\n")


def test_a_version_is_told(url):
    assert values(scraped(Exporter(Store(url)))["reliq_build_info"]) == {(reliq.__version__,): 1}


@pytest.mark.parametrize("host", ["127.0.0.1", "no such host"])
def test_an_address_that_cannot_be_served_is_refused_with_a_sentence(url, host):
    exporter = Exporter(Store(url))
    with (
        exporter.serve(0, "127.0.0.1") as server,
        pytest.raises(reliq.InvalidSetting, match="metrics cannot be served"),
    ):
        exporter.serve(server.port, host)
