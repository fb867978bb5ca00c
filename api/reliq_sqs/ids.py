"""Ids of messages that grow, and the sequence numbers that follow from them."""

import os
import random
import re
import time
from collections.abc import Callable

_COUNTER_BITS = 22
_FIRST = 10**19  #: so that all sequence numbers have 20 digits
_UUID_7 = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)

#: No id is a secret, and the system's randomness would cost a call each.
_random = random.Random()
_bits = _random.getrandbits
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_random.seed)


def random_id() -> str:
    """Return the id of a request: a UUIDv4."""
    return _text(_bits(48), 0x4000 | _bits(12), 0b10 << 62 | _bits(62))


def _text(first: int, version: int, last: int) -> str:
    """Return the text of a UUID, from its first 48 bits, the next 16, and its last 64: without an object of its own."""
    parts = (first >> 16, first & 0xFFFF, version, last >> 48, last & 0xFFFF_FFFF_FFFF)
    return "%08x-%04x-%04x-%04x-%012x" % parts  # noqa: UP031  in two thirds of the time


class Ids:
    """Makes UUIDv7s, each larger than the one before in this process: their first 22 free bits are a counter.

    Their time is that of the Redis server, as far as it was told: the ids of several endpoints follow one clock.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock  #: seconds since the epoch
        self._behind = 0.0  #: seconds of this clock behind the server's
        self._now = 0
        self._count = 0

    def now(self) -> float:
        """Return the time of the clock that is not the server's."""
        return self._clock()

    def follow(self, server_ms: int, asked: float) -> None:
        """Note what the server's clock said in answer to a question, which was asked at this time of `now`.

        The server has read its clock at some time since then; the estimate changes only if the answer rules it out.
        """
        least, most = server_ms / 1000 - self.now(), (server_ms + 1) / 1000 - asked
        self._behind = min(max(self._behind, least), most)

    def server_now(self) -> float:
        """Return the time of the server, in seconds since the epoch, as far as it was told."""
        return self._clock() + self._behind

    def new(self) -> str:
        now = int(self.server_now() * 1000)
        if now > self._now:
            self._now, self._count = now, _bits(_COUNTER_BITS - 2)
        else:  # also after a jump of the clock
            self._count += 1
            if self._count >> _COUNTER_BITS:
                self._now, self._count = self._now + 1, 0
        high, low = self._count >> 10, self._count & 0x3FF
        return _text(self._now, 0x7000 | high, 0b10 << 62 | low << 52 | _bits(52))


def sequence_number(identity: str, sent_at: int) -> str:
    """Return the 20 digits for a message. Ids that are not UUIDv7 count by the millisecond in which they were sent."""
    if _UUID_7.fullmatch(identity) is None:
        return str(_FIRST + (sent_at << _COUNTER_BITS))
    number = int(identity.replace("-", ""), 16)
    milliseconds, high, low = number >> 80, number >> 64 & 0xFFF, number >> 52 & 0x3FF
    return str(_FIRST + (milliseconds << _COUNTER_BITS | high << 10 | low))
