"""What a message costs Redis in a queue with partitions, and how evenly the masters of a cluster share it.

    PYTHONPATH=.:monitor:api python bench/partitions.py [--masters 1 3 6] [--partitions 12] [--messages 120000]

Redis CPU time is that of the servers (INFO cpu), without what they take while nothing is sent. Half of the messages
have one of 10,000 ordering keys, in runs of their own. The messages are claimed and acked 250 at a time.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

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


@dataclass(frozen=True, slots=True)
class Measured:
    """What a message takes of the CPU of all masters, in microseconds, and how many messages each master had."""

    keyed: bool
    in_us: float
    out_us: float
    shares: Sequence[int]

    @property
    def deviation(self) -> float:
        """The largest difference of a master from an equal share."""
        mean = sum(self.shares) / len(self.shares)
        return max(abs(share - mean) for share in self.shares) / mean


def send(queue: reliq.Queue, messages: int, at_once: int, keyed: bool) -> None:
    for start in range(0, messages, at_once):
        count = min(at_once, messages - start)
        if keyed:
            queue.send_many([reliq.NewMessage(_BODY, key=f"k{(start + at) % _KEYS}") for at in range(count)])
        else:
            queue.send_many([_BODY] * count)


def measure(masters: int, partitions: int, messages: int, kinds: Sequence[bool] = (False, True)) -> Iterator[Measured]:
    """Send and drain `messages` of each kind, with keys or without."""
    with Cluster(masters, replicas=False) as cluster, reliq.Reliq(cluster.url) as app:
        rest = idle(cluster.servers)
        for keyed in kinds:
            queue = app.queue("bench-keyed" if keyed else "bench")
            if partitions > 1:
                queue.configure(partitions=partitions)
            before = commands(cluster.servers, "enqueued")
            work = partial(send, queue, messages, _BATCH * partitions, keyed)
            in_us = timed(cluster.servers, rest, messages, work)
            shares = [now - then for now, then in zip(commands(cluster.servers, "enqueued"), before, strict=True)]
            out_us = timed(cluster.servers, rest, messages, partial(drain, queue, messages))
            yield Measured(keyed, in_us, out_us, shares)


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
                for one in measure(masters, partitions, options.messages // 2):
                    print(
                        f"{masters:>7} {partitions:>10} {'yes' if one.keyed else 'no':>5} {one.in_us:>8.2f} "
                        f"{one.out_us:>8.2f} {one.deviation:>10.1%}  {' '.join(map(str, one.shares))}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
