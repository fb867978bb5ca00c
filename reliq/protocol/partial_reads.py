"""Reads of an operator that go on without a part of a Redis Cluster that does not answer; see reliq.runtime.looking."""

from collections.abc import Sequence
from typing import TypeVar

from reliq import ops
from reliq.errors import ReliqError
from reliq.model.keys import logical_name
from reliq.ops import Steps, Together
from reliq.ops.topology import address_of, cluster_slots
from reliq.runtime.looking import is_away, unseen

T = TypeVar("T")

QUEUES = "the list of all queues"


def or_unseen(what: str, steps: Steps[T], otherwise: T) -> Steps[T]:
    """Run steps for an operator; `otherwise` is the answer if `what` does not answer, which is noted."""
    try:
        return (yield from steps)
    except ReliqError as error:
        if not unseen(what, error):
            raise
        return otherwise


def every_queue(known: Sequence[str] = ()) -> Steps[list[str]]:
    """Read the names of all queues on this server; of one with several homes, its own name.

    `known`: those that were read before, for an operator to whom the node with the names does not answer.
    """
    names = yield from or_unseen(QUEUES, ops.one(ops.queue_names()), list(known))
    return [name for name in names if name == logical_name(name)]


def nodes_away() -> Steps[tuple[int, dict[str, str]]]:
    """Ask each master with slots; return how many there are, and why those that did not answer did not."""
    slots = yield cluster_slots(("", 0))
    answers = yield Together([ops.one(ops.exists(slots.key_on(node))) for node in slots.nodes])
    away = {
        address_of(node): str(answer)
        for node, answer in zip(slots.nodes, answers, strict=True)
        if isinstance(answer, ReliqError) and is_away(answer)
    }
    return len(slots.nodes), away
