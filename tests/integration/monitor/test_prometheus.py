"""A real Prometheus scrapes a real run with killed workers, retries and dead letters; what it says is what happened."""

import contextlib
import json
import re
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.protocol.stats import read_queues
from reliq.transport.store import Store
from tests.integration.monitor.conftest import ROOT, program
from tests.support.ports import free_port
from tests.support.workers import eventually, started

RULES = yaml.safe_load((ROOT / "monitor" / "prometheus" / "rules.yml").read_text())
PANELS = {
    f"{path.stem}/{panel['title']}/{target['legendFormat']}": target["expr"]
    for path in sorted((ROOT / "monitor" / "grafana" / "dashboards").glob("*.json"))
    for panel in json.loads(path.read_text())["panels"]
    for target in panel.get("targets", ())
}
RULES_BY_NAME = {rule.get("alert", rule.get("record")): rule for group in RULES["groups"] for rule in group["rules"]}
EXPRESSIONS = PANELS | {name: rule["expr"] for name, rule in RULES_BY_NAME.items()}
SENT = {
    "orders": 301,
    "fragile": 24,
    "slow": 1,
    "small": 2,
    "paused": 1,
    "nobody": 1,
    "later": 3,
    "lanes": 5,
    "round": 4,
}
FIRING = {"ReliqMessagesDying", "ReliqLeaseLost", "ReliqMessagesUnroutable"}
PENDING = {
    "ReliqNoWorkers",
    "ReliqQueuePaused",
    "ReliqSendsRejected",
    "ReliqQueueNearlyFull",
    "ReliqCrashLoop",
    "ReliqHttpErrors",
}

TARGETS = 3  #: that Prometheus scrapes

#: There only while a part of Redis is away: partitions/test_alerts_away.py.
ONLY_AWAY = {"reliq_queue_unreadable", "reliq_redis_node_away"}

#: These are about time, and on a machine that is busy with other things they may be right.
OF_PACE = {"ReliqMonitorStale", "ReliqDelayedOverdue", "ReliqRecoverySlow", "ReliqRedisDown"}


class Prometheus:
    """A server, asked over HTTP."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}/api/v1/query?"
        self.at: float | None = None  #: the time of which it is asked; None: now

    def ask(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """The samples an expression answers: labels and value."""
        for name, value in {"$queue": ".*", "$__rate_interval": "5m"}.items():
            expr = expr.replace(name, value)
        query = {"query": expr, **({"time": self.at} if self.at else {})}
        with urllib.request.urlopen(self._address + urllib.parse.urlencode(query), timeout=10) as answer:
            data = json.load(answer)["data"]
        return [(sample["metric"], float(sample["value"][1])) for sample in data["result"]]

    def number(self, expr: str) -> float | None:
        answer = self.ask(expr)
        return answer[0][1] if len(answer) == 1 else None


@dataclass
class Run:
    """A run that is over, and the Prometheus that has seen it."""

    prometheus: Prometheus
    store: Store
    history: Counter[tuple[str, str]]
    seconds: float  #: in the handlers of orders
    sent_at: float  #: of the message of `nobody`

    def counters(self, queue: str) -> dict[str, int]:
        (reading,) = self.store.run(read_queues([queue]))
        return reading.counters


@contextlib.contextmanager
def running(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def configuration(folder: Path, targets: dict[str, int]) -> Path:
    path = folder / "prometheus.yml"
    jobs = [
        {"job_name": f"reliq-{name}", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        for name, port in targets.items()
    ]
    everything = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "500ms"},
        "rule_files": [str(ROOT / "monitor" / "prometheus" / "rules.yml")],
        "scrape_configs": jobs,
    }
    path.write_text(yaml.safe_dump(everything))
    return path


@contextlib.contextmanager
def services(folder: Path, server: EmbeddedRedis) -> Iterator[tuple[Prometheus, str]]:
    """Two worker processes, a monitor, the API, and Prometheus."""
    targets = {name: free_port() for name in ("worker", "monitor", "api")}
    assert len(targets) == TARGETS
    port = free_port()
    local = ("--metrics-host", "127.0.0.1", "--quiet")
    environment: dict[str, Any] = {"RELIQ_URL": server.url, "SHOP_HISTORY": str(folder / "history")}

    def service(*command: str) -> contextlib.AbstractContextManager[None]:
        return running(started(*command, folder=Path(__file__).parent, **environment))

    with (
        service(
            "worker", "shop:app", "--processes", "2", "--no-monitor", *local, "--metrics-port", str(targets["worker"])
        ),
        service("monitor", *local, "--metrics-port", str(targets["monitor"])),
        service("api", "--no-auth", "--port", str(targets["api"]), "--quiet"),
        running(subprocess.Popen([
            program("prometheus"), f"--config.file={configuration(folder, targets)}", "--log.level=error",
            f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
        ])),
    ):  # fmt: skip
        prometheus = Prometheus(port)

        def all_up() -> bool:
            with contextlib.suppress(OSError):
                return prometheus.number("sum(up)") == TARGETS
            return False

        eventually(all_up, what="Prometheus scrapes all")
        yield prometheus, f"http://127.0.0.1:{targets['api']}"


def begin(app: reliq.Reliq, prometheus: Prometheus) -> None:
    """Let Prometheus see every queue before its counters move: a counter's first value is no increase."""
    app.queue("small").configure(max_length=1)
    app.queue("paused").pause()
    for queue in SENT:
        app.queue(queue).send("good", delay=3600 if queue == "later" else 0)
    app.publish("nobody.cares", "x")
    seen = f'count(count by (queue) (reliq_messages_enqueued_total{{job="reliq-monitor"}})) == {len(SENT)}'
    eventually(lambda: prometheus.ask(seen), what="every queue is scraped")


