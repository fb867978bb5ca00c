"""A distant Redis: while a handler runs, a worker asks for the next messages and settles those before it."""

from typing import Any

import pytest

from reliq.model.keys import new_owner
from reliq.transport.store import Store
from reliq.worker.exchange import Exchange
from reliq.worker.inline import InlineLoop
from reliq.worker.loop import Shared
from reliq.worker.pooled import PooledLoop
from reliq.worker.prefetch import Prefetch
from reliq.worker.runner import Runner

DISTANT, NEAR = 0.05, 0.0001


@pytest.fixture
def parts(app, url):
    """What a loop is made of; `seen`: for each handler that runs, how many calls are under way."""
    store, owner, seen = Store(url), new_owner(), list[int]()

    @app.handler("q")
    def handle(message):
        seen.append(exchange.under_way)

    (handler,) = app.handlers
    exchange = Exchange(store, "q", owner, 15.0, on_dead=lambda move: pytest.fail(f"{move.id} died"))
    yield exchange, Runner(store, handler, exchange, owner), seen
    exchange.complete_all()
    exchange.close()
    store.close()


class Steady(Prefetch):
    """Believes that each run takes so many seconds."""

    def __init__(self, loop: Any, seconds: float) -> None:
        super().__init__(loop._prefetch.slots, loop.exchange.trip)
        self._mean = seconds

    def note(self, seconds: float, runs: int) -> None:
        pass


@pytest.mark.parametrize(("trip", "ahead"), [(DISTANT, 1), (NEAR, 0)])
def test_one_thread_asks_ahead_only_where_redis_is_distant(app, parts, trip, ahead):
    exchange, runner, seen = parts
    app.queue("q").send_many(["x"] * 50)
    loop = InlineLoop(exchange, runner, Shared())
    loop._prefetch = Steady(loop, 0.02)
    exchange.trip.seconds = trip
    loop.step()
    assert set(seen) == {ahead}


def test_messages_that_were_asked_for_ahead_run_once_and_in_their_order(app, parts):
    exchange, runner, _ = parts
    ran: list[bytes] = []
    perform = runner.perform

    def noted(message):
        ran.append(message.body)
        return perform(message)

    runner.perform = noted
    app.queue("q").send_many([str(number) for number in range(100)])
    loop = InlineLoop(exchange, runner, Shared())
    loop._prefetch = Steady(loop, 0.02)
    while app.queue("q").stats().counters.get("acked", 0) < 100:
        exchange.trip.seconds = DISTANT
        loop.step()
    assert ran == [str(number).encode() for number in range(100)]


def test_one_thread_of_a_cycle_asks_for_nothing_ahead(app, parts):
    exchange, runner, seen = parts
    app.queue("q").cycle.add("ann", "bob")
    loop = InlineLoop(exchange, runner, Shared())
    loop._prefetch = Steady(loop, 0.02)
    exchange.trip.seconds = DISTANT
    loop.step()
    assert set(seen) == {0}


@pytest.mark.parametrize(("trip", "held"), [(DISTANT, 4), (NEAR, 2)])
def test_a_pool_holds_messages_for_two_round_trips(app, parts, trip, held):
    exchange, runner, _ = parts
    app.queue("q").send_many(["x"] * 50)
    loop = PooledLoop(exchange, runner, Shared(), slots=2, submit=lambda task: None)
    loop._prefetch = Steady(loop, 0.1)
    exchange.trip.seconds = trip
    loop.step()
    assert len(exchange.unstarted) == held


@pytest.mark.parametrize(("trip", "stuck"), [(DISTANT, False), (NEAR, True)])
def test_messages_wait_for_two_round_trips_before_they_are_handed_back(parts, trip, stuck):
    exchange, *_ = parts
    exchange.trip.seconds = trip
    exchange.progress_at -= 0.1
    assert exchange.stuck() is stuck
