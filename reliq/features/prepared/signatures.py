"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from reliq.contract.key_names import NamedKeys
from reliq.ops.request import Argument, Call


def ask(keys: NamedKeys, *, record: str, id: Argument, letter: Argument, remembered: Argument) -> Call:
    return (
        "prepared/ask",
        (*keys.places, keys.prepared, keys.questions, record, keys.dead, keys.index),
        (id, letter, remembered),
    )


def decide(
    keys: NamedKeys, *, record: str, producer: Argument, sequence: float, id: Argument, decision: Argument,
    remembered: Argument, elsewhere: Argument, dedup: str | None = None,
) -> Call:
    return (
        "prepared/decide",
        (*keys.places, keys.delayed, keys.index, keys.producers, keys.prepared, keys.questions, record,
        *(() if dedup is None else (dedup,))),
        (producer, sequence, id, decision, remembered, elsewhere),
    )


def prepare(
    keys: NamedKeys, *, record: str, producer: Argument, sequence: float, id: Argument, element: Argument,
    delay: Argument, every: Argument, most: Argument, dedup: Argument, window: Argument, digest: Argument,
) -> Call:
    return (
        "prepared/prepare",
        (*keys.places, keys.delayed, keys.producers, keys.prepared, record),
        (producer, sequence, id, element, delay, every, most, dedup, window, digest),
    )
