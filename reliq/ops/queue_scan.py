"""Reads of many queues at once, with which the monitor finds out what to do."""

from collections.abc import Sequence

from reliq.model.keys import QueueKeys
from reliq.ops import signatures
from reliq.ops.request import Op, milliseconds, scripted


def existing(names: Sequence[str]) -> Op[list[int]]:
    """Read the positions, from 1, of those keys that exist."""
    if len(names) == 1:  # the case of a cluster; the script would cost several times as much
        return Op(("EXISTS", names[0]), lambda reply: [1] * reply)
    return scripted(signatures.existing(names=names), list)


def any_exists(names: Sequence[str]) -> Op[bool]:
    """Read whether any of these keys exists: half the commands of `existing`."""
    return Op(("EXISTS", *names), bool)


def due(queues: Sequence[QueueKeys], ahead: float) -> Op[list[int]]:
    """Read in how many ms the next delayed message of each queue is due; -1: none within `ahead` seconds."""
    call = signatures.due(delayed=[keys.delayed for keys in queues], ahead=milliseconds(ahead))
    return scripted(call, list)
