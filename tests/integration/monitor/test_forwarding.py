"""`dead_to`: letters that cannot be sent on do not keep those behind them from it."""

import time
from typing import Any

import pytest

import reliq
from reliq import ops
from reliq.model.element import Extra
from reliq.model.keys import QueueKeys
from reliq_monitor import forwarding, rotation
from tests.support.state import element
from tests.support.turns import Monitor
from tests.support.workers import eventually

STAYING = 1100
KEYS = QueueKeys("orders")
FAILED = Extra(reason="max_failures")
#: What makes a letter stay: no send takes a header without a name, as another program has written it.
STAYS: dict[str, dict[str, Any]] = {
    "no send takes it": {"headers": {"": "x"}, "extra": FAILED},
    "it expired": {"extra": Extra(reason="expired")},
}


def died(app: reliq.Reliq, ago: float, letter: bytes, *others: bytes) -> None:
    """Add dead letters that died so many seconds ago."""
    at = (time.time() - ago) * 1000
    app.store.call(ops.command("ZADD", KEYS.dead, *(part for one in (letter, *others) for part in (at, one))))


def bodies(queue: reliq.Queue) -> list[str]:
    with queue.consumer() as consumer:
        return [one.body.decode() for one in consumer.claim(limit=10)]


@pytest.mark.parametrize("why", STAYS)
def test_a_letter_behind_a_thousand_that_stay_is_sent_on(app, why):
    queue = app.queue("orders")
    queue.configure(dead_to="grave")
    died(app, 9.0, *[element(f"stays{number}", **STAYS[why]) for number in range(1, STAYING + 1)])
    died(app, 5.0, element("behind", extra=FAILED))
    monitor = Monitor(app.store)
    assert [monitor.forward() for _ in range(3)] == [0, 1, 0]
    died(app, 20.0, element("older", extra=FAILED))
    died(app, 1.0, element("later", extra=FAILED))
    assert sum(monitor.forward() for _ in range(3)) == 2
    assert bodies(app.queue("grave")) == ["behind", "later", "older"]
    assert queue.stats().dead == STAYING


def test_letters_for_a_full_queue_are_sent_oldest_first_when_it_has_room(app):
    queue, grave = app.queue("orders"), app.queue("grave")
    queue.configure(dead_to="grave")
    grave.configure(max_length=1)
    grave.send("full")
    died(app, 9.0, *[element(f"stays{number}", **STAYS["no send takes it"]) for number in range(1, STAYING + 1)])
    for ago, name in ((8.0, "first"), (7.0, "second")):
        died(app, ago, element(name, extra=FAILED))
    monitor = Monitor(app.store)
    assert [monitor.forward() for _ in range(3)] == [0, 0, 0]
    grave.configure(max_length=10)
    eventually(lambda: monitor.forward() == 2)
    assert bodies(grave) == ["full", "first", "second"]


def test_a_turn_is_short_however_many_queues_have_letters(app, monkeypatch):
    """The other duties wait for its end; before, a turn sent a thousand letters of each queue on."""
    monkeypatch.setattr(rotation, "A_TURN", 0.0)
    for name in ("a", "b", "c"):
        app.queue(name).configure(dead_to="grave")
        letters = [element(f"{name}{number}", extra=FAILED) for number in range(5)]
        app.store.call(ops.command("ZADD", QueueKeys(name).dead, *(part for one in letters for part in (1, one))))
    monitor = Monitor(app.store)
    duty = monitor._whole._rota.duty_of(forwarding.Forwarding)
    turns = [(monitor.forward(), duty.pause == 0.0) for _ in range(4)]
    assert turns == [(5, True), (5, True), (5, False), (0, False)]
    assert app.queue("grave").stats().ready == 15
