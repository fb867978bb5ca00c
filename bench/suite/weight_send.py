"""What a message costs Redis when it is sent, beside XADD, and what reaches a replica."""

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence

import redis

import reliq
from bench.suite.harness import Check, Row, Setting, ratios
from bench.suite.weighing import KIB, Weight, named, persistent_redis, volume, weighed
from reliq.embedded import EmbeddedRedis

_BATCH_BYTES = 4 * KIB * KIB  #: of one send_many, and of one pipeline of XADD
_SINGLES, _MANY = 500, 20_000  #: messages of one round
_PAIRS = (("send", "xadd"), ("send_many", "xadd_pipelined"))
_CLAIMED = 100  #: messages of one claim, where a replica follows
_IN_STEP = 15.0  #: seconds until a replica must follow


def _batches(messages: int, size: int) -> Iterator[int]:
    some = max(1, min(1000, _BATCH_BYTES // size))
    for start in range(0, messages, some):
        yield min(some, messages - start)


class Senders:
    """The ways to send a body, and to consume it."""

    def __init__(self, url: str, client: redis.Redis, size: int) -> None:
        self._client, self._body, self._size = client, b"x" * size, size
        self.app = reliq.Reliq(url)
        self.queue = self.app.queue("bench")

    def send(self, messages: int) -> None:
        for _ in range(messages):
            self.queue.send(self._body)

    def send_many(self, messages: int) -> None:
        for some in _batches(messages, self._size):
            self.queue.send_many([self._body] * some)

    def send_durably(self, messages: int) -> None:
        for _ in range(messages):
            self.queue.send(self._body, durability="replicas=1")

    def consume(self, messages: int) -> None:
        with self.queue.consumer() as consumer:
            while messages and (claimed := consumer.claim(limit=min(_CLAIMED, messages), wait=1)):
                consumer.ack(*claimed)
                messages -= len(claimed)

    def xadd(self, messages: int) -> None:
        for _ in range(messages):
            self._client.xadd("stream", {"body": self._body})

    def xadd_pipelined(self, messages: int) -> None:
        for some in _batches(messages, self._size):
            pipeline = self._client.pipeline(transaction=False)
            for _ in range(some):
                pipeline.xadd("stream", {"body": self._body})
            pipeline.execute()

    def clear(self) -> None:
        self.queue.purge()
        self._client.delete("stream")


def _in_turns(setting: Setting, size: int, names: Sequence[str]) -> dict[str, list[Weight]]:
    found: dict[str, list[Weight]] = {name: [] for name in names}
    with persistent_redis() as (server, client):
        senders = Senders(server.url, client, size)
        for number in range(-1, setting.rounds):  # the first one loads the scripts, and is forgotten
            for name in names if number % 2 else names[::-1]:
                most = volume(setting, _SINGLES if name in _PAIRS[0] else _MANY, size)
                weight = weighed(client, getattr(senders, name), most if number >= 0 else 8)
                senders.clear()
                if number >= 0:
                    found[name].append(weight)
        senders.app.close()
    return found


def sends(setting: Setting, sizes: Sequence[int]) -> list[Row]:
    """Return the rows of `send` and `send_many`."""
    rate = {name: Row(f"weight: {name}, messages/s") for name, _ in _PAIRS}
    cpu = {name: Row(f"weight: Redis CPU of {name} / {bare}") for name, bare in _PAIRS}
    appended = {name: Row(f"weight: bytes appended by {name}, beyond the body") for name, _ in _PAIRS}
    for size in sizes:
        found = _in_turns(setting, size, [name for pair in _PAIRS for name in pair])
        for name, bare in _PAIRS:
            ours, theirs = ([weight.seconds for weight in found[one]] for one in (name, bare))
            rate[name].checks.append(Check(f"{named(size)}: reliq / XADD", ratios(theirs, ours), 1.0))
            ours, theirs = ([weight.cpu_us for weight in found[one]] for one in (name, bare))
            cpu[name].checks.append(Check(f"{named(size)}: reliq / XADD", ratios(ours, theirs), 1.2, at_least=False))
            cpu[name].notes.append(
                f"{named(size)}: {name} {statistics.median(ours):.1f} us, XADD {statistics.median(theirs):.1f} us"
            )
            beyond, bare_beyond = ([weight.appended - size for weight in found[one]] for one in (name, bare))
            appended[name].checks.append(Check(f"{named(size)}: bytes", beyond, 130, at_least=False))
            appended[name].notes.append(f"{named(size)}: XADD {statistics.median(bare_beyond):.0f}")
    return [*rate.values(), *cpu.values(), *appended.values()]


def replica(setting: Setting) -> Row:
    """Return the row of the bytes that reach a replica, and of sends that wait for it."""
    row = Row("weight: with a replica")
    for size in (200, 64 * KIB):
        weights, rates = _with_replica(setting, size)
        for what, weight in weights.items():
            of_file = weight.replicated / weight.appended
            row.checks.append(Check(f"{named(size)}, {what}: bytes / appended bytes", [of_file], 1.05, at_least=False))
            row.notes.append(f"{named(size)}, {what}: {weight.replicated:,.0f} bytes to the replica")
        row.notes.append(f"{named(size)}: " + ", ".join(f"{what} {rate:,.0f}/s" for what, rate in rates.items()))
        row.figures[named(size)] = rates
    return row


def _with_replica(setting: Setting, size: int) -> tuple[dict[str, Weight], dict[str, float]]:
    """Return the weights of a message, and messages/s of single sends."""
    with persistent_redis() as (server, client), _replica_of(server, client):
        senders = Senders(server.url, client, size)
        senders.send_many(8)
        senders.consume(8)
        messages, singles = volume(setting, 5_000, size), setting.volume(500)
        weights = {"send_many": weighed(client, senders.send_many, messages)}
        weights["claim + ack"] = weighed(client, senders.consume, messages)
        weights["send"] = weighed(client, senders.send, singles)
        rates = {"send": _rate(senders.send, singles)}
        rates["send, durability='replicas=1'"] = _rate(senders.send_durably, singles)
        senders.app.close()
    return weights, rates


@contextlib.contextmanager
def _replica_of(server: EmbeddedRedis, client: redis.Redis) -> Iterator[None]:
    with EmbeddedRedis(settings=("--replicaof", "127.0.0.1", str(server.port))):
        until = time.monotonic() + _IN_STEP
        while time.monotonic() < until and client.info("replication").get("slave0", {}).get("state") != "online":
            time.sleep(0.01)
        yield


def _rate(send: Callable[[int], object], messages: int) -> float:
    began = time.perf_counter()
    send(messages)
    return messages / (time.perf_counter() - began)
