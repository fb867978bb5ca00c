"""Metrics have a queue with partitions once, and each partition only on demand."""

import re
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import reliq
from reliq.observability.partition_metrics import PartitionCollector
from reliq.observability.prometheus import Exporter
from tests.support.ports import free_port
from tests.support.workers import eventually, process

NAMES = ["orders", *(f"orders@partition.{number}" for number in range(1, 4))]


@pytest.fixture
def orders(orders: reliq.Queue) -> reliq.Queue:
    orders.send_many(["x"] * 400)
    return orders


def of_partitions(app: reliq.Reliq) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PartitionCollector(app.store))
    return generate_latest(registry).decode()


def ready(text: str) -> dict[str, str]:
    pattern = r'reliq_partition_messages{partition="([^"]+)",queue="orders",state="ready"} (\S+)'
    return dict(re.findall(pattern, text))


def test_the_label_queue_has_the_queue_once_with_the_sum(app, orders):
    text = Exporter(app.store).render()[0].decode()
    assert 'reliq_queue_messages{queue="orders",state="ready"} 400.0' in text
    assert "reliq_queues 1.0" in text
    assert "partition" not in text


def test_each_partition_has_its_numbers_on_demand(app, orders):
    app.queue("plain").send("x")
    text = of_partitions(app)
    assert ready(text) == dict.fromkeys(NAMES, "100.0")
    assert "plain" not in text


def test_a_queue_that_cannot_be_read_hides_no_other(app, orders, client):
    client.sadd("reliq:queues", "broken")
    client.set("reliq:{broken}:config", "of another application")
    assert ready(of_partitions(app)) == dict.fromkeys(NAMES, "100.0")


def test_the_monitor_exports_them_if_it_is_told_to(app, orders):
    port = free_port()
    with process("monitor", "--url", app.url, "--metrics-port", str(port), "--metrics-partitions", "--quiet"):

        def scraped() -> str:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                    return answer.read().decode()
            except OSError:
                return ""

        text = eventually(scraped)
    assert ready(text) == dict.fromkeys(NAMES, "100.0")
    assert 'reliq_queue_messages{queue="orders",state="ready"} 400.0' in text
    assert "# TYPE reliq_worker_info gauge" in text
