"""Ops of flows."""

from collections.abc import Iterable

from reliq.features.flows import signatures
from reliq.model.element import group_of
from reliq.model.keys import QueueKeys
from reliq.ops.request import Argument, Op, scripted


def line_key(identity: str) -> str:
    """Return the key of a message that waits in a flow: no other message has it."""
    return f"\v{identity}"


def flow_hold(keys: QueueKeys, waiting: Iterable[tuple[str, Iterable[str]]]) -> Op[int]:
    """Note for each message that is to wait, by its id, the ids of those that it waits for."""
    some: list[Argument] = []
    for identity, before in waiting:
        some += signatures.flow_hold_waiting(group=group_of(line_key(identity)), before=" ".join(before))
    return scripted(signatures.flow_hold(followed=keys.followed, config=keys.config, active=keys.active, waiting=some))
