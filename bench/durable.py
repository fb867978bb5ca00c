"""Durable handlers: Redis' CPU of a step beside that of a checkpoint, memory of parked messages, signals a second.

python -m bench.durable
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import redis

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.model.element import encode_envelope
from reliq.model.keys import QueueKeys
from reliq.model.policy import RunOver

STEPS, ROUNDS, PARKED, SIGNALS = 1000, 9, 100_000, 5000


def cpu_of(client: redis.Redis, act: Callable[[], object]) -> float:
    """Return the microseconds that Redis' scripts took for it."""
    client.config_resetstat()
    act()
    return float(client.info("commandstats")["cmdstat_evalsha"]["usec"])


def checkpoints(message: reliq.Message) -> None:
    for at in range(STEPS):
        message.checkpoint({"at": at})


def steps_of(message: reliq.Message) -> None:
    for at in range(STEPS):
        message.step(f"s{at}", dict, [("at", at)])


def step_beside_checkpoint(app: reliq.Reliq, client: redis.Redis) -> None:
    queue, ratios = app.queue("steps"), []
    for _ in range(ROUNDS):
        queue.send("x")
        with queue.consumer() as consumer:
            (message,) = consumer.claim()
            before, steps = cpu_of(client, partial(checkpoints, message)), cpu_of(client, partial(steps_of, message))
            consumer.ack(message)
        ratios.append(steps / before)
        print(f"checkpoint {before / STEPS:.1f} us, step {steps / STEPS:.1f} us, ratio {steps / before:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f}")


def parked(app: reliq.Reliq, client: redis.Redis, timeout: str | None) -> None:
    name = f"parked-{timeout}"
    queue, size = app.queue(name), 0
    queue.send_many(["x" * 100] * PARKED)
    idle = 0
    with queue.consumer() as consumer:
        start = client.info("memory")["used_memory"]
        elements = client.memory_usage(QueueKeys(name).messages, samples=0) or 0
        while messages := consumer.claim(1000):
            for message in messages:
                size += len(encode_envelope(message._envelope))
                try:
                    message.wait("approval", timeout)
                except RunOver:
                    idle += 1
    used = sum(client.memory_usage(key, samples=0) or 0 for key in client.keys(f"reliq:{{{name}}}:[pw][a][ri]*"))
    now = client.info("memory")["used_memory"]
    print(
        f"timeout={timeout}: {idle} parked, each {(used - size) / idle:.0f} bytes beyond its element by MEMORY USAGE; "
        f"used_memory grew by {(now - start) / idle:.0f} from ready, {(elements or 0) / PARKED:.0f} in its list"
    )
    ids = [one.id for one in queue.parked(10_000)[:SIGNALS]]
    began = time.perf_counter()
    for one in ids:
        queue.signal(one, "approval", {"by": "ann"})
    took = time.perf_counter() - began
    print(f"signals: {len(ids) / took:.0f} a second by one caller")


def main() -> None:
    with EmbeddedRedis(settings=("--appendfsync", "no")) as server:
        app, client = reliq.Reliq(server.url), redis.Redis(port=server.port)
        step_beside_checkpoint(app, client)
        parked(app, client, None)
        parked(app, client, "2d")


if __name__ == "__main__":
    main()
