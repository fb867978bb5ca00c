"""Receives without a claim: one script puts ready messages in flight, as long as none of them has to be looked at."""

import time
from collections.abc import Sequence

from reliq import ops
from reliq.errors import OutcomeUnknown
from reliq.features.receipts import ops as own
from reliq.features.receipts.model import ReceiveRequest
from reliq.features.receipts.ops import Ready
from reliq.model.element import Undecodable, name_of, new_nonce
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops import Steps
from reliq.protocol.bodies import read_bodies

RETURNED_AT_ONCE = 100  #: messages that one call makes visible again
_SHORTEST = 1.0  #: seconds of visibility
_SLACK = 1.0  #: seconds by which clocks may run apart while an answer is lost
_NONCE = 8  #: bytes, at the end of a message's name


def is_plain(wanted: ReceiveRequest) -> bool:
    """Whether a receive can do without a claim: not one that is repeated, or that might meet its own messages again."""
    return wanted.attempt is None and wanted.visibility >= _SHORTEST


def receive_ready(keys: QueueKeys, wanted: ReceiveRequest) -> Steps[tuple[list[Message], Ready]]:
    """Receive from a home what nothing forbids; second, what the latest call has answered."""
    ready = yield from _ready(keys, wanted)
    found, broken = _decoded(keys, ready.elements)
    if broken:  # a claim makes dead letters of them
        yield own.set_visibility(keys, [(name_of(one), 0.0, "") for one in broken])
        ready = ready._replace(rest="claim")
    elif not found and ready.rest == "due" and (yield own.return_due(keys, RETURNED_AT_ONCE))[0]:
        return (yield from receive_ready(keys, wanted))
    yield from read_bodies(keys, found)
    return [one for one in found if one.body_is_read], ready


def _decoded(keys: QueueKeys, elements: Sequence[bytes]) -> tuple[list[Message], list[bytes]]:
    """Return the messages, and what is no message."""
    found, broken = [], []
    for element in elements:
        try:
            found.append(Message.decode(keys.logical, element))
        except Undecodable:
            broken.append(element)
    return found, broken


def _ready(keys: QueueKeys, wanted: ReceiveRequest) -> Steps[Ready]:
    """Put ready messages in flight. After a lost answer, look what it did: its messages have these nonces."""
    nonces, sent_at = [new_nonce().to_bytes(_NONCE) for _ in range(wanted.limit)], time.monotonic()
    try:
        ready: Ready = yield own.receive_ready(
            keys, wanted.visibility, wanted.limit, wanted.most_receives, nonces, runs=wanted.runs
        )
        return ready
    except OutcomeUnknown:
        now: int = yield ops.server_time()
        earliest = now + round((wanted.visibility - (time.monotonic() - sent_at) - _SLACK) * 1000)
        fields = yield own.flights_since(keys, earliest)
        records = (yield own.records(keys, fields)) if fields else []
        by_nonce = {name_of(one)[-_NONCE:]: one for one in records if one}
        taken = [by_nonce[one] for one in nonces if one in by_nonce]
        return Ready("" if taken else "claim", (yield own.in_flight(keys)), taken)
