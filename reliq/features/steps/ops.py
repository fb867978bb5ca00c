"""Ops of durable handlers: records of messages, sleeps, waits and signals."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from reliq.features.steps import signatures
from reliq.features.steps.model import Recorded
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops.coming import REMEMBERED, Coming
from reliq.ops.held import Hold
from reliq.ops.request import Op, as_text, milliseconds, optional_text, scripted
from reliq.ops.schema import Config

HEAD = b"\n"  #: how the field of a record begins


@dataclass(frozen=True, slots=True)
class Parked:
    """A message that waits for a signal. Times: ms since the epoch, the Redis server's clock."""

    message: Message
    signal: str
    since: int
    until: int  #: 0: for ever

    @classmethod
    def read(cls, queue: str, stored: bytes) -> Self:
        head, _, element = stored.partition(b"\n")
        until, since, signal = head.decode().split(" ", 2)
        return cls(Message.decode(queue, element), signal, int(since), int(until))

    @property
    def id(self) -> str:
        return self.message.id

    def summary(self) -> dict[str, Any]:
        """Return it as a dict for JSON; times are ms since the epoch."""
        return {
            "id": self.id, "signal": self.signal, "since": self.since, "until": self.until or None,
            "key": self.message.key or None, "headers": self.message.headers,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parting:
    """How a message leaves its consumer: its new element, and whether others of its key go on meanwhile."""

    again: bytes
    frees_key: bool = False


def record(hold: Hold, number: int, entry: bytes) -> Op[str]:
    """Store an entry of a record; answers "ok", "lost", "other" or "behind"."""
    call = signatures.record(hold.keys, nonce=hold.nonce, number=number, entry=entry, **_named(hold))
    return scripted(call, as_text)


def recorded(keys: QueueKeys, identity: str) -> Op[Recorded]:
    """Read the record of a message; an empty one if there is none."""
    return scripted(signatures.recorded(keys, id=identity), Recorded.read)


def leave_record(keys: QueueKeys, identity: str) -> Op[list[bytes]]:
    """Read a record that is taken to another home: its head, and each further field with its value; [] if none.

    From then on a signal is given to the new home, too.
    """
    call = signatures.leave_record(keys, id=identity, kept=milliseconds(REMEMBERED))
    return scripted(call, partial(_whole, identity))


def whole_record(keys: QueueKeys, one: Coming) -> Op[list[bytes]]:
    """Read a record in the same form, as the message has it where it comes to."""
    return scripted(signatures.recorded(keys, id=one.former_id or one.id), partial(_whole, one.id))


def _whole(identity: str, reply: list[bytes]) -> list[bytes]:
    if not reply:
        return []
    numbers, *names = reply[0].split(b"\n")
    entries = [b"%d" % number for number in range(1, int(numbers.split(b" ")[0]) + 1)]
    fields = [HEAD + identity.encode() + b"\n" + one for one in [*entries, *(b"!" + name for name in names)]]
    pairs = zip(fields, reply[1:], strict=True)
    return [reply[0], *(part for pair in pairs for part in pair)]


def revived(record: Sequence[bytes]) -> list[bytes]:
    """Return a record in this form after a redrive, as `has_revived` of the moments does it."""
    found = [*record]
    for at in range(2, len(found), 2):
        is_entry = not found[at - 1].rpartition(b"\n")[2].startswith(b"!")
        if is_entry and found[at][:1] in (b"r", b"f", b"b"):
            found[at] = b"x" + found[at][1:].split(b"\n")[0] + b"\n"
    return found


def has_records(keys: QueueKeys) -> Op[bool]:
    """Read whether a queue has any record."""
    return Op(("HEXISTS", keys.config, Config.RECORDED), bool)


def put_record(keys: QueueKeys, one: Coming, head: bytes, fields: Sequence[bytes]) -> Op[int]:
    """Store fields of such a record, up to 2,000 with their values, before the message enters its new home."""
    call = signatures.put_record(
        keys, brought=one.mark, id=one.id, head=head, kept=milliseconds(REMEMBERED), fields=fields
    )
    return scripted(call)


def has_come(keys: QueueKeys, ids: Sequence[str]) -> Op[int]:
    """Note that messages have entered their new home: their records go with them."""
    return Op(("ZREM", keys.waits, *(2 * HEAD + one.encode() for one in ids)))


def does_not_come(keys: QueueKeys, ids: Sequence[str]) -> Op[int]:
    """Let a monitor forget the records of messages that were to come and have not."""
    return Op(("ZADD", keys.waits, "XX", *(part for one in ids for part in (1, 2 * HEAD + one.encode()))))


def early_records(keys: QueueKeys, cursor: int, step: int) -> Op[tuple[int, list[tuple[str, int]]]]:
    """Find records with early signals: the ids, each with the ms at which it is forgotten; answers as `scan_parked`."""

    def read(reply: Any) -> tuple[int, list[tuple[str, int]]]:
        pairs = zip(reply[1][::2], reply[1][1::2], strict=True)
        early = [(one[1:].decode(), int(float(at))) for one, at in pairs if one.count(HEAD) == 1]
        return int(reply[0]), early

    return Op(("ZSCAN", keys.waits, cursor, "MATCH", HEAD + b"*", "COUNT", step), read)


def sleep(hold: Hold, number: int, entry: bytes, seconds: float, parting: Parting, counter: str) -> Op[str]:
    """Store an entry and delay the message; answers as `record`, or "cancelled"."""
    call = signatures.sleep(
        hold.keys, nonce=hold.nonce, number=number, entry=entry, delay=milliseconds(seconds), again=parting.again,
        counter=counter, frees=parting.frees_key, uncounted=hold.uncounted, **_named(hold),
    )  # fmt: skip
    return scripted(call, as_text)


def park(hold: Hold, signal: str, timeout: float | None, parting: Parting) -> Op[tuple[str, bytes | None]]:
    """Park a message; answers "ok", "lost", "other", "cancelled", or "given" with the stored signal."""
    call = signatures.park(
        hold.keys, signal=signal, again=parting.again, timeout="" if timeout is None else milliseconds(timeout),
        frees=parting.frees_key, uncounted=hold.uncounted, **_named(hold),
    )  # fmt: skip
    return scripted(call, lambda reply: (reply[0].decode(), reply[1] if len(reply) > 1 else None))


def signal(
    keys: QueueKeys,
    identity: str,
    name: str,
    stored: bytes,
    early: float | None,
    call: str | None = None,
    *,
    counted: bool = True,
) -> Op[str]:
    """Give a signal; `early`: seconds for which it is kept for an unknown message; `call`: as of `ops.cancel`.

    `counted`: also if it is kept for a message of which nothing else is known.
    """
    kept = "" if early is None else milliseconds(early)
    return scripted(
        signatures.signal(keys, id=identity, signal=name, value=stored, early=kept, counted=counted, call=call), as_text
    )


def is_known(keys: QueueKeys, identity: str) -> list[Op[bool]]:
    """Read whether a queue has something of a message: it is parked; it has a record, or had signals and has ended."""
    return [
        Op(("HEXISTS", keys.parked, identity), bool),
        Op(("HEXISTS", keys.followed, HEAD + identity.encode()), bool),
    ]


def signals_of(keys: QueueKeys, identity: str) -> Op[dict[str, bytes]]:
    """Read the signals of a record, as they are stored."""

    def read(reply: list[bytes]) -> dict[str, bytes]:
        names = reply[0].decode().split("\n")[1:] if reply else []
        return dict(zip(names, reply[len(reply) - len(names) :], strict=True))

    return scripted(signatures.recorded(keys, id=identity), read)


def unpark_due(keys: QueueKeys, limit: int) -> Op[tuple[int, int]]:
    """End the waits whose time is over; answers how many messages are ready, and how many entries were looked at."""
    return scripted(signatures.unpark_due(keys, limit=limit), tuple)


def remove_parked(keys: QueueKeys, counter: str, ids: Sequence[str], call: str | None = None) -> Op[int]:
    """Delete parked messages; answers how many were there. `call`: as of `ops.cancel`."""
    return scripted(signatures.remove_parked(keys, counter=counter, ids=ids, call=call))


def parked(keys: QueueKeys, identity: str) -> Op[Parked | None]:
    """Read a parked message."""
    return Op(("HGET", keys.parked, identity), lambda reply: reply and Parked.read(keys.logical, reply))


def parked_element(keys: QueueKeys, identity: str) -> Op[bytes | None]:
    return Op(("HGET", keys.parked, identity), lambda reply: reply and reply.partition(b"\n")[2])


def scan_parked(keys: QueueKeys, cursor: int, step: int) -> Op[tuple[int, list[Parked]]]:
    """Read a part of the parked messages, in no order; answers where to go on, 0 = that is all."""

    def read(reply: Any) -> tuple[int, list[Parked]]:
        pairs = reply[1].values() if isinstance(reply[1], dict) else reply[1][1::2]
        return int(reply[0]), [Parked.read(keys.logical, one) for one in pairs]

    return Op(("HSCAN", keys.parked, cursor, "COUNT", step), read)


def recorded_tag(keys: QueueKeys, identity: str) -> Op[str | None]:
    """Read which push of a message the latest entry of its record is of."""

    def read(reply: bytes | None) -> str | None:
        words = (optional_text(reply) or "").split("\n")[0].split(" ")
        return f"{identity} {words[2]}" if len(words) == 3 else None

    return Op(("HGET", keys.followed, HEAD + identity.encode()), read)


def _named(hold: Hold) -> dict[str, Any]:
    """Return what each script is told of the message; another one with its id has a record of its own."""
    return {"sent": hold.message.enqueued_at, **hold.named}
