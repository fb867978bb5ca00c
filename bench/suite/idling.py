"""What Redis spends while nothing happens, and on messages that come seldom: it sleeps in between."""

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import redis

import reliq
from bench.suite.flat import monitoring
from bench.suite.weighing import persistent_redis
from reliq.cli.progress import Progress
from reliq.cli.sizing import Cost, spent
from reliq.cli.trials.processes import Workers
from reliq.cli.trials.size_app import HANDLER, QUEUES, queue_name

RATES = (1, 10, 100, 500)  #: messages a second
_WORKERS, _QUEUES = 8, 20  #: of which one's share is taken
_BODY = b"x" * 200
_SECONDS = 15.0
_SETTLED = 5.0  #: seconds after which idle workers and monitors ask for least
_PATIENCE = 60.0


def total(client: redis.Redis) -> Cost:
    """Return what the server has spent since its start."""
    info = client.info("everything")
    cpu, appended = spent(info)
    received, answered = info["total_net_input_bytes"], info["total_net_output_bytes"]
    return Cost(redis_us=cpu * 1e6, received=received, answered=answered, appended=appended)


@contextlib.contextmanager
def state(workers: int = 0, queues: int = 1, *, monitored: bool = False) -> Iterator[tuple[reliq.Reliq, redis.Redis]]:
    """A server with so many workers that wait, each for messages of all the queues, and perhaps a monitor."""
    with contextlib.ExitStack() as stack:
        server, client = stack.enter_context(persistent_redis())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reliq-idling-")))
        app = stack.enter_context(reliq.Reliq(server.url))
        running = Workers(
            server.url, "reliq.cli.trials.size_app:app", folder / "workers.log", "--no-monitor", "--threads", "10",
            **{HANDLER: "0.01", QUEUES: str(queues)},
        )  # fmt: skip
        stack.callback(running.stop)
        for _ in range(workers):
            running.start()
        if monitored:
            stack.enter_context(monitoring(server.url))
        for number in range(queues):
            _wait_for_consumers(app.queue(queue_name(number)), workers)
            app.queue(queue_name(number)).send(_BODY)
        time.sleep(_SETTLED)
        yield app, client


def _wait_for_consumers(queue: reliq.Queue, count: int) -> None:
    until = time.monotonic() + _PATIENCE
    while queue.stats().consumers < count:
        if time.monotonic() > until:
            raise SystemExit(f"the {count} workers of {queue.name} did not start within {_PATIENCE:g} s")
        time.sleep(0.1)


def idle(seconds: float, workers: int = 0, queues: int = 1, *, monitored: bool = False) -> Cost:
    """Return what the server spends each second, without any message."""
    with state(workers, queues, monitored=monitored) as (_, client):
        before, began = total(client), time.monotonic()
        time.sleep(seconds)
        return (total(client) - before) / (time.monotonic() - began)


def seldom(rate: float, seconds: float, without: Cost) -> Cost:
    """Return what a message costs that is sent and handled alone, so many a second, beyond what is spent anyway."""
    with state(workers=1) as (app, client):
        queue, sent = app.queue(queue_name(0)), 0
        before, began = total(client), time.monotonic()
        while (elapsed := time.monotonic() - began) < seconds:
            if sent < elapsed * rate:
                queue.send(_BODY)
                sent += 1
            else:
                time.sleep(1 / rate / 10)
        return (total(client) - before - without * (time.monotonic() - began)) / sent


def costs(scale: float) -> dict[str, Any]:
    """Return the parts of the table: `idle` each second, of one of each; `seldom` of a message, by messages/s."""
    seconds, bar, steps = _SECONDS * scale, Progress("idle", 5 + len(RATES)), iter(range(1, 6 + len(RATES)))

    def done(cost: Cost) -> Cost:
        bar.update(next(steps))
        return cost

    server, monitored = done(idle(seconds)), done(idle(seconds, monitored=True))
    one, many = done(idle(seconds, workers=1)), done(idle(seconds, workers=_WORKERS))
    wide = done(idle(seconds, workers=_WORKERS, queues=_QUEUES))
    worker = (many - server) / _WORKERS
    parts = {
        "server": server, "monitor": monitored - server, "worker": worker,
        "queue": (wide - many) / _WORKERS / (_QUEUES - 1),
    }  # fmt: skip
    rows = [{"rate": rate, "cost": _short(done(seldom(rate, seconds, one)))} for rate in RATES]
    bar.update(5 + len(RATES), final=True)
    today = datetime.now(UTC).date().isoformat()
    return {"idle_measured": today, "idle": {what: _short(cost) for what, cost in parts.items()}, "seldom": rows}


def _short(cost: Cost) -> dict[str, float]:
    """Of Redis only; what cannot be told from nothing is nothing."""
    return {name: round(max(0.0, value), 2) for name, value in dataclasses.asdict(cost).items() if name != "client_us"}
