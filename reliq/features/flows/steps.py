"""The steps of those who have a flow: they look at it, cancel it, and read the results of its members."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from reliq import ops
from reliq.errors import InvalidBody, ReliqError
from reliq.features.flows import ops as own
from reliq.features.flows.model import (
    ACKED,
    DROPPED,
    FLOW,
    NUMBER,
    AskResults,
    FlowProgress,
    Node,
    beginning_of,
    decode_node,
    members_of,
    number_of,
)
from reliq.features.flows.opened import ALIVE, Opened
from reliq.features.flows.stored import nodes_in, opened_in
from reliq.model.body_types import reader_of
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.model.result import CANCELLED, DEAD, SKIPPED, read_result, result_json
from reliq.ops import Steps
from reliq.ops.coming import Coming
from reliq.protocol.consumer import ConsumerSteps
from reliq.protocol.features import Act, Carried
from reliq.protocol.holds import of_handler
from reliq.runtime.pieces import grouped, pieces

AT_ONCE = 120  #: members that one call is about
_STORED_NOT = (DEAD, CANCELLED, SKIPPED)


def progress(flow: str) -> Steps[FlowProgress | None]:
    """Return the progress of a flow, with its members; None if it does not exist, or ended over an hour ago."""
    fields = yield own.flow_fields(flow)
    if "state" not in fields:
        return None
    head = {name: fields[name].decode() for name in ("state", "opened", "size", "left")}
    nodes, outcomes = nodes_in(fields)
    if head["state"] == "abandoned":  # what was sent of it is cancelled, and the rest never comes
        outcomes = dict.fromkeys(range(len(nodes)), DROPPED) | outcomes
    return _of(flow, head, [*members_of(nodes, outcomes, opened_in(fields))])


def open_flows(limit: int) -> Steps[list[FlowProgress]]:
    """Return the flows that have not ended, oldest first, without their members."""
    ids = yield own.flow_ids(limit)
    heads = (yield [own.flow_head(one) for one in ids]) if ids else ()
    return [_of(one, head, ()) for one, head in zip(ids, heads, strict=True) if head]


def _of(flow: str, head: Mapping[str, str], members: Sequence[Any]) -> FlowProgress:
    left = 0 if head["state"] == "abandoned" else int(head["left"])
    return FlowProgress(flow, head["state"], int(head["opened"]), int(head["size"]), left, members)


def homes_of(queue: str) -> Steps[list[QueueKeys]]:
    """Return the homes of a queue."""
    layout = yield ops.layout(QueueKeys(queue))
    return [QueueKeys(name) for name in layout.every(queue)]


def drop(flow: str, nodes: Iterable[Node], *, forever: bool = False, step: Callable[[], int] = lambda: 0) -> Steps[int]:
    """Give up the members that wait, wherever they are. `step`: numbers the calls of the flow's producer."""
    dropped = 0
    for queue, ids in grouped((node.queue, node.id) for node in nodes).items():
        for keys in (yield from homes_of(queue)):
            for some in pieces(ids, AT_ONCE):
                dropped += yield own.flow_drop(keys, flow, some, step=step(), forever=forever)
    return dropped


def release(flow: str, nodes: Iterable[Node]) -> Steps[None]:
    """Let the members go that wait for no others, of a flow that is open. May be repeated."""
    for queue, ids in grouped((node.queue, node.id) for node in nodes if not node.after).items():
        for keys in (yield from homes_of(queue)):
            for some in pieces(ids, AT_ONCE):
                yield own.flow_tell(keys, [(one, 0, ACKED) for one in some])
    yield own.flow_released(flow)


def cancelled_queues(flow: str) -> Steps[list[tuple[str, str]]]:
    """Cancel a flow, and those that its handlers have opened: the members that wait.

    Return the queues of the others, each with its flow; none: the flow is not open. Who has cancelled these too notes
    that (`note_cancelled`); until then a monitor does it.
    """
    state = yield own.flow_change(flow, ALIVE, "cancelled")
    head = yield own.flow_head(flow)
    if state != "cancelled" or head.get("left") == "0":
        return []
    return (yield from give_up(flow, state))


def give_up(flow: str, state: str) -> Steps[list[tuple[str, str]]]:
    """Give up the members of a flow in this state, cancelled or abandoned; return as `cancelled_queues`.

    May be repeated, and by several at the same time: each member is given up once.
    """
    fields = yield own.flow_fields(flow)
    nodes, _ = nodes_in(fields)
    yield from drop(flow, nodes)
    queues = [(flow, queue) for queue in dict.fromkeys(node.queue for node in nodes)]
    for opened in opened_in(fields).values():
        for one in opened:
            queues += yield from cancelled_queues(one)
    if state != "cancelled":
        yield own.flow_change(flow, state, state, dropped=True)
    return queues


