"""The steps that send a flow: the lines of the messages that wait, these messages, and the first ones at last.

If the producer ends half way, none of its messages has run.
"""

from reliq.errors import InvalidSetting
from reliq.features.flows import ops as own
from reliq.features.flows.model import Plan
from reliq.ops import Steps
from reliq.protocol.queue import QueueSteps

_AT_ONCE = 1000  #: messages that wait, of one call
_EDGES = 20_000  #: for how many others, of one call


def send(steps: QueueSteps, plan: Plan) -> Steps[None]:
    """Send a flow; raises as `QueueSteps.send_many`, and InvalidSetting for a queue with partitions."""
    every = yield from steps.homes.every()
    if len(every) > 1:
        raise InvalidSetting(f"queue {steps.keys.queue!r} has partitions, in which no message waits for another one")
    part: list[tuple[str, list[str]]] = []
    edges = 0
    for message, before in plan.waiting:
        part.append((message.id, before))
        edges += len(before)
        if len(part) >= _AT_ONCE or edges >= _EDGES:
            yield own.flow_hold(every[0].keys, part)
            part, edges = [], 0
    if part:
        yield own.flow_hold(every[0].keys, part)
    for some in ([message for message, _ in plan.waiting], plan.first):
        if some:
            yield from steps.send_many(some, None, None)
