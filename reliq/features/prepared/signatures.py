"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Sequence

from reliq.ops.request import Argument, Call


def ask(
    *,
    prepared: str,
    questions: str,
    record: str,
    dead: str,
    index: str,
    counters: str,
    id: Argument,
    letter: Argument,
    remembered: Argument,
) -> Call:
    return "prepared/ask", (prepared, questions, record, dead, index, counters), (id, letter, remembered)


def decide(
    *,
    places: Sequence[str],
    delayed: str,
    index: str,
    producers: str,
    prepared: str,
    questions: str,
    record: str,
    producer: Argument,
    sequence: float,
    id: Argument,
    decision: Argument,
    remembered: Argument,
    dedup: str | None = None,
) -> Call:
    return (
        "prepared/decide",
        (*places, delayed, index, producers, prepared, questions, record, *(() if dedup is None else (dedup,))),
        (producer, sequence, id, decision, remembered),
    )


def prepare(
    *,
    places: Sequence[str],
    delayed: str,
    producers: str,
    prepared: str,
    record: str,
    producer: Argument,
    sequence: float,
    id: Argument,
    element: Argument,
    delay: Argument,
    every: Argument,
    most: Argument,
    dedup: Argument,
    window: Argument,
    digest: Argument,
) -> Call:
    return (
        "prepared/prepare",
        (*places, delayed, producers, prepared, record),
        (producer, sequence, id, element, delay, every, most, dedup, window, digest),
    )
