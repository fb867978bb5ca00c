"""Bodies from 200 bytes to 256 KiB with the append-only file on: consuming, beside a Streams loop and BullMQ."""

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import redis

import reliq
from bench.suite.contestants import Contestant, Failed
from bench.suite.harness import Check, Row, Setting, ratios, shown
from bench.suite.weighing import KIB, SIZES, Ordered, Weight, named, persistent_redis, volume, write_out
from bench.suite.weight_moves import moves
from bench.suite.weight_send import replica, sends
from reliq.embedded import EmbeddedRedis

_MOST = 40_000  #: messages of one round

RELIQ = Contestant("reliq", "weighed.py", _MOST, "reliq", "reliq", kind="reliq")
STREAMS = Contestant("Streams", "weighed.py", _MOST, "reliq", "streams", kind="hand")
BULLMQ = Contestant("BullMQ", "weighed_bullmq.mjs", 500)
FIELD = (RELIQ, STREAMS, BULLMQ)


@dataclass(slots=True)
class Consumed:
    """The rounds of one contestant at one size."""

    rates: list[float] = field(default_factory=list)
    weights: list[Weight] = field(default_factory=list)
    client_us: list[float] = field(default_factory=list)
    peak_mib: float = 0.0

    def of(self, what: str) -> list[float]:
        return [getattr(weight, what) for weight in self.weights]


Results = dict[int, dict[str, Consumed]]


def fill(one: Contestant, process: Ordered, url: str, messages: int, size: int) -> None:
    if one.script.endswith(".mjs"):
        process.order("fill", messages, size)
        return
    body, some = b"x" * size, max(1, min(1000, 4 * KIB * KIB // size))
    starts = range(0, messages, some)
    if one.variant == "reliq":
        with reliq.Reliq(url) as app:
            for start in starts:
                app.queue("bench").send_many([body] * min(some, messages - start))
        return
    with redis.Redis.from_url(url) as client:
        client.xgroup_create("stream", "group", id="0", mkstream=True)
        for start in starts:
            pipeline = client.pipeline(transaction=False)
            for _ in range(min(some, messages - start)):
                pipeline.xadd("stream", {"body": body})
            pipeline.execute()


def run(one: Contestant, process: Ordered, server: EmbeddedRedis, messages: int, size: int, result: Consumed) -> None:
    """One round of one contestant, on an empty server."""
    with redis.Redis(port=server.port) as client:
        client.flushall()
        fill(one, process, server.url, messages, size)
        process.order("start")
        write_out(server)
        before = Weight.read(client)
        answer = process.order("go", messages)
        result.weights.append(before.each(Weight.read(client), messages))
        process.order("stop")
    result.rates.append(messages / answer["seconds"])
    result.client_us.append(answer["cpu"] / messages * 1e6)
    result.peak_mib = answer["peak_kib"] / KIB


def consumed(setting: Setting, size: int, field: Sequence[Contestant], absent: dict[str, str]) -> dict[str, Consumed]:
    """All contestants at one size, round by round."""
    results = {one.name: Consumed() for one in field}
    with persistent_redis() as (server, _), contextlib.ExitStack() as started:
        processes = {one.name: started.enter_context(Ordered(one, server.url)) for one in field}
        for number in range(-1, setting.rounds):  # the first one loads the scripts, and is forgotten
            for one in field if number % 2 else field[::-1]:
                result = results[one.name] if number >= 0 else Consumed()
                messages = volume(setting, one.messages, size) if number >= 0 else 8
                try:
                    if one.name not in absent:
                        run(one, processes[one.name], server, messages, size, result)
                except Failed as error:
                    absent[one.name] = f"failed at {named(size)}: {error}"
    line = "  ".join(f"{name} {shown(result.rates)}/s" for name, result in results.items() if result.rates)
    print(f"  {named(size):8} {line}", flush=True)
    return {name: result for name, result in results.items() if result.rates}


def _medians(results: Results, values: Callable[[Consumed], list[float]], form: str) -> list[str]:
    """Return a line for each size with the medians of all contestants."""
    return [
        f"{named(size)}: "
        + ", ".join(f"{name} {statistics.median(values(result)):{form}}" for name, result in by_name.items())
        for size, by_name in results.items()
    ]


def _row(
    what: str, results: Results, values: Callable[[Consumed], list[float]], form: str, check: Callable[..., Check]
) -> Row:
    """A row with a check for each size, made from the size and from the values of reliq and of the Streams loop."""
    row = Row(f"weight: {what}", notes=_medians(results, values, form))
    row.checks = [
        check(size, values(by_name[RELIQ.name]), values(by_name[STREAMS.name]))
        for size, by_name in results.items()
        if RELIQ.name in by_name and STREAMS.name in by_name
    ]
    row.figures = {named(size): {name: values(one) for name, one in found.items()} for size, found in results.items()}
    return row


def _rate(size: int, ours: list[float], theirs: list[float]) -> Check:
    return Check(f"{named(size)}: reliq / Streams", ratios(ours, theirs), 1.2 if size <= KIB else 1.0)


def _cpu(size: int, ours: list[float], theirs: list[float]) -> Check:
    bound = 0.7 if size == SIZES[0] else 1.0
    return Check(f"{named(size)}: reliq / Streams", ratios(ours, theirs), bound, at_least=False)


def _at_most(bound: float) -> Callable[..., Check]:
    return lambda size, ours, _: Check(f"{named(size)}: bytes a message", ours, bound, at_least=False)


def consume_rows(results: Results, absent: dict[str, str]) -> list[Row]:
    rate = _row("consume, messages/s", results, lambda one: one.rates, ",.0f", _rate)
    rate.notes += [f"{name}: {why}" for name, why in absent.items()]
    rate.notes += [f"client CPU, us a message, {one}" for one in _medians(results, lambda one: one.client_us, ".1f")]
    rate.notes += [f"peak memory, MiB, {one}" for one in _medians(results, lambda one: [one.peak_mib], ".0f")]
    return [
        rate,
        _row("Redis CPU of claim + ack, us", results, lambda one: one.of("cpu_us"), ".1f", _cpu),
        _row(
            "bytes appended to the file by claim + ack", results, lambda one: one.of("appended"), ",.0f", _at_most(130)
        ),
        _row("bytes to Redis for claim + ack", results, lambda one: one.of("received"), ",.0f", _at_most(120)),
    ]


def missing(field: Sequence[Contestant]) -> dict[str, str]:
    """Say why contestants cannot take part."""
    absent = {}
    for one in field:
        try:
            one.about()
        except (Failed, OSError) as error:
            absent[one.name] = f"not installed: {error}"
    return absent


def rows(setting: Setting, field: Sequence[Contestant] = FIELD, sizes: Sequence[int] = SIZES) -> list[Row]:
    absent = missing(field)
    there = [one for one in field if one.name not in absent]
    results = {size: consumed(setting, size, there, absent) for size in sizes}
    return [*consume_rows(results, absent), *sends(setting, sizes), moves(setting), replica(setting)]
