"""A real Prometheus evaluates all alerts while a part of a cluster is away: they say what is not seen, and of whom.

Of what is seen an alert says what it said before; the queues of which it can say nothing have one that says so.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import reliq
from reliq import ops
from reliq.model.keys import QUEUES, QueueKeys
from tests.integration.api.serving import serving
from tests.integration.monitor.conftest import program
from tests.integration.monitor.test_prometheus import EXPRESSIONS, RULES_BY_NAME, Prometheus, configuration, running
from tests.integration.partitions.test_surfaces import PLAIN, dead, half_moved
from tests.integration.ui.dying import bury
from tests.support.cluster import Cluster
from tests.support.ports import free_port
from tests.support.workers import eventually

ALERTS = [name for name, rule in RULES_BY_NAME.items() if "alert" in rule]
NODE, QUEUE = "ReliqRedisNodeAway", "ReliqQueueUnreadable"
#: Of time or of HTTP: they say other things as time goes by.
OF_TIME = {"ReliqMessagesDying", "ReliqHttpErrors", "ReliqRecoverySlow"}

Firing = dict[str, set[str]]  #: by alert: of which queues or nodes it is true; "" where it names none


@pytest.fixture(scope="module")
def queues(cluster: Cluster) -> Iterator[dict[str, set[str]]]:
    """By queue: its partitions. Each has trouble, so that alerts about it fire: messages without a worker, a pause."""
    with reliq.Reliq(cluster.url) as app:
        orders = app.queue("orders")
        orders.configure(partitions=6)
        bury(app, "orders", ["bad"] * 6)
        for name in ("orders", *PLAIN):
            app.queue(name).send_many(["body"] * 60)
            app.queue(name).pause()
        yield {
            "orders": set(app.store.call(ops.layout(QueueKeys("orders"))).every("orders")),
            **{one: {one} for one in PLAIN},
        }


@pytest.fixture(scope="module")
def prometheus(cluster: Cluster, queues: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It scrapes the HTTP service, which has the metrics of all queues."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    with serving(cluster.url) as service, running(_prometheus(folder, urlsplit(str(service.base_url)).port or 0, port)):
        found = Prometheus(port)

        def is_up() -> bool:
            with contextlib.suppress(OSError):
                return found.number("sum(up)") == 1
            return False

        eventually(is_up, what="Prometheus scrapes the service")
        yield found


def _prometheus(folder: Path, scraped: int, port: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([
        program("prometheus"), f"--config.file={configuration(folder, {'api': scraped})}", "--log.level=error",
        f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}",
    ])  # fmt: skip


def firing(prometheus: Prometheus) -> Firing:
    """Return which alerts are true now; those that wait for their `for` too."""
    found = {name: prometheus.ask(EXPRESSIONS[name]) for name in ALERTS if name not in OF_TIME}
    return {name: {one.get("queue", one.get("node", "")) for one, _ in true} for name, true in found.items() if true}


@pytest.mark.long
@pytest.mark.parametrize(("fault", "keys"), [(dead, ("orders", QUEUES, "plain0")), (half_moved, ("orders", "plain0"))])
def test_alerts_say_what_is_away_and_of_the_rest_what_they_said_before(cluster, queues, prometheus, fault, keys):
    before = eventually(lambda: "orders" in (now := firing(prometheus)).get("ReliqQueuePaused", set()) and now)
    assert {NODE, QUEUE}.isdisjoint(before)
    for key in keys:
        server = cluster.master_of(key)
        if fault is dead:
            unseen = {name for name, parts in queues.items() for one in parts if cluster.master_of(one) is server}
        else:
            unseen = {name for name, parts in queues.items() if key in parts}
        expected: Firing = {name: left for name, of in before.items() if (left := of - unseen)}
        expected[QUEUE] = unseen
        with fault(cluster, key) as missing:
            if fault is dead:
                expected[NODE] = set(missing)
            eventually(lambda: firing(prometheus) == expected, what=f"{key}: {expected} for {firing(prometheus)}")  # noqa: B023
        eventually(lambda: firing(prometheus) == before, what=f"after {key}: {before}")
