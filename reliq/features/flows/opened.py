"""Flows that a handler opens: those behind its message, in a flow of its own, wait for them too.

The id of such a flow follows from the message, so a later run of the handler finds it. What is known of the message has
the flow from before its first message is enqueued until it has ended. Its last messages, for which no other waits, say
what it has come to. Who notes an end of its messages tells that message; a monitor does what was left undone.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from reliq.errors import InvalidSetting
from reliq.features.flows import ops as own
from reliq.features.flows.model import FLOW, NUMBER, Plan
from reliq.features.flows.stored import Ended
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Steps, layout
from reliq.ops.held import Hold, not_held

ALIVE = "sending open"  #: the states in which a flow may still be changed
FORGOTTEN = "acked"  #: what a message is told of a flow that is not to be waited for


class Opened(NamedTuple):
    """What a handler asks for: the hold of its message."""


class Parent(NamedTuple):
    """The message whose handler opens a flow. `hold`: what its consumer has of it; raises LeaseLost."""

    message: Message
    name: str
    hold: Callable[[], Hold]

    @classmethod
    def of_handler(cls, message: object, name: str) -> "Parent":
        """Return a message as a parent; raises InvalidSetting if no handler has it here."""
        if not isinstance(message, Message) or message.holder is None:
            raise InvalidSetting(f"parent is {message!r}: give the message that the handler has got")
        holder = message.holder
        return cls(message, name, lambda: holder.act(message, Opened()))

    @property
    def text(self) -> str:
        """It, as the record of the flow has it."""
        return f"{QueueKeys(self.message.queue).logical} {self.message.id}"

    def flow_id(self, attempt: int) -> str:
        """Return the id of a flow; another attempt follows one that was given up."""
        return hashlib.sha256(f"{self.text} {self.name} {attempt}".encode()).hexdigest()[:16]

    @property
    def place(self) -> tuple[str, str]:
        """The flow that the message is of, and its number there; empty if it is of none."""
        headers = self.message.headers
        return headers.get(FLOW, ""), headers.get(NUMBER, "")


def hold(plan: Plan, parent: Parent) -> Steps[None]:
    """Let those behind the message wait for the flow; raises LeaseLost."""
    held = parent.hold()
    if (yield own.flow_hold(held, plan.id)) == "lost":
        raise not_held(parent.message)


def join(flow: str, ended: Ended | None = None) -> Steps[None]:
    """Tell the message whose handler has opened a flow, if one has, what the flow has come to. Safe to repeat."""
    ended = ended or (yield own.flow_ended(flow, ()))
    if not ended.parent:
        return
    queue, identity = ended.parent.split(" ")
    yield from tell_parent(queue, identity, flow, ended.outcome)
    if not ended.left:
        yield own.flow_ended(flow, (), joined=True)


def tell_parent(queue: str, identity: str, flow: str, outcome: str) -> Steps[None]:
    """Tell a message of its flow, wherever it is."""
    for name in (yield layout(QueueKeys(queue))).every(queue):
        yield own.flow_opened(QueueKeys(name), identity, flow, outcome)
