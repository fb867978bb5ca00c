"""Ops of results: read one, or wait until some message has one. `settle` stores them, with the ack."""

from dataclasses import dataclass

from reliq.features.results import signatures
from reliq.model.keys import QueueKeys
from reliq.ops.mention import Mention, mention
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


def answered(keys: QueueKeys, identity: str, since: bytes, seconds: float) -> Mention:
    """Wait until an entry of `answers` after `since` names the message."""
    return mention(keys.answers, since, identity, seconds, lambda fields: fields[1].decode().split(" "))
