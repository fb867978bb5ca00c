"""Ops of prepared messages: prepare, decide, ask, question."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reliq.features.prepared import signatures
from reliq.model.keys import QueueKeys
from reliq.ops.browse import first_names, up_to
from reliq.ops.producer import Entry
from reliq.ops.request import Op, as_text, milliseconds, readable, scripted
from reliq.ops.schema import Prepared

Decision = Literal["committed", "rolled_back", "purged"]


@dataclass(frozen=True, slots=True)
class Accepted:
    """The reply of the prepare script; `id_in_use`: a message with this id is prepared or was decided lately.

    `moved`: the home takes no messages any more.
    """

    status: Literal["ok", "id_in_use", "full", "moved"]
    now: int
    length: int = 0
    max_length: int = 0
    unit: str = "messages"


@dataclass(frozen=True, slots=True)
class Decided:
    """The reply of the decide script: a Decision, undecided, unknown or key; then the id, or the name of the dedup key
    and the group of the message.
    """

    decision: str
    id: str
    group: str = ""


def prepare(
    keys: QueueKeys, entry: Entry, check_after: float, checks: int, producer: str, sequence: int
) -> Op[Accepted]:
    call = signatures.prepare(
        keys,
        record=keys.prepared_record(entry.id),
        producer=producer,
        sequence=sequence,
        id=entry.id,
        element=entry.element,
        delay=milliseconds(entry.delay),
        every=milliseconds(check_after),
        most=checks,
        dedup="" if entry.dedup_key is None else keys.dedup(entry.dedup_key),
        window=milliseconds(entry.window),
        digest=entry.digest,
    )
    return scripted(call, lambda reply: Accepted(*map(readable, reply)))


def decide(
    keys: QueueKeys,
    identity: str,
    decision: Decision,
    remembered: float,
    producer: str = "",
    sequence: int = 0,
    dedup: str = "",
    elsewhere: bytes = b"",
) -> Op[Decided]:
    call = signatures.decide(
        keys,
        record=keys.prepared_record(identity),
        dedup=dedup or None,
        producer=producer,
        sequence=sequence,
        id=identity,
        decision=decision,
        remembered=milliseconds(remembered),
        elsewhere=elsewhere,
    )
    return scripted(call, lambda reply: Decided(*map(as_text, reply)))


def ask(keys: QueueKeys, identity: str, letter: bytes, remembered: float) -> Op[str]:
    """End the wait of a prepared message: make it the dead letter `letter` or, if that is empty, put a question."""
    call = signatures.ask(
        keys, record=keys.prepared_record(identity), id=identity, letter=letter, remembered=milliseconds(remembered)
    )
    return scripted(call, as_text)


@dataclass(frozen=True, slots=True)
class CheckBacks:
    """A prepared message, how often it was asked about, and how often at most. `element`: None after the decision."""

    element: bytes | None
    asks: int
    most: int


def check_backs(keys: QueueKeys, identity: str) -> Op[CheckBacks]:
    command = ("HMGET", keys.prepared_record(identity), Prepared.ELEMENT, Prepared.ASKS, Prepared.MOST)
    return Op(command, lambda reply: CheckBacks(reply[0], int(reply[1] or 0), int(reply[2] or 0)))


def prepared_element(keys: QueueKeys, identity: str) -> Op[bytes | None]:
    """Read the element of a prepared message, None after the decision."""
    return Op(("HGET", keys.prepared_record(identity), Prepared.ELEMENT))


def prepared_ids(keys: QueueKeys, count: int) -> Op[list[str]]:
    """Read ids of prepared messages, in the order of their next check-backs."""
    return first_names(keys.prepared, count)


def prepared_overdue(keys: QueueKeys, now: int, limit: int) -> Op[list[bytes]]:
    """Read the ids of prepared messages with a check-back due at `now`."""
    return up_to(keys.prepared, now, limit)


def forget_prepared(keys: QueueKeys, ids: Sequence[str]) -> Op[int]:
    """Remove ids without records, which Redis has lost, from the set of prepared messages."""
    return Op(("ZREM", keys.prepared, *ids))


def question(keys: QueueKeys) -> Op[str | None]:
    """Take a question: the id of a prepared message to decide. The monitor repeats a question that gets lost."""
    command = ("ZPOPMIN", keys.questions)
    return Op(command, lambda reply: reply[0].decode() if reply else None, repeatable=False)
