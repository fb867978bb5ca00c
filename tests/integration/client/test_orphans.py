"""The second check of the audit: every consumer that holds messages is known to monitors."""

import json

import redis

from reliq.cli import main
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage
from reliq.transport.store import Store
from reliq_monitor import MonitorThread
from tests.support.workers import eventually

KEYS = QueueKeys("q")


def audited(app, capsys, *arguments):
    status = main.main(["audit", "--json", "--url", app.url, *arguments])
    return status, {one["queue"]: (one["missing"], one["orphans"]) for one in json.loads(capsys.readouterr().out)}


def test_a_consumer_at_work_is_no_orphan(app, capsys):
    app.queue("q").send_many(range(5))
    with app.queue("q").consumer() as consumer:
        assert len(consumer.claim(3)) == 3
        assert audited(app, capsys) == (0, {"q": (0, [])})


def test_an_orphan_is_found_and_its_messages_come_back_when_repaired(app, redis_server, capsys):
    app.queue("q").send_many(range(3))
    app.queue("other").send("x")
    with redis.Redis(port=redis_server.port) as client:
        client.rpush(KEYS.processing("forgotten"), NewMessage("x").element(0))
        client.hincrby(KEYS.counters, "enqueued", 1)
    assert audited(app, capsys) == (1, {"q": (1, ["forgotten"]), "other": (0, [])})
    assert main.main(["audit", "--url", app.url]) == 1
    assert "see --repair" in capsys.readouterr().out
    assert audited(app, capsys, "other") == (0, {"other": (0, [])})
    assert audited(app, capsys, "--repair") == (0, {"q": (0, ["forgotten"]), "other": (0, [])})
    monitor = MonitorThread(Store(app.url))
    monitor.start()
    try:
        eventually(lambda: app.queue("q").stats().ready == 4)
    finally:
        monitor.stop()
    assert audited(app, capsys) == (0, {"q": (0, []), "other": (0, [])})
