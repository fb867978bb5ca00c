"""Two calls that change the policy of one queue at the same time: both come into force, in all partitions."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import reliq
from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.protocol import shares as policy_shares
from tests.integration.partitions.test_resizing import Tending
from tests.support.hooked import DEATH, hooked

ACTS = {
    "length": lambda queue: queue.configure({"max_length": 8000}),
    "rate": lambda queue: queue.configure({"rate": "40/s"}),
    "reset": lambda queue: queue.configure({"max_bytes": None}),
    "pause": lambda queue: queue.pause(),
    "resume": lambda queue: queue.resume(),
    "more": lambda queue: queue.configure({"partitions": 4}),
    "one": lambda queue: queue.configure({"partitions": 1}),
}
PAIRS = [
    ("length", "rate"), ("length", "reset"), ("length", "pause"), ("rate", "more"), ("more", "pause"),
    ("pause", "resume"), ("one", "length"), ("one", "pause"),
]  # fmt: skip
STEPS = range(1, 13)  #: more requests than most changes have


@pytest.fixture
def other(url):
    with reliq.Reliq(url) as app:
        yield app


def steps_of(app, act):
    return ACTS[act](app.queue("orders")._steps)


def in_force(app):
    """The policy that each partition has a share of, as the queue's first partition has it."""
    config = app.queue("orders").config()
    return config.max_length, config.rate, config.max_bytes, bool(config.paused)


def shares(app):
    """The fields of the policy in each partition that is in use."""
    layout = app.store.call(ops.layout(QueueKeys("orders")))
    names = ("max_length", "rate", "max_bytes", "paused")
    found = [app.store.call(ops.read_hash(QueueKeys(name).config)) for name in layout.names("orders")]
    return [tuple(one.get(name) for name in names) for one in found]


def check(app, acts, partitions):
    length, rate, most_bytes, paused = in_force(app)
    assert length == (8000 if "length" in acts else 4000)
    assert rate == ("40/s" if "rate" in acts else None)
    assert most_bytes == (None if "reset" in acts else 40_000_000)
    assert paused in ({True, False} if {"pause", "resume"} <= {*acts} else {"pause" in acts})
    whole = (
        str(length // partitions),
        f"{40 // partitions}/s" if rate else None,
        str(most_bytes // partitions) if most_bytes else None,
        "1" if paused else None,
    )
    assert shares(app) == [whole] * partitions


def begin(app):
    queue = app.queue("orders")
    queue.configure(partitions=2, max_length=4000, max_bytes=40_000_000)
    return queue


@pytest.mark.parametrize("after", STEPS)
@pytest.mark.parametrize(("first", "second"), [*PAIRS, *((b, a) for a, b in PAIRS[2:6])])
def test_a_change_during_another_one(app, other, first, second, after):
    begin(app)
    came = []
    app.store.run(hooked(steps_of(app, first), after, lambda: came.append(other.store.run(steps_of(other, second)))))
    if not came:
        other.store.run(steps_of(other, second))
    partitions = 4 if "more" in (first, second) else 1 if "one" in (first, second) else 2
    if partitions == 2:
        check(app, (first, second), partitions)
    Tending(app.store).tend_partitions()
    check(app, (first, second), partitions)


@pytest.mark.parametrize("then", [3, 6])
@pytest.mark.parametrize("after", STEPS[1::2])
@pytest.mark.parametrize(("first", "second"), PAIRS[:3] + PAIRS[5:6])
def test_a_monitor_finishes_two_changes_whose_callers_died(app, other, first, second, after, then):
    begin(app)

    def interrupt():
        other.store.run(hooked(steps_of(other, second), then, lambda: DEATH))
        return DEATH

    app.store.run(hooked(steps_of(app, first), after, interrupt))
    Tending(app.store).tend_partitions()
    (one, same) = shares(app)
    assert one == same
    assert (one[0], one[1]) == (str(in_force(app)[0] // 2), "20/s" if in_force(app)[1] else None)
    assert bool(one[3]) == in_force(app)[3]


def test_many_callers_at_once_all_get_their_change(app, url):
    begin(app)

    def change(number):
        with reliq.Reliq(url) as one:
            for value in range(4):
                one.queue("orders").configure(max_length=1000 * (number + 1) + value)
        return number

    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(change, range(16))) == list(range(16))
    assert (length := app.queue("orders").config().max_length) % 1000 == 3
    assert [int(one) for one, *_ in shares(app)] == [-(-length // 2), length // 2]


def test_a_change_that_never_gets_its_turn_says_that_nothing_was_changed(app, other, monkeypatch):
    begin(app)
    monkeypatch.setattr(policy_shares, "_PATIENCE", 0.0)
    refused = ""
    for after in STEPS:
        try:
            app.store.run(hooked(steps_of(app, "length"), after, other.queue("orders").pause))
        except reliq.ChangeUnderWay as error:
            refused = str(error)
            assert in_force(app)[0] == 4000
        other.queue("orders").resume()
        app.queue("orders").configure(max_length=4000)
    assert refused == "the policy of queue 'orders' is being changed all the time: try again"
