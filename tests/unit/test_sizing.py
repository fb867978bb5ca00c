"""What a load needs, computed from a table of costs."""

import json
from dataclasses import replace

import pytest

from reliq.cli.sizing import COSTS, Cost, Load, Table, Way, needs


def costs(redis_us: float) -> dict[str, float]:
    return {"redis_us": redis_us, "client_us": 2 * redis_us, "received": 300, "answered": 50, "appended": 400}


def row(body: int, factor: float) -> dict[str, object]:
    single, many = costs(40 * factor), costs(4 * factor)
    ways = {"send": single, "send_many": many, "consume": single, "consume_many": many}
    return {"body": body, "waiting": body + 100, **ways}


TABLE = Table(
    json.dumps(
        {
            "measured": "2026-01-02",
            "on": "Redis 7",
            "command": "measure",
            "monitor": 0.02,
            "rows": [row(100, 1), row(1100, 2)],
            "keyed": {**row(100, 3), "waiting": 260},
        }
    )
)


@pytest.mark.parametrize(("body", "redis_us"), [(10, 40), (100, 40), (600, 60), (1100, 80), (2100, 120)])
def test_a_cost_between_two_sizes_is_in_proportion_and_goes_on_beyond_the_largest(body, redis_us):
    assert TABLE.cost(Way.SEND, Load(1, body)).redis_us == redis_us


def test_a_key_costs_the_same_at_every_size():
    more = TABLE.cost(Way.CONSUME, Load(1, 1100, keyed=True)) - TABLE.cost(Way.CONSUME, Load(1, 1100))
    assert more == Cost(80, 160, 0, 0, 0)
    assert TABLE.waiting(Load(1, 1100, keyed=True)) == 1100 + 100 + 60


def test_a_small_load():
    found = needs(Load(rate=1000, body=100, handler=0.03, threads=10, backlog=60), TABLE)
    assert found.redis == pytest.approx(0.08)
    assert (found.masters, found.partitions) == (1, 1)
    assert found.memory == 1000 * 60 * 200
    assert found.file == pytest.approx(1000 * 800)
    assert (found.handlers, found.workers) == (50, 5)
    assert found.monitors == 2


@pytest.mark.parametrize(("handler", "redis_us"), [(0.02, 40), (0.006, 25.6), (0.003, 14.8), (0, 5.8)])
def test_messages_that_come_soon_after_each_other_share_a_call(handler, redis_us):
    """Alone a message costs 40 us, in full batches 4; with 12 workers for 20,000 messages/s one comes each 0.6 ms."""
    load = Load(rate=20_000, body=100, handler=handler, threads=10, batch=1000, busy=1.0)
    found = needs(load, TABLE)
    assert found.redis * 1e6 / load.rate - 4.036 == pytest.approx(redis_us)


def test_large_batches_send_for_less():
    one, many = (needs(Load(rate=1000, body=100, batch=batch), TABLE).producers for batch in (1, 1000))
    assert one == pytest.approx(0.08)
    assert many == pytest.approx(0.008072)


@pytest.mark.parametrize(
    ("load", "masters", "by", "partitions"),
    [
        (Load(rate=75_000, body=100, backlog=0), 10, "CPU", 40),
        (Load(rate=75_000, body=100, backlog=0, queues=100), 10, "CPU", 1),
        (Load(rate=1000, body=1100, backlog=3600, memory=2**30), 9, "memory", 36),
        (Load(rate=750_000, body=100, backlog=0), 100, "CPU", 256),  # more are not allowed
    ],
)
def test_a_load_for_several_masters(load, masters, by, partitions):
    found = needs(load, TABLE)
    assert (found.masters, found.masters_by, found.partitions) == (masters, by, partitions)


def test_the_table_of_the_package_grows_with_the_body():
    table, load = Table(COSTS.read_text(encoding="utf-8")), Load(1, 200)
    for way in Way:
        small, large = (table.cost(way, replace(load, body=body)) for body in (200, 200_000))
        assert 0 < small.redis_us < large.redis_us
        assert small.client_us > 0
    assert table.waiting(load) > 200