def lose_a_lease(app: reliq.Reliq) -> None:
    """A consumer that renews nothing, as one that hangs."""
    slow = app.queue("slow")
    consumer = slow.consumer(lease=1)
    assert consumer.claim()
    eventually(lambda: slow.stats().ready == 1, what="the monitor takes it back")
    assert consumer.claim() == []  # finds its lease gone
    with consumer:
        consumer.ack(*eventually(consumer.claim, what="its next life"))


def kill_workers(app: reliq.Reliq) -> None:
    fragile = app.queue("fragile")
    fragile.configure(max_deliveries=2)
    fragile.send("poison")
    fragile.send_many(["killer"] + ["good"] * 21)
    eventually(lambda: gone(fragile) == SENT["fragile"] - 1 and fragile.stats().dead == 1, what="fragile is worked off")


def fail_over_http(server: EmbeddedRedis, prometheus: Prometheus, api: str) -> None:
    """Sends that a full Redis refuses: one to be seen by Prometheus, and one more to be an increase."""
    failures = 'sum(reliq_http_request_seconds_count{status=~"5.."})'
    send_to_a_full_server(server, api)
    eventually(lambda: prometheus.number(failures) == 1, what="the first failure is scraped")
    send_to_a_full_server(server, api)
    eventually(lambda: prometheus.number(failures) == 2, what="the second failure is scraped")


