"""The steps of those who have a flow: they look at it, cancel it, and read the results of its members."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from reliq import ops
from reliq.errors import ReliqError
from reliq.features.flows import ops as own
from reliq.features.flows.model import FLOW, NUMBER, Asked, FlowProgress, Node, decode_node, members_of
from reliq.features.flows.opened import ALIVE, Opened
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.model.partitions import read_layout
from reliq.model.result import CANCELLED, DEAD, read_result
from reliq.ops import Steps
from reliq.ops.partitions import Coming
from reliq.protocol.act import Act
from reliq.protocol.along import Along
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.holding import of_handler

AT_ONCE = 120  #: members that one call is about
_STORED_NOT = (DEAD, CANCELLED)


def progress(flow: str) -> Steps[FlowProgress | None]:
    """Return the progress of a flow, with its members; None if it does not exist, or ended over an hour ago."""
    fields = yield own.flow_fields(flow)
    if "state" not in fields:
        return None
    raw, outcomes = own.nodes_in(fields)
    head = {name: fields[name].decode() for name in ("state", "opened", "size", "left")}
    return _of(flow, head, [*members_of([decode_node(one) for one in raw], outcomes, own.opened_in(fields))])


def open_flows(limit: int) -> Steps[list[FlowProgress]]:
    """Return the flows that have not ended, oldest first, without their members."""
    ids = yield own.flow_ids(limit)
    heads = (yield [own.flow_head(one) for one in ids]) if ids else ()
    return [_of(one, head, ()) for one, head in zip(ids, heads, strict=True) if head]


def _of(flow: str, head: Mapping[str, str], members: Sequence[Any]) -> FlowProgress:
    return FlowProgress(flow, head["state"], int(head["opened"]), int(head["size"]), int(head["left"]), members)


def homes_of(queue: str) -> Steps[list[QueueKeys]]:
    """Return the homes of a queue."""
    layout = read_layout((yield ops.layout(QueueKeys(queue))))
    return [QueueKeys(name) for name in layout.every(queue)]


def drop(flow: str, nodes: Iterable[Node], *, forever: bool = False) -> Steps[int]:
    """Give up the members that wait, wherever they are."""
    by_queue: dict[str, list[str]] = {}
    for node in nodes:
        by_queue.setdefault(node.queue, []).append(node.id)
    dropped = 0
    for queue, ids in by_queue.items():
        for keys in (yield from homes_of(queue)):
            for start in range(0, len(ids), AT_ONCE):
                dropped += yield own.flow_drop(keys, flow, ids[start : start + AT_ONCE], forever=forever)
    return dropped


def cancelled_queues(flow: str) -> Steps[list[tuple[str, str]]]:
    """Cancel a flow, and those that its handlers have opened: the members that wait.

    Return the queues of the others, each with its flow; none: the flow is not open.
    """
    state = yield own.flow_change(flow, ALIVE, "cancelled")
    head = yield own.flow_head(flow)
    if state != "cancelled" or head.get("left") == "0":
        return []
    fields = yield own.flow_fields(flow)
    nodes = [decode_node(one) for one in own.nodes_in(fields)[0]]
    yield from drop(flow, nodes)
    queues = [(flow, queue) for queue in dict.fromkeys(node.queue for node in nodes)]
    for opened in own.opened_in(fields).values():
        for one in opened:
            queues += yield from cancelled_queues(one)
    return queues


def nodes_of(flow: str) -> Steps[list[Node]]:
    """Return the members of a flow."""
    raw, _ = own.nodes_in((yield own.flow_fields(flow)))
    return [decode_node(one) for one in raw]


# --- results ---


def _results(message: Message) -> Steps[list[Any]]:
    headers = message.headers
    if FLOW not in headers:
        raise ReliqError(f"message {message.id} of {message.queue!r} is not of a flow: it has waited for no others")
    (own_node,) = yield own.flow_members(headers[FLOW], [int(headers[NUMBER])])
    if own_node is None:
        raise ReliqError(f"flow {headers[FLOW]} of message {message.id} has ended long ago: its members are forgotten")
    before = decode_node(own_node).after
    nodes: list[Node] = []
    for start in range(0, len(before), AT_ONCE):
        some = yield own.flow_members(headers[FLOW], before[start : start + AT_ONCE])
        nodes += [decode_node(one) for one in some if one is not None]
    found: dict[tuple[str, str], bytes] = {}
    for queue in dict.fromkeys(node.queue for node in nodes):
        ids = [node.id for node in nodes if node.queue == queue]
        for keys in (yield from homes_of(queue)):
            for start in range(0, len(ids), AT_ONCE):
                yield from _stored(keys, queue, ids[start : start + AT_ONCE], found)
    stored = (found.get((node.queue, node.id)) for node in nodes)
    return [None if one is None or one in _STORED_NOT else read_result(one) for one in stored]


def _stored(keys: QueueKeys, queue: str, ids: Sequence[str], found: dict[tuple[str, str], bytes]) -> Steps[None]:
    latest, earlier = yield own.stored_results(keys, ids)
    for identity, *both in zip(ids, latest, earlier, strict=True):
        result = next((one for one in both if one is not None), None)
        if result is not None:
            found[queue, identity] = result


def _ask(consumer: ConsumerSteps, message: Message, asked: Asked | Opened) -> Any:
    if isinstance(asked, Opened):
        return of_handler(consumer, message)
    return consumer.run_report(_results(message))


OF_FLOWS = Act((Asked, Opened), _ask)


# --- other partitions ---


def _take_along(keys: QueueKeys, home: QueueKeys, coming: Sequence[Coming]) -> Steps[None]:
    """Copy what is known of members that are taken to another home."""
    marks = {one.id: one.mark for one in coming}
    for one in (yield own.flow_noted(keys, [*marks])):
        behind = [
            other._replace(home="" if (other.home or keys.queue) == home.queue else other.home or keys.queue)
            for other in one.behind
        ]
        yield own.flow_note(home, [one._replace(behind=behind)], marks[one.id])


ALONG = Along(_take_along)