def note_cancelled(queues: Iterable[tuple[str, str]]) -> Steps[None]:
    """Note of flows, each with a queue, that all of their members were cancelled: no monitor has to do it."""
    for flow in dict.fromkeys(flow for flow, _ in queues):
        yield own.flow_change(flow, "cancelled", "cancelled", dropped=True)


def nodes_of(flow: str) -> Steps[list[Node]]:
    """Return the members of a flow."""
    nodes, _ = nodes_in((yield own.flow_fields(flow)))
    return nodes


# --- results ---


def _results(message: Message, kind: Any) -> Steps[list[Any]]:
    flow, number = message.headers.get(FLOW, ""), number_of(message.headers.get(NUMBER, ""))
    if not flow or number is None:
        return []
    (own_node,) = yield own.flow_members(flow, [number])
    if own_node is None:
        raise ReliqError(f"flow {flow} of message {message.id} has ended long ago: its members are forgotten")
    if not own_node.startswith(beginning_of(QueueKeys(message.queue).logical, message.id)):
        raise ReliqError(f"message {message.id} of {message.queue!r} is not of flow {flow}, which its headers name")
    before = decode_node(own_node).after
    nodes: list[Node] = []
    for numbers in pieces(before, AT_ONCE):
        some = yield own.flow_members(flow, numbers)
        nodes += [decode_node(one) for one in some if one is not None]
    found: dict[tuple[str, str], bytes] = {}
    for queue in dict.fromkeys(node.queue for node in nodes):
        ids = [node.id for node in nodes if node.queue == queue]
        for keys in (yield from homes_of(queue)):
            for part in pieces(ids, AT_ONCE):
                yield from _read_results(keys, queue, part, found)
    stored = [found.get((node.queue, node.id)) for node in nodes]
    if kind is not None and None in stored:
        yield from _check_missing(flow, before, nodes, stored)
    read = read_result if kind in (None, Any) else partial(_read_as, kind)
    return [None if one is None or one in _STORED_NOT else read(one) for one in stored]


def _check_missing(
    flow: str, numbers: Sequence[int], nodes: Sequence[Node], stored: Sequence[bytes | None]
) -> Steps[None]:
    """Raise InvalidBody if a message was handled whose result is not kept."""
    missing = [place for place, one in enumerate(stored) if one is None]
    for part in pieces(missing, AT_ONCE):
        outcomes = yield own.flow_outcomes(flow, [numbers[place] for place in part])
        for place, outcome in zip(part, outcomes, strict=True):
            if outcome in (None, ACKED):  # a failure is noted before those behind it are told
                queue = nodes[place].queue
                raise InvalidBody(
                    f"there is no result of message {nodes[place].id} of {queue!r}, for which this one waited: give "
                    f'the handler of {queue!r} result="7d", a time longer than the flow takes',
                    "$",
                )


def _read_as(kind: Any, stored: bytes) -> Any:
    text = result_json(stored)
    if kind is bytes:
        return stored[1:]
    if text is None:
        raise InvalidBody("a result of the messages before this one in the flow is bytes: take Results[bytes]", "$")
    try:
        return reader_of(kind)(text)
    except InvalidBody as error:
        raise InvalidBody(f"a result of the messages before this one in the flow: {error}", error.path) from None


def _read_results(keys: QueueKeys, queue: str, ids: Sequence[str], found: dict[tuple[str, str], bytes]) -> Steps[None]:
    latest, earlier = yield own.stored_results(keys, ids)
    for identity, *both in zip(ids, latest, earlier, strict=True):
        result = next((one for one in both if one is not None), None)
        if result is not None:
            found[queue, identity] = result


def _ask(consumer: ConsumerSteps, message: Message, asked: AskResults | Opened) -> Any:
    if isinstance(asked, Opened):
        return of_handler(consumer, message)
    return consumer.run_report(_results(message, asked.kind))


OF_FLOWS = Act({AskResults: "results", Opened: "flow"}, _ask)


# --- other homes ---


def _carry(keys: QueueKeys, home: QueueKeys, coming: Sequence[Coming]) -> Steps[None]:
    """Copy what is known of members that are taken to another home."""
    marks = {one.id: one.mark for one in coming}
    for one in (yield own.flow_noted(keys, [*marks])):
        behind = [
            other._replace(home="" if (other.home or keys.queue) == home.queue else other.home or keys.queue)
            for other in one.behind
        ]
        yield own.flow_note(home, [one._replace(behind=behind)], brought=marks[one.id])


CARRIED = Carried(_carry)
