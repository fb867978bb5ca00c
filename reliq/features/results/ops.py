"""Ops of results: read one, or wait until some message has one. `settle` stores them, with the ack."""

from dataclasses import dataclass
from typing import Any

from reliq.contract import values
from reliq.features.results import signatures
from reliq.model.keys import QueueKeys
from reliq.ops.request import Op, milliseconds, scripted


@dataclass(frozen=True, slots=True)
class Returned:
    """The reply of the result script. `result`: None while there is none; `since`: the latest entry of `answers`."""

    result: bytes | None
    since: bytes = b""


def result(keys: QueueKeys, identity: str, wait: float = 0.0) -> Op[Returned]:
    """Read the result of a message; `wait`: note that the caller waits so many seconds for it."""
    call = signatures.result(keys, id=identity, wait=milliseconds(wait))
    return scripted(call, lambda reply: Returned(*reply))


def last_answer(keys: QueueKeys) -> Op[bytes]:
    """Read the latest entry of `answers`, to wait for those after it."""
    command = ("XREVRANGE", keys.answers, "+", "-", "COUNT", 1)
    return Op(command, lambda reply: reply[0][0] if reply else b"0-0")


def answered(keys: QueueKeys, since: bytes, seconds: float) -> Op[tuple[bytes, list[str]] | None]:
    """Wait for results; the reply has the latest entry and the ids that were named after `since`; None: none came.

    Waits at most `values.BLOCK` seconds, however large `seconds` is: the socket's timeout is little longer.
    """
    within = min(seconds, values.BLOCK)
    command = ("XREAD", "BLOCK", milliseconds(within), "STREAMS", keys.answers, since)
    return Op(command, _read_answers, blocks=within)


def _read_answers(reply: Any) -> tuple[bytes, list[str]] | None:
    if not reply:
        return None
    entries = next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]
    return entries[-1][0], [one for _, fields in entries for one in fields[1].decode().split(" ")]
