"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable, Sequence

from reliq.ops.request import Argument, Call


def bind(*, topics: str, verb: Argument, bindings: Iterable[Argument]) -> Call:
    return "topics/bind", (topics,), (verb, *bindings)


def publish(
    *,
    producers: str,
    queues: Iterable[str],
    producer: Argument,
    sequence: float,
    id: Argument,
    element: Argument,
    delay: float,
    homes: Iterable[Argument],
) -> Call:
    return "topics/publish", (producers, *queues), (producer, sequence, id, element, delay, *homes)


def publish_queue(*, places: Sequence[str], delayed: str, index: str) -> tuple[str, ...]:
    return (*places, delayed, index)
