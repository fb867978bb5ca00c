"""Durable handlers of a queue with partitions, on one server and on a real cluster: steps, sleeps, signals, output."""

import re
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

import reliq
from reliq import ops
from reliq.model.keys import QueueKeys
from reliq_monitor import MonitorThread
from tests.support.cluster import Cluster
from tests.support.workers import eventually, working

COUNT = 24


@pytest.fixture(params=["alone", "cluster"])
def app(request, url) -> Iterator[reliq.Reliq]:
    if request.param == "alone":
        with reliq.Reliq(url, send_timeout=5) as app:
            yield app
        return
    with Cluster(replicas=False) as cluster, reliq.Reliq(cluster.url, send_timeout=5) as app:
        yield app


@pytest.fixture
def monitor(app) -> Iterator[None]:
    with reliq.Reliq(app.url) as other:
        thread = MonitorThread(other.store, reconnect_grace=0)
        thread.start()
        yield
        thread.stop()


class Handled:
    """What the handlers of `orders` have done."""

    def __init__(self, app: reliq.Reliq) -> None:
        self.steps: Counter[tuple[str, str]] = Counter()
        self.answers: dict[str, list[object]] = {}
        self._lock = threading.Lock()

        @app.handler("orders")
        def handle(message: reliq.Message) -> None:
            message.step("first", self._note, message.id, "first")
            message.step("emit", message.emit, "begun")
            message.sleep("short", seconds=0.01)
            answers = [message.wait("early"), message.wait("late"), message.wait("never", timeout=0.05, default="over")]
            message.step("last", self._note, message.id, "last")
            message.step("emit again", message.emit, "ended")
            with self._lock:
                self.answers[message.id] = answers

    def _note(self, identity: str, name: str) -> None:
        with self._lock:
            self.steps[identity, name] += 1


def sent(queue: reliq.Queue) -> list[str]:
    """Messages with keys and without."""
    return queue.send_many(
        [reliq.NewMessage(number, key=f"k{number}" if number % 2 else None) for number in range(COUNT)]
    )


def nothing_is_left(app: reliq.Reliq) -> None:
    for name in app.store.call(ops.layout(QueueKeys("orders"))).every("orders"):
        keys = QueueKeys(name)
        assert app.store.call(ops.Op(("EXISTS", keys.parked))) == 0
        waits = app.store.call(ops.Op(("ZRANGE", keys.waits, 0, -1)))
        assert [one for one in waits if not one.startswith(b"\n")] == [], "a partition keeps early signals for a day"
        left = app.store.call(ops.Op(("HKEYS", keys.followed)))
        assert [one for one in left if re.fullmatch(rb"\n[^\n]+\n\d+", one)] == [], "entries of records"


@pytest.mark.parametrize("partitions", [(4, 4), (1, 6), (6, 2)], ids=["same", "more", "fewer"])
def test_all_that_a_handler_has_noted_goes_with_its_message(app, monitor, partitions):
    """Half of the signals come before the messages wait, the number of partitions changes while they are parked."""
    before, after = partitions
    queue, handled = app.queue("orders"), Handled(app)
    queue.configure(partitions=before)
    ids = sent(queue)
    for one in ids:
        assert queue.signal(one, "early", "first")
        assert not queue.signal(one, "early", "second")
    with working(app):
        eventually(lambda: queue.stats().parked == COUNT, 60)
        assert {one.id for one in queue.parked(100)} == set(ids)
        if before != after:
            queue.configure(partitions=after)
        assert all(app.signal(one, "late", number) for number, one in enumerate(ids))
        eventually(lambda: queue.stats().counters.get("acked") == COUNT, 60)
        eventually(lambda: not queue.partitions().moving, 60)
    assert handled.answers == {one: ["first", number, "over"] for number, one in enumerate(ids)}
    assert set(handled.steps.values()) == {1}
    assert len(handled.steps) == 2 * COUNT
    for one in ids:
        assert [chunk.value for chunk in queue.output(one, follow=False)] == ["begun", "ended"]
        with pytest.raises(reliq.SignalRefused, match="left the queue"):
            queue.signal(one, "late", "too late")
    stats = queue.stats()
    assert (stats.parked, stats.missing, stats.counters["timed_out"]) == (0, 0, COUNT)
    nothing_is_left(app)


def test_parked_messages_of_all_partitions_are_found_cancelled_and_purged(app):
    @app.handler("orders")
    def handle(message: reliq.Message) -> None:
        message.wait("approval", timeout="2d")

    queue = app.queue("orders")
    queue.configure(partitions=4)
    ids = sent(queue)
    with working(app):
        eventually(lambda: queue.stats().parked == COUNT, 60)
    found = queue.find(ids[0])
    assert found is not None
    assert found.place == "parked"
    assert all(queue.cancel(one) for one in ids[:10])
    assert queue.stats().parked == COUNT - 10
    queue.purge()
    stats = queue.stats()
    assert (stats.parked, stats.counters["cancelled"], stats.counters["purged"]) == (0, 10, COUNT - 10)
    nothing_is_left(app)
