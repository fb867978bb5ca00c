"""Ids of messages that grow, and the sequence numbers that follow from them."""

import secrets
import time
import uuid

_COUNTER_BITS = 22
_FIRST = 10**19  #: so that all sequence numbers have 20 digits


class Ids:
    """Makes UUIDv7s, each larger than the one before in this process: their first 22 free bits are a counter."""

    def __init__(self) -> None:
        self._now = 0
        self._count = 0

    def new(self) -> str:
        now = time.time_ns() // 1_000_000
        if now > self._now:
            self._now, self._count = now, secrets.randbits(_COUNTER_BITS - 2)
        else:  # also after a jump of the clock
            self._count += 1
            if self._count >> _COUNTER_BITS:
                self._now, self._count = self._now + 1, 0
        high, low = self._count >> 10, self._count & 0x3FF
        tail = 0b10 << 62 | low << 52 | secrets.randbits(52)
        return str(uuid.UUID(int=self._now << 80 | 0x7 << 76 | high << 64 | tail))


def sequence_number(identity: str, sent_at: int) -> str:
    """Return the 20 digits for a message. Ids that are not UUIDv7 count by the millisecond in which they were sent."""
    try:
        number = uuid.UUID(identity)
    except ValueError:
        number = None
    if number is None or number.version != 7:
        return str(_FIRST + (sent_at << _COUNTER_BITS))
    milliseconds, high, low = number.int >> 80, number.int >> 64 & 0xFFF, number.int >> 52 & 0x3FF
    return str(_FIRST + (milliseconds << _COUNTER_BITS | high << 10 | low))
