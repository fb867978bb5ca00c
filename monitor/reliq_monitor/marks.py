"""Marks: which message is charged when a process dies with several messages.

A worker that starts a redelivered message marks it in the queue's hash `trying`, under its consumer's id: `-` and the
message's tag. Where its process runs several at a time (reliq.worker.trials), the mark is `*` and how many at most.
From its first claim on the field is `-`, so that the monitor knows that this consumer keeps marks. The monitor rewrites
the field before it takes a part of the list back:

    -tag   the consumer's own
    *8     also its own: none is charged, and no more than half as many may run at a time from now on
    +tag   the same, and no message of the process was alone
    ?      the consumer keeps no marks, and no message of its process was alone
    !      one was charged; no other is
"""

from reliq.model.message import Message

_UNMARKED, DECIDED = b"?", b"!"


def may_be_alone(mark: bytes | None) -> bool:
    """Whether no other messages of this process are known."""
    return mark is None or mark.startswith(b"-")


def after_batch(mark: bytes | None, charged: bool) -> bytes:
    """Return the mark for the rest of a list after a part of it was taken back, or for lists beside others."""
    if charged:
        return DECIDED
    if mark is None:
        return _UNMARKED
    return b"+" + mark[1:] if mark.startswith(b"-") else mark


def halved(mark: bytes | None) -> int:
    """Return how many redelivered messages may run with each of those that go back; 0: as many as before."""
    count = mark[1:] if mark is not None and mark.startswith(b"*") else b""
    return max(1, int(count) // 2) if count.isdigit() else 0


class Charge:
    """Finds the one message of a list to charge, oldest first."""

    def __init__(self, mark: bytes | None, alone: bool) -> None:
        self._alone = alone
        self._guess = mark is None or mark == _UNMARKED
        self._tag = mark[1:].decode(errors="replace") if mark is not None and mark[:1] in (b"-", b"+") else ""
        self._spent = mark == DECIDED

    def falls_on(self, message: Message) -> bool:
        if self._spent:
            return False
        if self._guess or not message.redelivered:
            found = self._alone or (self._guess and message.redelivered)
        else:
            found = message.tag == self._tag
        self._spent = found
        return found
