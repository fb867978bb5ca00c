"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable

from reliq.contract.key_names import NamedKeys
from reliq.ops.request import Argument, Call, flat


def bind(*, topics: str, verb: Argument, bindings: Iterable[Argument], call: str | None = None) -> Call:
    return "topics/bind", (topics, *(() if call is None else (call,))), (verb, *bindings)


def publish(
    *, queues: Iterable[tuple[str, ...]], producer: Argument, sequence: float, id: Argument, element: Argument,
    delay: float, homes: Iterable[Argument],
) -> Call:
    return "topics/publish", (*flat(queues),), (producer, sequence, id, element, delay, *homes)


def publish_queue(keys: NamedKeys) -> tuple[str, ...]:
    return (*keys.places, keys.delayed, keys.index, keys.producers)
