"""Schedules of queues that lie on two masters."""

import pytest

import reliq
from reliq.transport.store import Store
from reliq_monitor import MonitorThread
from tests.integration.api.test_cluster import masters  # noqa: F401  a fixture
from tests.support.workers import eventually

QUEUES = ("orders", "mails", "images", "bills")


@pytest.fixture
def app(masters):  # noqa: F811
    with reliq.Reliq(f"redis+cluster://127.0.0.1:{masters[0].port}") as app:
        yield app


def test_ticks_are_sent_in_the_slot_of_each_queue(app):
    for queue in QUEUES:
        app.schedules.add(f"of-{queue}", "1s", queue, b"x" * 2000)
    app.schedules.add("daily", "0 7 * * *", QUEUES[0], tz="Europe/Berlin")
    app.schedules.add("daily", "0 8 * * *", QUEUES[1], tz="Europe/Berlin")  # moves to another node
    store = Store(app.url)
    thread = MonitorThread(store)
    thread.start()
    try:
        eventually(lambda: all(one.fired >= 2 for one in app.schedules.list() if one.name != "daily"))
    finally:
        thread.stop()
        store.close()
    assert thread.monitor.state().failures["schedules"] == 0
    assert [(one.name, one.queue) for one in app.schedules.list() if one.name == "daily"] == [("daily", QUEUES[1])]
    for queue in QUEUES:
        assert app.schedules.fate(f"of-{queue}") == "ready"
        assert app.queue(queue).stats().ready == app.schedules.get(f"of-{queue}").fired
        assert app.schedules.remove(f"of-{queue}")
