"""What one message costs: CPU of Redis and of the client, commands, bytes on the wire."""

import statistics
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields

import reliq
from bench.suite.harness import fresh_redis
from reliq.transport.store import Store
from reliq.worker import Options, Worker

BODY = "x" * 200


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one message. Microseconds of one core, bytes by Redis' own count."""

    redis_us: float
    client_us: float
    round_trips: float
    commands: float
    bytes_in: float
    bytes_out: float


def _measured(client, messages: int, work: Callable[[], None]) -> Cost:
    client.config_resetstat()
    cpu, net, own = client.info("cpu"), client.info("stats"), time.process_time()
    work()
    own = time.process_time() - own
    later, net_later, calls = client.info("cpu"), client.info("stats"), client.info("commandstats")
    asked = sum(one["calls"] for name, one in calls.items() if name in ("cmdstat_evalsha", "cmdstat_blmove"))
    used = sum(later[name] - cpu[name] for name in ("used_cpu_user", "used_cpu_sys"))
    return Cost(
        redis_us=used / messages * 1e6,
        client_us=own / messages * 1e6,
        round_trips=asked / messages,
        commands=(sum(one["calls"] for one in calls.values()) - asked) / messages,
        bytes_in=(net_later["total_net_input_bytes"] - net["total_net_input_bytes"]) / messages,
        bytes_out=(net_later["total_net_output_bytes"] - net["total_net_output_bytes"]) / messages,
    )


def _work_off(url: str, messages: int) -> None:
    app, done, left = reliq.Reliq(url), threading.Event(), [messages]

    @app.handler("bench")
    def handle(message: reliq.Message) -> None:
        left[0] -= 1
        if not left[0]:
            done.set()

    worker = Worker(Store(url), app.handlers, Options())
    thread = threading.Thread(target=worker.run)
    thread.start()
    done.wait()
    worker.stop()
    thread.join()
    app.close()


def _median(costs: list[Cost]) -> Cost:
    return Cost(*(statistics.median(getattr(one, field.name) for one in costs) for field in fields(Cost)))


def measure(messages: int = 100_000, rounds: int = 5) -> dict[str, Cost]:
    """Measure `send`, `send_many` and `consume`; medians, because other load of the machine costs CPU, too."""
    found: dict[str, list[Cost]] = {"send": [], "send_many": [], "consume": []}
    with fresh_redis() as (server, client):
        app = reliq.Reliq(server.url)
        queue = app.queue("bench")
        queue.send("the queue is announced")
        singles = messages // 20

        def one_at_a_time() -> None:
            for _ in range(singles):
                queue.send(BODY)

        def many() -> None:
            for start in range(0, messages, 1000):
                queue.send_many([BODY] * min(1000, messages - start))

        for _ in range(rounds):
            queue.purge()
            found["send"].append(_measured(client, singles, one_at_a_time))
            queue.purge()
            found["send_many"].append(_measured(client, messages, many))
            found["consume"].append(_measured(client, messages, lambda: _work_off(server.url, messages)))
        app.close()
    return {name: _median(costs) for name, costs in found.items()}
