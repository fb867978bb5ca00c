"""What a message costs Redis in a queue with partitions, and how evenly the masters of a cluster share it.

    PYTHONPATH=.:monitor:api python bench/partitions.py [--masters 1 3 6] [--partitions 12] [--messages 120000]

Redis CPU time is that of the servers (INFO cpu), without what they take while nothing is sent. Half of the messages
have one of 10,000 ordering keys, in runs of their own. The messages are claimed and acked 250 at a time.
"""

import argparse
import time
from collections.abc import Callable, Sequence

import redis

import reliq
from reliq.embedded import EmbeddedRedis
from tests.support.cluster import Cluster

_BODY = b"x" * 200
_KEYS = 10_000
_BATCH = 1000


def cpu(servers: Sequence[EmbeddedRedis]) -> list[float]:
    """Return the CPU seconds of each server."""
    found = []
    for server in servers:
        with redis.Redis(port=server.port) as client:
            info = client.info("cpu")
            found.append(float(info["used_cpu_user"]) + float(info["used_cpu_sys"]))
    return found


def commands(servers: Sequence[EmbeddedRedis], word: str) -> list[int]:
    """Return how many messages of the bench's queue each server has been sent, or has acked."""
    counts = []
    for server in servers:
        with redis.Redis(port=server.port) as client:
            keys = client.scan_iter(match="reliq:{bench*}:counters", count=1000)
            counts.append(sum(int(client.hget(key, word) or 0) for key in keys))
    return counts


def idle(servers: Sequence[EmbeddedRedis]) -> float:
    """Return the CPU seconds that all servers take in a second without messages: their talk among each other."""
    before = sum(cpu(servers))
    time.sleep(3)
    return (sum(cpu(servers)) - before) / 3


def timed(servers: Sequence[EmbeddedRedis], rest: float, messages: int, run: Callable[[], None]) -> float:
    """Return the microseconds of Redis CPU that a message takes."""
    before, began = sum(cpu(servers)), time.monotonic()
    run()
    return (sum(cpu(servers)) - before - rest * (time.monotonic() - began)) / messages * 1e6


def drain(queue: reliq.Queue, messages: int) -> None:
    with queue.consumer() as consumer:
        done = 0
        while done < messages:
            claimed = consumer.claim(limit=250, wait=1)
            consumer.ack(*claimed)
            done += len(claimed)


def measure(masters: int, partitions: int, messages: int) -> None:
    with Cluster(masters, replicas=False) as cluster, reliq.Reliq(cluster.url) as app:
        rest = idle(cluster.servers)
        for keyed in (False, True):
            name = "bench-keyed" if keyed else "bench"
            queue = app.queue(name)
            if partitions > 1:
                queue.configure(partitions=partitions)
            half = messages // 2

            def send(keyed: bool = keyed, queue: reliq.Queue = queue, half: int = half) -> None:
                for start in range(0, half, _BATCH * partitions):
                    count = min(_BATCH * partitions, half - start)
                    if keyed:
                        made = [reliq.NewMessage(_BODY, key=f"k{(start + at) % _KEYS}") for at in range(count)]
                        queue.send_many(made)
                    else:
                        queue.send_many([_BODY] * count)

            def receive(queue: reliq.Queue = queue, half: int = half) -> None:
                drain(queue, half)

            before = commands(cluster.servers, "enqueued")
            in_us = timed(cluster.servers, rest, half, send)
            shares = [now - then for now, then in zip(commands(cluster.servers, "enqueued"), before, strict=True)]
            out_us = timed(cluster.servers, rest, half, receive)
            mean = sum(shares) / len(shares)
            spread = max(abs(share - mean) for share in shares) / mean
            print(
                f"{masters:>7} {partitions:>10} {'yes' if keyed else 'no':>5} {in_us:>8.2f} {out_us:>8.2f} "
                f"{spread:>10.1%}  {' '.join(map(str, shares))}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--masters", type=int, nargs="+", default=[1, 3, 6])
    parser.add_argument("--partitions", type=int, nargs="+", default=[1, 12, 24])
    parser.add_argument("--messages", type=int, default=120_000)
    options = parser.parse_args()
    print("masters partitions keyed    in us   out us  deviation  messages of each master")
    for masters in options.masters:
        for partitions in options.partitions:
            if partitions >= masters:
                measure(masters, partitions, options.messages)


if __name__ == "__main__":
    main()
