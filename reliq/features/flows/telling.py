"""The steps by which monitors tell the members of flows what has become of those they wait for."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from reliq.features.flows import ops as own
from reliq.features.flows.finishing import Cancellations
from reliq.features.flows.model import ACKED, DEAD, REVIVED, Node
from reliq.features.flows.opened import FORGOTTEN, join, tell_parent
from reliq.features.flows.steps import AT_ONCE, drop, give_up, homes_of, nodes_of, release
from reliq.features.flows.stored import Happened, Noted, nodes_in
from reliq.model.element import Undecodable
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Steps
from reliq.ops.schema import Counter
from reliq.runtime.pieces import grouped, pieces

_TEXTS = 100  #: that one call reads
_PER_TRIP = 10  #: calls about AT_ONCE members each
_REASON = "predecessor"
LOST = "lost"
_STAY = (None, DEAD, REVIVED)  #: what has happened to members that are in their queues

Told = tuple[str, int, str]  #: the id of a message, the place of one that it waits for, and what became of that


def tell(keys: QueueKeys) -> Steps[int]:
    """Tell everyone what has happened to members in one home; return how many. Safe to repeat."""
    news = yield own.flow_news(keys, _TEXTS)
    states = yield from _note_ends(news.happened)
    told: dict[str, list[Told]] = {}
    dropped: dict[tuple[str, str], list[str]] = {}
    for one in news.happened:
        for other in one.behind if one.outcome != REVIVED else ():
            home, state = other.home or keys.queue, states[one.flow]
            if state == "abandoned":  # nothing of it is to run
                dropped.setdefault((home, one.flow), []).append(other.id)
            elif state != "sending":  # else they are told when it begins
                told.setdefault(home, []).append((other.id, other.place, one.outcome))
    for home, some in told.items():
        yield from _tell(QueueKeys(home), some)
    for (home, flow), ids in dropped.items():
        for part in pieces(ids, AT_ONCE):
            yield own.flow_drop(QueueKeys(home), flow, part)
    if news.happened or not news.any_flows:
        yield own.flow_told(keys, news.up_to)
    return len(news.happened)


def tell_all() -> Steps[bool]:
    """Do so for all flows; return whether anything has happened."""
    count = 0
    for flow in (yield own.flow_ids(AT_ONCE)):
        for queue in dict.fromkeys(node.queue for node in (yield from nodes_of(flow))):
            for keys in (yield from homes_of(queue)):
                count += yield from tell(keys)
    return count > 0


def _note_ends(happened: Iterable[Happened]) -> Steps[dict[str, str]]:
    """Note them in the records of their flows; return the states of these."""
    states = {}
    for flow, some in grouped((one.flow, (one.number, one.outcome)) for one in happened).items():
        for part in pieces(some, AT_ONCE):
            left = yield own.flow_ended(flow, part)
            if left.parent and (left.outcome != "open" or any(outcome == REVIVED for _, outcome in part)):
                yield from join(flow, left)
            states[flow] = left.state
    return states


def _tell(keys: QueueKeys, told: Sequence[Told]) -> Steps[None]:
    for some in pieces(told, AT_ONCE):
        failed: Mapping[str, bytes] = yield own.flow_tell(keys, some)
        for identity, element in failed.items():
            letter = element  # as it is, if nobody can read it
            with suppress(Undecodable):
                letter = Message.decode(keys.queue, element).buried(_REASON)
            yield own.flow_bury(keys, identity, element, letter, Counter.dead(_REASON))


def _tell_behind(nodes: Iterable[Node], ended: Mapping[int, str]) -> Steps[None]:
    """Tell the members that wait for some of these, which are given by their numbers."""
    for queue, some in grouped((node.queue, node) for node in nodes).items():
        told = [
            (node.id, place, ended[before])
            for node in some
            for place, before in enumerate(node.after)
            if before in ended
        ]
        for keys in (yield from homes_of(queue)) if told else ():
            yield from _tell(keys, told)


# --- flows whose producer or whose members are gone ---

_MEND_EVERY = 60.0  #: seconds between two looks at the members of one flow
_SENDING_FOR_MS = 600_000  #: after so long the producer of a flow is taken for dead
_DROPPED_FOR_MS = 86_400_000  #: for so long messages are refused of a flow that was given up


def mend_after(head: Mapping[str, str], now: int) -> float:
    """Return the seconds between two looks at the members of a flow; more as one gets older that was given up."""
    age = (now - int(head["opened"])) / 1000
    return max(_MEND_EVERY, age / 4 if head["state"] == "abandoned" else 0.0)


def tend(flow: str, head: Mapping[str, str] | None, now: int, cancellations: Cancellations) -> Steps[bool]:
    """Give a flow up whose producer is gone, cancel one whose canceller is, and forget one of either; return whether
    it was one of these. One that is open, and whose first messages still wait, begins.

    `head`: what `own.flow_head` has read; None: it is read here. `now`: ms of the server's clock.
    """
    if head is None:
        head = yield own.flow_head(flow)
    if not head:
        yield own.flow_forget(flow)
        return True
    age, state = now - int(head["opened"]), head["state"]
    if head.get("parent") and head["left"] == "0":
        yield from join(flow)
    if state == "sending" and age > _SENDING_FOR_MS:
        state = yield own.flow_change(flow, "sending", "abandoned")
    if state == "open" and ("held" in head or "untold" in head):
        yield from _release_all(flow)
    if state not in ("cancelled", "abandoned"):
        return False
    if "dropped" not in head:  # who began to give it up may have died
        if state == "cancelled":
            yield from cancellations.go_on(flow)
            return True
        yield from join(flow)
        yield from give_up(flow, state)
        return True
    if age <= _DROPPED_FOR_MS:
        return False
    yield from drop(flow, (yield from nodes_of(flow)), forever=True)
    yield own.flow_forget(flow)
    return True


def _release_all(flow: str) -> Steps[None]:
    """Let the first members go, if the producer has died before it did so, and tell those behind members that ended
    while the flow was sent: they were purged, or cancelled. None was acked then; an ack since has told its own home.
    """
    nodes, outcomes = nodes_in((yield own.flow_fields(flow)))
    yield from release(flow, nodes)
    ended = {number: outcome for number, outcome in outcomes.items() if outcome not in (ACKED, REVIVED)}
    yield from _tell_behind(nodes, ended)
    yield own.flow_all_told(flow)


_Notes = dict[tuple[str, str], Noted]  #: by queue and id: what is known of a member


def mend(flow: str) -> Steps[int]:
    """Tell those who wait for members that are gone without a trace, as their queue was deleted; return how many.

    Of a flow that was given up, give up what its producer has sent since.
    """
    members = yield from nodes_of(flow)
    homes, noted = yield from _look(members)
    reads = [own.flow_news(keys, 1) for some in homes.values() for keys in some]
    news = (yield reads) if reads else ()
    yield from _remind(noted)
    fields = yield own.flow_fields(flow)  # behind the looks: what they do not find was noted before
    if fields.get("state") in (b"cancelled", b"abandoned"):
        yield from drop(flow, members)
    if any(one.happened for one in news) or fields.get("state") != b"open":
        return 0
    nodes, outcomes = nodes_in(fields)
    missing = {
        number
        for number, node in enumerate(nodes)
        if outcomes.get(number) in _STAY and (node.queue, node.id) not in noted
    }
    # Again: one that was on its way home may have come where the first look had been before.
    _, noted = yield from _look([nodes[number] for number in missing])
    lost = {number for number in missing if (nodes[number].queue, nodes[number].id) not in noted}
    if not lost:
        return 0
    yield own.flow_ended(flow, [(number, LOST) for number in sorted(lost)])
    yield from _tell_behind(members, dict.fromkeys(lost, LOST))
    return len(lost)


def _remind(noted: _Notes) -> Steps[None]:
    """Tell members of flows that their handlers have opened and that have ended, or are forgotten."""
    for (queue, identity), one in noted.items():
        for opened in one.opened:
            ended = yield own.flow_ended(opened, ())
            if not ended.state:
                yield from tell_parent(queue, identity, opened, FORGOTTEN)
            elif not ended.left:
                yield from join(opened, ended)


def _look(members: Iterable[Node]) -> Steps[tuple[dict[str, Sequence[QueueKeys]], _Notes]]:
    """Return the homes of the queues, and what they know of these members; one that is in no home is left out."""
    homes: dict[str, Sequence[QueueKeys]] = {}
    noted: _Notes = {}
    for queue, ids in grouped((node.queue, node.id) for node in members).items():
        homes[queue] = yield from homes_of(queue)
        for keys in homes[queue]:
            left = [one for one in ids if (queue, one) not in noted]
            for some in pieces([*pieces(left, AT_ONCE)], _PER_TRIP):
                for found in (yield [own.flow_noted(keys, part) for part in some]):
                    noted |= {(queue, one.id): one for one in found}
    return homes, noted