def send_to_a_full_server(server: EmbeddedRedis, api: str) -> None:
    with redis.Redis(port=server.port) as client:
        client.config_set("maxmemory", "1")
        sending = urllib.request.Request(
            f"{api}/v1/queues/orders/messages", b'{"body": 1}', {"Content-Type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError, match=r"507|503"):
            urllib.request.urlopen(sending, timeout=10)
        client.config_set("maxmemory", "1gb")


def use_every_lane(app: reliq.Reliq, prometheus: Prometheus) -> None:
    lanes = app.queue("lanes")
    for priority in ("high", "low"):
        lanes.send("good", priority=priority)
    for _ in range(2):
        lanes.send("good", key="a")
    app.queue("round").cycle.add("one", "two", "three")
    eventually(lambda: prometheus.number("max(reliq_messages_unroutable_total)") == 1, what="the first is scraped")
    app.publish("nobody.cares", "x")


def send_a_tick(app: reliq.Reliq) -> None:
    app.schedules.add("tick", "1s", "ticks")
    eventually(lambda: app.schedules.get("tick").fired, what="a tick is sent")
    app.schedules.remove("tick")


def gone(queue: reliq.Queue) -> int:
    return queue.stats().counters.get("acked", 0)


def work(app: reliq.Reliq) -> None:
    orders, later, small = app.queue("orders"), app.queue("later"), app.queue("small")
    orders.send_many(["good"] * 295 + ["bad"] * 5)
    eventually(lambda: orders.stats().dead == 5 and gone(orders) == SENT["orders"] - 5, what="orders are worked off")
    orders.dead.redrive(limit=1)
    eventually(lambda: orders.stats().dead == 5, what="it dies again")
    orders.dead.purge(ids=[orders.dead.list(limit=1)[0].id])
    small.purge()
    for _ in range(2):
        small.send("good", dedup_key="k")
    for _ in range(3):
        with pytest.raises(reliq.QueueFull):
            small.send("one too many")
    later.send("good", delay=0.1)
    later.cancel(later.send("good", delay=3600))
    eventually(lambda: later.stats().ready == 1, what="promoted")


def settled(prometheus: Prometheus, ended: float) -> bool:
    """Whether every target was scraped after the end, and the rules were evaluated after that.

    All is asked of this moment from then on: a later scrape may fail on a busy machine.
    """
    prometheus.at = time.time()
    if prometheus.number("sum(up)") != TARGETS:
        return False
    scraped_at = prometheus.number("min(timestamp(reliq_redis_up))") or 0
    alerts = prometheus.ask("ALERTS")
    evaluated_at = min((value for _, value in prometheus.ask("timestamp(ALERTS)")), default=0)
    return ended < scraped_at < evaluated_at and {labels["alertname"] for labels, _ in alerts} >= FIRING | PENDING


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("prometheus")
    with EmbeddedRedis(settings=("--maxmemory", "1gb")) as server, services(folder, server) as (prometheus, api):
        app = reliq.Reliq(server.url)
        sent_at = time.time()
        begin(app, prometheus)
        lose_a_lease(app)
        kill_workers(app)
        work(app)
        use_every_lane(app, prometheus)
        send_a_tick(app)
        fail_over_http(server, prometheus, api)
        ended = time.time()
        eventually(lambda: settled(prometheus, ended), what="Prometheus has seen the end")
        lines = [line.split() for line in (folder / "history").read_text().splitlines()]
        history = Counter((queue, what) for queue, what, _ in lines)
        yield Run(
            prometheus, app.store, history, sum(float(taken) for queue, _, taken in lines if queue == "orders"), sent_at
        )
        app.close()


@pytest.mark.parametrize("queue", SENT)
def test_counters_are_those_of_the_queue(run, queue):
    counters = run.counters(queue)
    assert counters["enqueued"] == SENT[queue]
    for name in (
        "enqueued",
        "deduplicated",
        "rejected",
        "claimed",
        "acked",
        "retried",
        "reclaimed",
        "promoted",
        "redriven",
    ):
        said = run.prometheus.ask(f'reliq_messages_{name}_total{{queue="{queue}",job!="reliq-worker"}}')
        assert [value for _, value in said] == [counters.get(name, 0)] * 2, name


def test_deaths_are_told_by_their_reason(run):
    def said(queue):
        answer = run.prometheus.ask(f'max by (reason) (reliq_messages_dead_lettered_total{{queue="{queue}"}}) > 0')
        return {labels["reason"]: value for labels, value in answer}

    assert said("orders") == {"max_failures": 6}
    assert said("fragile") == {"max_deliveries": 1}


def test_runs_are_counted_exactly_and_timed_well_over_processes(run):
    """Five bad orders fail three times each, and one of them once more three times, redriven."""
    assert run.history["orders", "bad"] == 18
    completed = run.history["orders", "good"] + run.history["orders", "bad"]
    assert completed == 296 + 18
    assert run.prometheus.number('sum(reliq_message_process_seconds_count{queue="orders"})') == completed
    assert run.prometheus.number('sum(reliq_message_wait_seconds_count{queue="orders"})') == completed
    measured = run.prometheus.number('sum(reliq_message_process_seconds_sum{queue="orders"})')
    assert run.seconds <= measured < run.seconds * 2


def test_every_message_that_came_back_was_timed(run):
    for queue in ("fragile", "slow"):
        counters = run.counters(queue)
        back = counters["reclaimed"] + counters.get("dead:max_deliveries", 0)
        assert back >= 1
        assert run.prometheus.number(f'sum(reliq_recovery_seconds_count{{queue="{queue}"}})') == back
    assert (
        run.prometheus.number('histogram_quantile(1, sum by (le) (reliq_recovery_seconds_bucket{queue="fragile"}))')
        <= 2
    )


def test_gauges_say_what_is_there(run):
    def said(queue):
        states = run.prometheus.ask(f'max by (state) (reliq_queue_messages{{queue="{queue}"}})')
        return {labels["state"]: value for labels, value in states if value}

    expected = {
        "orders": {"dead": 4},
        "fragile": {"dead": 1},
        "slow": {},
        "paused": {"ready": 1},
        "nobody": {"ready": 1},
        "lanes": {"ready": 5},
        "round": {"ready": 4},
    }
    assert {queue: said(queue) for queue in expected} == expected
    assert said("later") == {"ready": 1, "delayed": 1}


def test_order_priority_cycle_and_topics_are_told(run):
    lanes = run.prometheus.ask('max by (priority) (reliq_queue_ready_messages{queue="lanes"})')
    assert {labels["priority"]: value for labels, value in lanes} == {"high": 1, "normal": 2, "low": 1}
    assert run.prometheus.number('max(reliq_queue_waiting_messages{queue="lanes"})') == 1
    assert run.prometheus.number('max(reliq_queue_cycle_members{queue="round"})') == 3
    assert run.prometheus.number("max(reliq_messages_unroutable_total)") == 2


def test_an_age_is_right_within_a_scrape(run):
    selector = 'reliq_queue_oldest_ready_age_seconds{queue="nobody",job="reliq-monitor"}'
    age, scraped_at = run.prometheus.number(selector), run.prometheus.number(f"timestamp({selector})")
    assert age == pytest.approx(scraped_at - run.sent_at, abs=2.0)  # a scrape lasts a second at most


def test_the_books_balance(run):
    said = run.prometheus.ask("reliq_audit_mismatch_messages")
    assert {labels["queue"] for labels, _ in said} == {*SENT, "ticks"}
    assert {value for _, value in said} == {0}


def test_the_alerts_that_should_fire_do_and_no_others(run):
    said = run.prometheus.ask("ALERTS")
    by_state = {
        state: {labels["alertname"] for labels, _ in said if labels["alertstate"] == state}
        for state in ("firing", "pending")
    }
    assert {state: names - OF_PACE for state, names in by_state.items()} == {"firing": FIRING, "pending": PENDING}


def test_every_metric_of_an_expression_exists(run):
    users: dict[str, list[str]] = {}
    for name, expression in EXPRESSIONS.items():
        for selector in re.findall(r"\breliq_\w+(?:\{[^}]*\})?", expression) or ["ALERTS"]:
            users.setdefault(selector, []).append(name)
    assert {one: names for one, names in users.items() if one not in ONLY_AWAY and not run.prometheus.ask(one)} == {}


def test_every_panel_shows_data(run):
    empty = [name for name, expression in PANELS.items() if not run.prometheus.ask(expression)]
    assert [name for name in empty if "Time until empty" not in name] == []


def test_every_recording_rule_records(run):
    for name in (rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule):
        assert run.prometheus.ask(name), name
