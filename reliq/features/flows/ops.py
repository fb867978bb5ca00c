"""Ops of flows: their records, what queues know of their members, and what monitors tell."""

from collections.abc import Iterable, Sequence
from typing import Any

from reliq.features.flows import signatures
from reliq.features.flows.model import OnFailure, Plan, beginning_of, encode_node
from reliq.features.flows.stored import Ended, FlowNews, Happened, Noted
from reliq.model.keys import FLOWS, QueueKeys, flow_record
from reliq.ops.browse import as_names
from reliq.ops.held import Hold
from reliq.ops.request import Argument, Op, Record, as_text, milliseconds, optional_text, read_fields, scripted

KEPT = 3600.0  #: seconds for which the record of a flow stays after its end


# --- the record of a flow ---


def flow_open(plan: Plan, first: int, end: int, parent: str = "", place: tuple[str, str] = ("", "")) -> Op[int]:
    """Store a part of the record of a flow; the reply is the server's time in ms, or 0 if the flow was given up.

    `parent`: queue and id of the message whose handler opens it; `place`: the flow of that, and its number there.
    """
    fields: list[Argument] = [] if first else ["held", 1]
    outer, place_there = place
    member = beginning_of(*parent.split(" ")) if outer else b""
    if parent and not first:
        last = [number for number, behind in enumerate(plan.behind) if not behind]
        fields += ["parent", parent, "rest", len(last), *(part for number in last for part in (f"l{number}", 1))]
    for number in range(first, min(end, len(plan.nodes))):
        fields += [f"m{number}", encode_node(plan.nodes[number])]
    call = signatures.flow_open(
        graph=flow_record(plan.id), every=FLOWS, outer=flow_record(outer) if outer else None, id=plan.id,
        size=len(plan.nodes), by=plan.producer, number=place_there, member=member, fields=fields,
    )  # fmt: skip
    return scripted(call)


def flow_change(flow: str, before: str, state: str, *, dropped: bool = False) -> Op[str]:
    """Change the state of a flow that has one of those before; answers its state, empty if there is none.

    `dropped`: note of one that is in this state that its members are given up, so that no monitor has to.
    """
    call = signatures.flow_change(
        graph=flow_record(flow), every=FLOWS, id=flow, before=before, state=state, kept=milliseconds(KEPT),
        dropped=dropped,
    )  # fmt: skip
    return scripted(call, as_text)


def flow_released(flow: str) -> Op[int]:
    """Note that the members that wait for no others were let go: until then a monitor does it."""
    return Op(("HDEL", flow_record(flow), "held"))


def flow_all_told(flow: str) -> Op[int]:
    """Note that those behind members that ended while the flow was sent were told: until then a monitor does it."""
    return Op(("HDEL", flow_record(flow), "untold"))


def flow_ended(flow: str, ended: Iterable[tuple[int, str]], *, joined: bool = False) -> Op[Ended]:
    """Note what has become of members, by their numbers.

    `joined`: the message whose handler has opened the flow knows how it ended.
    """
    some = (signatures.flow_ended_ended(number=number, outcome=outcome) for number, outcome in ended)
    call = signatures.flow_ended(
        graph=flow_record(flow), every=FLOWS, id=flow, kept=milliseconds(KEPT), joined=joined, ended=some
    )
    return scripted(call, Ended.read)


def flow_ids(limit: int, first: int = 0) -> Op[list[str]]:
    """Read the flows that have not ended, oldest first. `first`: so many of the oldest are left out."""
    return Op(("ZRANGE", FLOWS, first, first + limit - 1), as_names)


def flow_head(flow: str) -> Op[dict[str, str]]:
    """Read the state of a flow, and how many members it has; empty if there is no such flow."""
    names = ("state", "opened", "size", "left", "parent", "dropped", "held", "untold")

    def read(reply: list[bytes | None]) -> dict[str, str]:
        return {name: value.decode() for name, value in zip(names, reply, strict=True) if value is not None}

    return Op(("HMGET", flow_record(flow), *names), read)


def flow_fields(flow: str) -> Op[dict[str, bytes]]:
    """Read the record of a flow."""
    return Op(("HGETALL", flow_record(flow)), read_fields)


def flow_members(flow: str, numbers: Sequence[int]) -> Op[list[bytes | None]]:
    """Read some members from the record of a flow."""
    return Op(("HMGET", flow_record(flow), *(f"m{number}" for number in numbers)))


def flow_outcomes(flow: str, numbers: Sequence[int]) -> Op[list[str | None]]:
    """Read what has become of some members; None: nothing is noted."""
    names = (f"e{number}" for number in numbers)
    return Op(("HMGET", flow_record(flow), *names), lambda reply: [optional_text(one) for one in reply])


