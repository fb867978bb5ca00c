"""Log lines of an outage: one when it begins, reminders while it lasts, and one when it is over.

All loops of a process that cannot reach one Redis have these lines together: the first of them writes them.
"""

import logging
import threading
import time
from dataclasses import dataclass, field

from reliq.errors import OutcomeUnknown, RedisUnavailable, RedisUnsuitable

_AGAIN = 30.0  #: seconds between two reminders


@dataclass(slots=True)
class _Outage:
    """What the calls of some loops fail with. `others`: the loops that have joined it without a line of their own."""

    began: float
    said_at: float
    failed_at: float
    others: set[str] = field(default_factory=set)
    refused: bool = False  #: Redis answers, and refuses; that has been said
    silent: bool = False  #: nothing was said of it: it is like one that was said shortly before
    over: bool = False

    def and_others(self) -> str:
        return f" and {len(self.others)} more" if self.others else ""


_lock = threading.Lock()
_unreachable: dict[tuple[str, str], _Outage] = {}  #: by logger and error: the latest outage of a Redis


class OutageLog:
    """The log of one loop's failing calls, without a line for each of them."""

    def __init__(self, log: logging.Logger, who: str) -> None:
        self._log = log
        self._who = who
        self._outage: _Outage | None = None
        self._since = 0.0
        self._latest = ("", 0.0)  #: what else than an outage of Redis was said last, and when

    def failed(self, error: Exception) -> None:
        """Note that a call failed."""
        with _lock:
            said = self._line(time.monotonic(), error)
        if said:
            self._log.warning("%s", said)

    def over(self) -> None:
        """Note that a call succeeded."""
        if self._outage is None:
            return
        with _lock:
            outage, self._outage = self._outage, None
            said, outage.over = outage.over or outage.silent, True
        if not said:
            lasted = time.monotonic() - outage.began
            self._log.warning("%s%s: works again after %.1f s", self._who, outage.and_others(), lasted)

    def _line(self, now: float, error: Exception) -> str:
        """Return what to say of a failed call, if anything."""
        outage = self._outage
        if outage is None:
            self._since = now
        elif not outage.over:
            outage.failed_at, was_refused = now, outage.refused
            outage.refused = was_refused or isinstance(error, RedisUnsuitable)
            if now - outage.said_at <= _AGAIN and outage.refused == was_refused:
                return ""
            outage.said_at, outage.silent = now, False
            return f"{self._who}{outage.and_others()}: for {now - outage.began:.0f} s: {error}"
        self._outage, joined = self._begin(now, error)
        if joined or self._outage.silent:
            return ""
        return f"{self._who}: {error}" if outage is None else f"{self._who}: for {now - self._since:.0f} s: {error}"

    def _begin(self, now: float, error: Exception) -> tuple[_Outage, bool]:
        """Return the outage that this loop has from now on, and whether it is one that others have said."""
        own = _Outage(self._since, said_at=now, failed_at=now, refused=isinstance(error, RedisUnsuitable))
        if not _of_every_call(error):
            said, said_at = self._latest
            if own.refused and said == str(error) and now - said_at <= _AGAIN:  # it fails and works in turn
                own.silent, own.said_at = True, said_at
            else:
                self._latest = (str(error), now)
            return own, False
        for one in [one for one, past in _unreachable.items() if past.over or now - past.failed_at > _AGAIN]:
            del _unreachable[one]  # no loop has it any more
        key = (self._log.name, str(error))
        known = _unreachable.get(key)
        if known is None:
            _unreachable[key] = own
            return own, False
        known.others.add(self._who)
        return known, True


def _of_every_call(error: Exception) -> bool:
    """Whether other calls to this Redis fail likewise now; not if it lacks a permission, or a key is a foreign one."""
    if isinstance(error, RedisUnsuitable):
        return error.of_server
    return isinstance(error, (RedisUnavailable, OutcomeUnknown))
