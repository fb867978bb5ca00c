"""Durable handlers: Redis' CPU of a step beside that of a checkpoint, memory of parked messages, signals a second.

python -m bench.durable
"""

import statistics
import time
from typing import Any

import msgspec
import redis

import reliq
from reliq import ops
from reliq.embedded import EmbeddedRedis
from reliq.features.steps import ops as own
from reliq.features.steps.model import Entry
from reliq.model.element import encode_envelope
from reliq.model.keys import QueueKeys
from reliq.model.life import Report
from reliq.model.policy import RunOver
from reliq.ops import Op, Steps
from reliq.ops.held import Hold

TURNS, SLICE, PARKED, SIGNALS = 100, 50, 100_000, 5000


def cpu_of(app: reliq.Reliq, client: redis.Redis, calls: list[Op[Any]]) -> float:
    """Return the microseconds of Redis' CPU that a call took, of those that were sent together."""

    def act() -> Steps[None]:
        yield calls

    client.config_resetstat()
    app.store.run(act())
    return float(client.info("commandstats")["cmdstat_evalsha"]["usec"]) / len(calls)


def step_beside_checkpoint(app: reliq.Reliq, client: redis.Redis) -> None:
    """Let them take turns, as both are slower where the machine is busy; the calls of a turn are sent at once."""
    state = Report(state=msgspec.msgpack.encode({"at": 12}))
    for steps in (10, 1000):
        queue, ratios, keys = app.queue(f"steps-{steps}"), [], QueueKeys(f"steps-{steps}")
        count = TURNS * SLICE // steps
        queue.send_many(["x"] * count)
        with queue.consumer() as consumer:
            held = [Hold(keys, consumer.id, one, place) for place, one in enumerate(consumer.claim(count))]
            todo = [(one, number) for one in held for number in range(1, steps + 1)]
            for at in range(0, len(todo), SLICE):
                some = todo[at : at + SLICE]
                reports = [ops.report(one, state) for one, _ in some]
                entries = [Entry("s", number, f"s{number}", b'j{"at":12}').encoded() for _, number in some]
                records = [own.record(one, number, entry) for (one, number), entry in zip(some, entries, strict=True)]
                ratios.append((cpu_of(app, client, records), cpu_of(app, client, reports)))
        step, checkpoint = (statistics.median(one) for one in zip(*ratios, strict=True))
        each = statistics.median(one / two for one, two in ratios)
        print(
            f"{count} messages of {steps} steps: a step {step:.1f} us, a checkpoint {checkpoint:.1f} us; "
            f"median ratio of {len(ratios)} turns {each:.2f}"
        )


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
