"""The keys and arguments of each script, in order; generated from headers by tools/generate_scripts.py."""

from collections.abc import Iterable

from reliq.ops.request import Argument, Call


def flow_hold(*, followed: str, config: str, active: str, waiting: Iterable[Argument]) -> Call:
    return "flows/flow_hold", (followed, config, active), (*waiting,)


def flow_hold_waiting(*, group: Argument, before: Argument) -> tuple[Argument, ...]:
    return (group, before)
