"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable, Sequence

from reliq.ops.request import Argument, Call


def flow_bury(
    *,
    places: Sequence[str],
    delayed: str,
    dead: str,
    index: str,
    id: Argument,
    element: Argument,
    again: Argument,
    counter: Argument,
) -> Call:
    return "flows/flow_bury", (*places, delayed, dead, index), (id, element, again, counter)


def flow_change(
    *, graph: str, every: str, id: Argument, before: Argument, state: Argument, kept: float, dropped: bool
) -> Call:
    return "flows/flow_change", (graph, every), (id, before, state, kept, int(dropped))


def flow_drop(
    *, places: Sequence[str], producers: str, flow: Argument, step: float, forever: bool, ids: Iterable[Argument]
) -> Call:
    return "flows/flow_drop", (*places, producers), (flow, step, int(forever), *ids)


def flow_ended(*, graph: str, every: str, id: Argument, kept: float, joined: bool, ended: Iterable[Argument]) -> Call:
    return "flows/flow_ended", (graph, every), (id, kept, int(joined), *ended)


def flow_ended_ended(*, number: Argument, outcome: Argument) -> tuple[Argument, ...]:
    return (number, outcome)


def flow_hold(
    *, followed: str, lease: str, processing: str, id: Argument, name: Argument, position: Argument, opened: Argument
) -> Call:
    return "flows/flow_hold", (followed, lease, processing), (id, name, position, opened)


def flow_news(*, followed: str, config: str, limit: float) -> Call:
    return "flows/flow_news", (followed, config), (limit,)


def flow_note(
    *,
    followed: str,
    config: str,
    flows: str,
    producers: str,
    flow: Argument,
    step: float,
    members: Iterable[Argument],
    brought: str | None = None,
) -> Call:
    return (
        "flows/flow_note",
        (followed, config, flows, producers, *(() if brought is None else (brought,))),
        (flow, step, *members),
    )


def flow_note_member(*, id: Argument, member: Argument, waits: Argument, behind: Argument) -> tuple[Argument, ...]:
    return (id, member, waits, behind)


def flow_open(
    *,
    graph: str,
    every: str,
    id: Argument,
    size: Argument,
    by: Argument,
    number: Argument,
    fields: Iterable[Argument],
    outer: str | None = None,
) -> Call:
    return "flows/flow_open", (graph, every, *(() if outer is None else (outer,))), (id, size, by, number, *fields)


def flow_opened(*, places: Sequence[str], id: Argument, opened: Argument, outcome: Argument) -> Call:
    return "flows/flow_opened", (*places,), (id, opened, outcome)


def flow_tell(*, places: Sequence[str], delayed: str, index: str, told: Iterable[Argument]) -> Call:
    return "flows/flow_tell", (*places, delayed, index), (*told,)


def flow_tell_told(*, id: Argument, place: Argument, outcome: Argument) -> tuple[Argument, ...]:
    return (id, place, outcome)


def flow_told(*, followed: str, config: str, flows: str, up_to: float) -> Call:
    return "flows/flow_told", (followed, config, flows), (up_to,)


def flow_wait(
    *,
    followed: str,
    config: str,
    counters: str,
    flows: str,
    producers: str,
    flow: Argument,
    step: float,
    waiting: Iterable[Argument],
) -> Call:
    return "flows/flow_wait", (followed, config, counters, flows, producers), (flow, step, *waiting)


def flow_wait_waiting(*, id: Argument, count: Argument, rule: Argument) -> tuple[Argument, ...]:
    return (id, count, rule)
