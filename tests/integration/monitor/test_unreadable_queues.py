"""A queue with a key or a value that reliq did not write hides no other queue."""

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from reliq.model.keys import QueueKeys
from reliq.observability.prometheus import Exporter
from reliq.protocol.stats import read_readable
from reliq.transport.store import Store
from tests.support.workers import process

KEYS = QueueKeys("bad")

DAMAGE: dict[str, list[tuple[str | bytes, ...]]] = {
    "a foreign key": [("DEL", KEYS.delayed), ("SET", KEYS.delayed, "theirs")],
    "a counter that is no number": [("HSET", KEYS.counters, "acked", b"\xffabc")],
    "counters of a foreign type": [("DEL", KEYS.counters), ("SET", KEYS.counters, "theirs")],
}


@pytest.fixture
def client(url):
    with redis.Redis.from_url(url) as client:
        yield client


@pytest.fixture(params=DAMAGE)
def damaged(app, client, request):
    for name in ("bad", "good"):
        app.queue(name).send("x")
    for command in DAMAGE[request.param]:
        client.execute_command(*command)
    return app


def test_metrics_show_the_others_and_name_it(damaged):
    body, _ = Exporter(Store(damaged.url)).render()
    found = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert [one.labels for one in found["reliq_queue_unreadable"].samples] == [{"queue": "bad"}]
    ready = {one.labels["queue"]: one.value for one in found["reliq_queue_messages"].samples if one.value}
    assert ready == {"good": 1}
    assert [one.value for one in found["reliq_redis_up"].samples] == [1]


@pytest.mark.parametrize("arguments", [("stats",), ("stats", "--json")])
def test_the_command_line_shows_the_others_and_names_it(damaged, arguments):
    with process(*arguments, RELIQ_URL=damaged.url) as command:
        out, error = command.communicate(timeout=30)
    assert command.returncode == 1
    assert b"good" in out
    assert b"queue 'bad' cannot be read" in error
    assert b"Traceback" not in error


def test_top_shows_the_others(damaged):
    with process("top", "--once", "--interval", "0.1", RELIQ_URL=damaged.url) as command:
        out, _ = command.communicate(timeout=30)
    assert command.returncode == 0
    assert b"good" in out
    assert b"1 cannot be read" in out


def test_a_consumer_whose_name_is_no_text_is_not_looked_at(app, client):
    app.queue("bad").send("x")
    client.sadd(KEYS.consumers, b"\xff\xfe")
    assert app.queue("bad").stats().consumers == 0
    readings, unreadable = app.store.run(read_readable(["bad"]))
    assert (len(readings), unreadable) == (1, {})
