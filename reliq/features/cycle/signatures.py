"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable

from reliq.contract.key_names import NamedKeys
from reliq.ops.request import Argument, Call, Record, Records, flat


def cycle_add(keys: NamedKeys, *, producer: Argument, sequence: float, members: Records) -> Call:
    return "cycle/cycle_add", (*keys.places, keys.delayed, keys.producers), (producer, sequence, *flat(members))


def cycle_add_member(*, member: Argument, key_group: Argument, id: Argument, element: Argument) -> Record:
    return (member, key_group, id, element)


def cycle_remove(keys: NamedKeys, *, groups: Iterable[Argument], call: str | None = None) -> Call:
    return (
        "cycle/cycle_remove",
        (*keys.places, keys.delayed, keys.index, *(() if call is None else (call,))),
        (*groups,),
    )
