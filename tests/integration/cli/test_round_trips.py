"""Commands that look at all queues: more queues do not mean more round trips, which take long to a distant Redis."""

import pytest

from tests.support.commands import run
from tests.support.proxy import Counting

LOOKS = ["queue stats", "queue stats --json", "top --once --interval 0.1", "worker list", "schedule list", "topic list",
         "batch list", "flow list", "doctor"]  # fmt: skip


@pytest.mark.parametrize("command", LOOKS)
def test_more_queues_mean_no_more_round_trips(app, redis_server, command):
    def trips(proxy):
        before = proxy.trips
        done = run(*command.split(), url=proxy.url)
        assert "Traceback" not in done.stderr
        return proxy.trips - before

    with Counting(redis_server.port) as proxy:
        for number in range(40):
            if number in (3, 4):
                few = trips(proxy)  # the second time: the scripts are loaded by then
            app.queue(f"orders-{number}").send("x")
            app.schedules.add(f"nightly-{number}", "1d", f"orders-{number}")
            app.subscribe(f"orders-{number}", f"order.{number}.#")
        assert trips(proxy) <= few + 3
