"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable, Sequence

from reliq.ops.request import Argument, Call


def cycle_add(
    *,
    places: Sequence[str],
    delayed: str,
    producers: str,
    producer: Argument,
    sequence: float,
    members: Iterable[Argument],
) -> Call:
    return "cycle/cycle_add", (*places, delayed, producers), (producer, sequence, *members)


def cycle_add_member(*, member: Argument, key_group: Argument, id: Argument, element: Argument) -> tuple[Argument, ...]:
    return (member, key_group, id, element)


def cycle_remove(*, places: Sequence[str], delayed: str, index: str, groups: Iterable[Argument]) -> Call:
    return "cycle/cycle_remove", (*places, delayed, index), (*groups,)
