"""Ops of a consumer: registration, lease, claims, and settling the messages it holds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

from reliq.model.keys import QueueKeys
from reliq.ops.request import Argument, Op, milliseconds, optional_int, scripted


class Settled(StrEnum):
    """The result of settling one message."""

    DONE = "d"
    ALREADY = "a"  #: no longer held under a valid lease: settled before
    LOST = "l"  #: no longer held, and the lease is over


@dataclass(frozen=True, slots=True)
class Claimed:
    """The reply of claim, and of settle with a claim. `codes`: one letter of `Settled` for each settled message."""

    status: Literal["ok", "paused", "lost"]
    now: int
    elements: list[bytes]
    codes: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """Where a message that is not acked goes from the processing list.

    `counter` is the field of the queue's counters that is incremented with it.
    """

    element: bytes
    destination: Literal["head", "tail", "delayed", "dead", "gone", "done", "round", "rest"]
    counter: str
    id: str = ""
    again: bytes = b""
    delay: float = 0.0
    mark: str = ""  #: with destination done: the key that marks the message as done, for `delay` seconds


def register(keys: QueueKeys, consumer: str, lease: float, marks: bool = False) -> Op[int]:
    """Register a consumer. `marks`: it announces each redelivered message that it tries, with `mark_tried`."""
    names = (keys.consumers, keys.lease(consumer), keys.trying)
    return scripted("register", names, (consumer, milliseconds(lease), int(marks)))


def mark_tried(keys: QueueKeys, consumer: str, tag: str) -> Op[int]:
    """Announce that this consumer starts a redelivered message."""
    return scripted("try", (keys.trying,), (consumer, tag))


def claim(keys: QueueKeys, consumer: str, lease: float, limit: int) -> Op[Claimed]:
    """Claim up to `limit` messages. Not repeatable: after a lost reply only a read-back finds the claimed messages."""
    names = (*keys.places, keys.processing(consumer), keys.lease(consumer), keys.consumers)
    op = scripted("claim", names, (milliseconds(lease), limit, consumer), _read_claimed)
    return Op(op.command, op.read, op.script, repeatable=False)


def block(keys: QueueKeys, consumer: str, seconds: float) -> Op[bytes | None]:
    """Wait for one message and claim it: the claim of an idle consumer."""
    processing = keys.processing(consumer)
    command = ("BLMOVE", keys.messages, processing, "RIGHT", "LEFT", f"{seconds:.3f}")
    return Op(command, repeatable=False, blocks=seconds)


def settle(
    keys: QueueKeys,
    consumer: str,
    lease: float,
    acks: Sequence[bytes],
    moves: Sequence[Move] = (),
    limit: int = 0,
    uncounted: Collection[bytes] = (),
) -> Op[Claimed]:
    """Ack messages, move others, and claim up to `limit` new ones. Repeatable only if it claims nothing.

    `uncounted`: elements that BLMOVE has moved here without counting them; the script counts them as claimed now.
    """
    names = (
        *keys.places, keys.processing(consumer), keys.lease(consumer), keys.delayed, keys.dead, keys.index,
        *(move.mark for move in moves if move.mark),
    )  # fmt: skip
    arguments: list[Argument] = [milliseconds(lease), limit, len(acks), "", *acks]
    if uncounted:
        every = (*acks, *(move.element for move in moves))
        arguments[3] = " ".join(str(position) for position, element in enumerate(every, 1) if element in uncounted)
    for move in moves:
        delay = milliseconds(move.delay)
        arguments += (move.element, move.destination, move.counter, delay, move.id, move.again)
    op = scripted("settle", names, arguments, _read_settled)
    return op if limit == 0 else Op(op.command, op.read, op.script, repeatable=False)


def _read_claimed(reply: list[Any]) -> Claimed:
    return Claimed(reply[0].decode(), reply[1], reply[2:])


def _read_settled(reply: list[Any]) -> Claimed:
    return Claimed(reply[0].decode(), reply[1], reply[3:], reply[2].decode())


def heartbeat(keys: QueueKeys, consumer: str, lease: float) -> Op[bool]:
    return scripted("heartbeat", (keys.lease(consumer),), (milliseconds(lease),), bool)


def end(keys: QueueKeys, consumer: str) -> Op[int]:
    """End a lease: from now on this consumer claims nothing, and the monitor takes back the messages it still holds."""
    return Op(("DEL", keys.lease(consumer)))


def read_back(keys: QueueKeys, consumer: str) -> Op[list[bytes]]:
    """Read the elements that this consumer holds, newest first."""
    return Op(("LRANGE", keys.processing(consumer), 0, -1))


def held_count(keys: QueueKeys, consumer: str) -> Op[int]:
    return Op(("LLEN", keys.processing(consumer)))


def lease_end(keys: QueueKeys, consumer: str) -> Op[int | None]:
    """Read the deadline of a lease, ms of the server's clock; None without a lease."""
    return Op(("GET", keys.lease(consumer)), optional_int)


def lease_ends(keys: QueueKeys, consumers: Sequence[str]) -> Op[list[int | None]]:
    return Op(("MGET", *map(keys.lease, consumers)), lambda reply: [*map(optional_int, reply)])


def lease_known(keys: QueueKeys, lease: str) -> Op[bool]:
    """Read whether an HTTP lease is valid, or ended because everything was settled."""
    return Op(("EXISTS", keys.lease(lease), keys.settled(lease)), bool)


def was_handled(mark: str) -> Op[bool]:
    """Read whether the mark exists that a message of a run-once handler is done."""
    return Op(("EXISTS", mark), bool)


def cycle_entries(keys: QueueKeys, groups: Sequence[str]) -> Op[list[bytes | None]]:
    """Read, for each group, the id of its circulating message, a blank, and the member; None without one."""
    return Op(("HMGET", keys.cycle, *groups))


def forget(keys: QueueKeys, consumer: str, leaving: bool = False) -> Op[bool]:
    names = (keys.consumers, keys.processing(consumer), keys.lease(consumer), keys.trying)
    return scripted("forget", names, (consumer, int(leaving)), bool)


def finish(keys: QueueKeys, lease: str, remembered: float) -> Op[bool]:
    """End an HTTP lease without messages, and remember for `remembered` seconds that it was settled."""
    names = (keys.consumers, keys.processing(lease), keys.lease(lease), keys.settled(lease))
    return scripted("finish", names, (lease, milliseconds(remembered)), bool)
