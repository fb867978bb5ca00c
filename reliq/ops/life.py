"""Ops about what the handlers of single messages report."""

from collections.abc import Mapping, Sequence
from typing import Any

from reliq.model.element import name_of
from reliq.model.found import Progress
from reliq.model.instruction import Instruction
from reliq.model.keys import QueueKeys, process_of
from reliq.model.life import Report
from reliq.ops import schema, signatures
from reliq.ops.coming import Coming
from reliq.ops.held import Hold
from reliq.ops.request import Argument, Op, milliseconds, optional_text, read_fields, scripted

_TOLD = 86_400.0  #: seconds for which what a process was told is kept
_KEPT = 7 * 86_400.0  #: seconds after the latest report about a message


def report(hold: Hold, report: Report) -> Op[bool]:
    """Store a report about a message; the reply is False if the consumer does not hold the message any more."""
    fields: list[Argument] = []
    if report.fraction is not None:
        fields += (schema.Report.FRACTION, report.fraction, schema.Report.TEXT, report.text)
    if report.state is not None:
        fields += (schema.Report.STATE, report.state)
    call = signatures.report(
        lease=hold.keys.lease(hold.consumer),
        report=hold.keys.report(hold.message.id),
        processing=hold.keys.processing(hold.consumer),
        tag=hold.message.tag,
        sent=hold.message.enqueued_at,
        kept=milliseconds(_KEPT),
        name=name_of(hold.message.element),
        place=hold.place,
        fields=fields,
    )
    return scripted(call, bool)


def reported(keys: QueueKeys, identity: str) -> Op[Progress | None]:
    """Read what handlers have reported about a message."""
    return Op(("HGETALL", keys.report(identity)), _read_report)


def progress_of(keys: QueueKeys, identity: str) -> Op[Progress | None]:
    """Read how far the handler of a message is, without its state."""
    names = (schema.Report.FRACTION, schema.Report.TEXT, schema.Report.AT, schema.Report.SENT, schema.Report.TAG)

    def read(reply: list[bytes | None]) -> Progress | None:
        return _progress({name: value for name, value in zip(names, reply, strict=True) if value is not None})

    return Op(("HMGET", keys.report(identity), *names), read)


def _read_report(reply: list[bytes]) -> Progress | None:
    return _progress(read_fields(reply))


def _progress(fields: Mapping[str, bytes]) -> Progress | None:
    if not fields:
        return None
    fraction = fields.get(schema.Report.FRACTION)
    return Progress(
        None if fraction is None else float(fraction),
        fields.get(schema.Report.TEXT, b"").decode(),
        int(fields.get(schema.Report.AT, 0)),
        fields.get(schema.Report.TAG, b"").decode(),
        fields.get(schema.Report.STATE),
        int(fields.get(schema.Report.SENT, 0)),
    )


def reported_tag(keys: QueueKeys, identity: str) -> Op[str | None]:
    """Read which push of a message the latest report is about."""
    return Op(("HGET", keys.report(identity), schema.Report.TAG), optional_text)


def count_notes(keys: QueueKeys, ids: Sequence[str]) -> Op[int]:
    """Return 0 if nothing was reported about these messages, and no message of the queue was told to be cancelled."""
    return Op(("EXISTS", keys.told, *map(keys.report, ids)))


def forget_reports(keys: QueueKeys, ids: Sequence[str]) -> Op[int]:
    """Delete what was reported about messages that have left the queue."""
    return Op(("UNLINK", *map(keys.report, ids)))


def notes_of(keys: QueueKeys, identity: str) -> tuple[Op[list[bytes]], Op[bytes]]:
    """Read what was reported about a message, and the ms at which it was cancelled; empty: neither was."""

    def flat(reply: Any) -> list[bytes]:
        return [part for pair in reply.items() for part in pair] if isinstance(reply, dict) else reply

    return Op(("HGETALL", keys.report(identity)), flat), Op(("HGET", keys.told, identity), lambda reply: reply or b"")


def put_notes(keys: QueueKeys, one: Coming, reported: Sequence[bytes], cancelled: bytes) -> Op[int]:
    """Store such notes in another home, before the message enters it."""
    call = signatures.put_notes(
        keys, report=keys.report(one.id), brought=one.mark, id=one.id, cancelled=cancelled, kept=milliseconds(_KEPT),
        told_kept=milliseconds(_TOLD), fields=reported,
    )  # fmt: skip
    return scripted(call)


def in_line(keys: QueueKeys, line: bytes) -> Op[bytes | None]:
    """Read the element of the message that waits with this beginning of its entry: group and turn."""
    command = ("ZRANGEBYLEX", keys.waiting, b"[" + line, b"(" + line + b"\xff", "LIMIT", 0, 1)
    return Op(command, lambda reply: reply[0][len(line) :] if reply else None)


def delete(key: str) -> Op[int]:
    return Op(("UNLINK", key))


def instruct(keys: QueueKeys, consumer: str, instruction: Instruction, at: int, anyway: bool = False) -> Op[bool]:
    """Tell the process of a consumer what to do; the reply is False if the consumer is not registered.

    `anyway`: also then: the process may serve this home by the time it looks.
    """
    field = instruction.field(process_of(consumer))
    call = signatures.instruct(keys, consumer=consumer, field=field, at=at, kept=milliseconds(_TOLD), anyway=anyway)
    return scripted(call, bool)
