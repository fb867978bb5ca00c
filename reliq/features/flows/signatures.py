"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable

from reliq.contract.key_names import NamedKeys
from reliq.ops.request import Argument, Call, Record, Records, flat


def flow_bury(keys: NamedKeys, *, id: Argument, element: Argument, again: Argument, counter: Argument) -> Call:
    return "flows/flow_bury", (*keys.places, keys.delayed, keys.dead, keys.index), (id, element, again, counter)


def flow_change(
    *, graph: str, every: str, id: Argument, before: Argument, state: Argument, kept: float, dropped: bool,
) -> Call:
    return "flows/flow_change", (graph, every), (id, before, state, kept, int(dropped))


def flow_drop(keys: NamedKeys, *, flow: Argument, step: float, forever: bool, ids: Iterable[Argument]) -> Call:
    return (
        "flows/flow_drop",
        (*keys.places, keys.delayed, keys.index, keys.producers),
        (flow, step, int(forever), *ids),
    )


def flow_ended(*, graph: str, every: str, id: Argument, kept: float, joined: bool, ended: Records) -> Call:
    return "flows/flow_ended", (graph, every), (id, kept, int(joined), *flat(ended))


def flow_ended_ended(*, number: Argument, outcome: Argument) -> Record:
    return (number, outcome)


def flow_hold(
    keys: NamedKeys, *, lease: str, processing: str, id: Argument, name: Argument, position: Argument,
    opened: Argument,
) -> Call:
    return "flows/flow_hold", (keys.followed, lease, processing), (id, name, position, opened)


def flow_news(keys: NamedKeys, *, limit: float) -> Call:
    return "flows/flow_news", (keys.followed, keys.config), (limit,)


def flow_note(keys: NamedKeys, *, flow: Argument, step: float, members: Records, brought: str | None = None) -> Call:
    return (
        "flows/flow_note",
        (keys.followed, keys.config, keys.flows, keys.producers, *(() if brought is None else (brought,))),
        (flow, step, *flat(members)),
    )


def flow_note_member(*, id: Argument, member: Argument, behind: Argument) -> Record:
    return (id, member, behind)


def flow_open(
    *, graph: str, every: str, id: Argument, size: Argument, by: Argument, number: Argument, member: Argument,
    fields: Iterable[Argument], outer: str | None = None,
) -> Call:
    return (
        "flows/flow_open",
        (graph, every, *(() if outer is None else (outer,))),
        (id, size, by, number, member, *fields),
    )


def flow_opened(keys: NamedKeys, *, id: Argument, opened: Argument, outcome: Argument) -> Call:
    return "flows/flow_opened", (*keys.places,), (id, opened, outcome)


def flow_tell(keys: NamedKeys, *, told: Records) -> Call:
    return "flows/flow_tell", (*keys.places, keys.delayed, keys.index), (*flat(told),)


def flow_tell_told(*, id: Argument, place: Argument, outcome: Argument) -> Record:
    return (id, place, outcome)


def flow_told(keys: NamedKeys, *, up_to: float) -> Call:
    return "flows/flow_told", (keys.followed, keys.config, keys.flows), (up_to,)


def flow_wait(keys: NamedKeys, *, flow: Argument, step: float, waiting: Records) -> Call:
    return (
        "flows/flow_wait",
        (keys.followed, keys.config, keys.counters, keys.flows, keys.producers),
        (flow, step, *flat(waiting)),
    )


def flow_wait_waiting(*, id: Argument, count: Argument, rule: Argument) -> Record:
    return (id, count, rule)
