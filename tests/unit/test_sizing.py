"""What a load needs, computed from a table of costs."""

import json
from dataclasses import replace
from typing import Any

import pytest

from reliq.cli.sizing import COSTS, Cost, Load, Needs, Table, Way, needs
from reliq.cli.trials.sized import Comparison, Tried


def costs(redis_us: float) -> dict[str, float]:
    return {"redis_us": redis_us, "client_us": 2 * redis_us, "received": 300, "answered": 50, "appended": 400}


def row(body: int, factor: float) -> dict[str, object]:
    single, many = costs(40 * factor), costs(4 * factor)
    ways = {"send": single, "send_many": many, "consume": single, "consume_many": many}
    return {"body": body, "waiting": body + 100, **ways}


def table(*, idle: dict[str, float], seldom: dict[int, float]) -> Table:
    """Return a table with microseconds of Redis: each second of what is idle, and of a message at so many a second."""
    return Table(
        json.dumps(
            {
                "measured": "2026-01-02",
                "on": "Redis 7",
                "command": "measure",
                "monitor": 0.02,
                "rows": [row(100, 1), row(1100, 2)],
                "keyed": {**row(100, 3), "waiting": 260},
                "idle": {what: {"redis_us": redis_us, "appended": 10} for what, redis_us in idle.items()},
                "seldom": [{"rate": rate, "cost": {"redis_us": redis_us}} for rate, redis_us in seldom.items()],
            }
        )
    )


TABLE = table(idle=dict.fromkeys(("server", "monitor", "worker", "queue"), 0), seldom={1: 0, 10: 0})
IDLE = table(idle={"server": 1000, "monitor": 500, "worker": 100, "queue": 3}, seldom={1: 880, 10: 280, 100: 180})


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
    assert found.file == pytest.approx(1000 * 800, rel=1e-3)
    assert (found.handlers, found.workers) == (50, 5)
    assert found.monitors == 2


@pytest.mark.parametrize(("handler", "redis_us"), [(0.02, 40), (0.006, 25.6), (0.003, 14.8), (0, 5.8)])
def test_messages_that_come_soon_after_each_other_share_a_call(handler, redis_us):
    """Alone a message costs 40 us, in full batches 4; with 12 workers for 20,000 messages/s one comes each 0.6 ms."""
    load = Load(rate=20_000, body=100, handler=handler, threads=10, busy=1.0)
    found = needs(load, TABLE)
    assert found.redis * 1e6 / load.rate - 40 == pytest.approx(redis_us)


@pytest.mark.parametrize(
    ("batch", "redis_us"),
    [(1, 40), (5, 40 / 5 + 4 * 4 / 5), (10, 7.6), (1000, 7.6)],
)
def test_a_worker_handles_as_many_messages_of_a_batch_together_as_it_has_threads(batch, redis_us):
    load = Load(rate=10, body=100, handler=0.01, threads=10, batch=batch)
    send = 4 + (40 - 4) / batch
    assert needs(load, TABLE).redis * 1e6 / load.rate - send == pytest.approx(redis_us)


def test_what_is_idle_costs_something_too():
    """A server 1000, two monitors 500 each, a worker 100 and 3 for each further queue; without messages to speak of."""
    load = Load(rate=1e-6, body=100, queues=11, handler=0)
    found, unwatched = needs(load, IDLE), needs(load, IDLE, watched=False)
    assert found.redis * 1e6 == pytest.approx(1000 + 2 * 500 + 100 + 10 * 3, rel=1e-4)
    assert unwatched.redis * 1e6 == pytest.approx(1000 + 100 + 10 * 3, rel=1e-4)
    assert unwatched.monitors == 0
    assert found.file == pytest.approx(4 * 10 + 10 * 10, rel=1e-3)


@pytest.mark.parametrize(
    ("rate", "more"),
    [(0.1, 800), (1, 800), (10**0.5, 500), (10, 200), (100, 100), (1000, 10)],  # at once 80: as 40 and 40
)
def test_a_message_that_comes_alone_wakes_redis(rate, more):
    """Between two rates by their logarithms; with more than the highest, Redis sleeps as often as with that."""
    assert IDLE.awake(rate).redis_us == pytest.approx(more)


def test_to_wake_redis_needs_no_further_master():
    load = Load(rate=7400, body=100, backlog=0)
    quiet, waking = needs(load, TABLE), needs(load, IDLE)
    assert quiet.masters == waking.masters == 1
    assert waking.redis > quiet.redis


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


def comparison(**measured: Any) -> Comparison:
    """Return a comparison with a computation of 0.1 cores, 1 MB/s and 300 bytes."""
    computed = Needs(
        redis=0.1, masters=1, masters_by="CPU", partitions=1, memory=0, file=1e6, network=0, handlers=1, workers=1,
        producers=0, monitors=0,
    )  # fmt: skip
    tried = Tried(Load(100, 200), 10, sent=1000, handled=1000, redis_cpu=0.1, file=1e6, waiting=300, asked=100)
    return Comparison(replace(tried, **measured), computed, waiting=300)


@pytest.mark.parametrize("measured", [{}, {"redis_cpu": 0.29}, {"redis_cpu": 0.034, "file": 2.9e6, "waiting": 110}])
def test_a_computation_holds_that_is_off_by_less_than_the_stated_factor(measured):
    found = comparison(**measured)
    assert found.trouble == ""
    assert "The computation holds here. Measured, in times of what was computed: Redis CPU " in str(found)
    assert str(found).endswith("(may differ 3 times).")
    assert found.as_dict()["verdict"]["holds"]


@pytest.mark.parametrize(
    ("measured", "says"),
    [
        ({"redis_cpu": 0.42}, "measured here, in times of what was computed: Redis CPU 4.2: plan with the measured"),
        ({"redis_cpu": 0.02}, "measured here, in times of what was computed: Redis CPU 0.2: plan with the measured"),
        ({"file": 4e6, "waiting": 1200}, "computed: file 4, memory 4: plan with the measured figures"),
        ({"handled": 990}, "10 messages were not handled within 30 s after the last one: plan with the measured"),
    ],
)
def test_a_computation_does_not_hold_that_is_off_by_more(measured, says):
    found = comparison(**measured)
    assert says in found.trouble
    assert "holds" not in str(found)
    assert found.as_dict()["verdict"] == {
        "holds": False, "factor": 3.0, "times_computed": found.as_dict()["verdict"]["times_computed"],
        "trouble": found.trouble,
    }  # fmt: skip