def flow_forget(flow: str) -> list[Op[Any]]:
    """Delete a flow from the open ones, with its record: by its expiry, as a producer has no right to DEL."""
    return [Op(("ZREM", FLOWS, flow)), Op(("PEXPIRE", flow_record(flow), 0))]


# --- members in their homes ---


def flow_hold(hold: Hold, opened: str) -> Op[str]:
    """Let those behind a message wait for a flow that its handler opens; answers "ok" or "lost"."""
    return scripted(signatures.flow_hold(hold.keys, opened=opened, **hold.named), as_text)


def flow_opened(keys: QueueKeys, identity: str, opened: str, outcome: str) -> Op[bool]:
    """Tell a message what has become of a flow that its handler has opened."""
    return scripted(signatures.flow_opened(keys, id=identity, opened=opened, outcome=outcome), bool)


def flow_wait(keys: QueueKeys, flow: str, step: int, waiting: Iterable[tuple[str, int, OnFailure]]) -> Op[list[str]]:
    """Note messages that are to wait, before they are enqueued; answers ids that another flow has.

    `step`: higher in each call that sends the flow, so that one which arrives late notes nothing.
    """
    some = (signatures.flow_wait_waiting(id=identity, count=count, rule=rule[0]) for identity, count, rule in waiting)
    call = signatures.flow_wait(keys, flow=flow, step=step, waiting=some)
    return scripted(call, as_names)


def flow_note(
    keys: QueueKeys, members: Iterable[Noted], flow: str = "", step: int = 0, brought: str | None = None
) -> Op[list[str]]:
    """Note members, and who waits for them; answers ids that another flow has.

    `flow`, `step`: as for `flow_wait`. `brought`: in their place, for a message from another home, a key that
    exists once it has entered.
    """
    call = signatures.flow_note(keys, brought=brought, flow=flow, step=step, members=map(_member, members))
    return scripted(call, as_names)


def _member(one: Noted) -> Record:
    behind = "".join(other.text for other in one.behind)
    return signatures.flow_note_member(id=one.id, member=one.member, behind=behind)


def flow_noted(keys: QueueKeys, ids: Sequence[str]) -> Op[list[Noted]]:
    """Read who waits for messages, of those that are members of flows."""

    def read(reply: list[bytes | None]) -> list[Noted]:
        return [Noted.read(one, record) for one, record in zip(ids, reply, strict=True) if record is not None]

    return Op(("HMGET", keys.followed, *(f"\v\v{one}" for one in ids)), read)


def flow_tell(keys: QueueKeys, told: Iterable[tuple[str, int, str]]) -> Op[dict[str, bytes]]:
    """Tell messages, by id and place, what has become of one before them; answers those that are to be dead letters."""
    some = (signatures.flow_tell_told(id=identity, place=place, outcome=outcome) for identity, place, outcome in told)
    call = signatures.flow_tell(keys, told=some)
    return scripted(call, lambda reply: {one.decode(): raw for one, raw in zip(reply[::2], reply[1::2], strict=True)})


def flow_bury(keys: QueueKeys, identity: str, element: bytes, again: bytes, counter: str) -> Op[bool]:
    """Make a message a dead letter that still waits."""
    call = signatures.flow_bury(keys, id=identity, element=element, again=again, counter=counter)
    return scripted(call, bool)


def flow_drop(keys: QueueKeys, flow: str, ids: Sequence[str], *, step: int = 0, forever: bool = False) -> Op[int]:
    """Give up those of the messages of a flow that wait. `step`: as for `flow_wait`, by the producer of the flow."""
    call = signatures.flow_drop(keys, flow=flow, step=step, forever=forever, ids=ids)
    return scripted(call)


def flow_news(keys: QueueKeys, limit: int) -> Op[FlowNews]:
    def read(reply: list[Any]) -> FlowNews:
        up_to, any_flows, *texts = reply
        return FlowNews(
            up_to, any_flows > 0, [Happened.read(part) for text in texts if text for part in text.split(b"\v")]
        )

    return scripted(signatures.flow_news(keys, limit=limit), read)


def flow_told(keys: QueueKeys, up_to: int) -> Op[int]:
    """Forget the news up to a number."""
    call = signatures.flow_told(keys, up_to=up_to)
    return scripted(call)


def stored_results(keys: QueueKeys, ids: Sequence[str]) -> list[Op[list[bytes | None]]]:
    """Read what handlers have returned, as it is stored."""
    return [Op(("HMGET", name, *ids)) for name in (keys.results, keys.earlier_results)]
