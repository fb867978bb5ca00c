"""Rate limits of keys, over all processes of the service: each takes its part from Redis, a tenth of a second's
worth at a time, so that a busy key costs Redis ten calls a second and process, not one a request.
"""

import asyncio
import math
import time

from reliq import ops
from reliq.errors import OutcomeUnknown, RedisUnavailable
from reliq.transport.aiostore import AioStore
from reliq_api.http.problems import Problem

_SHARE = 0.1  #: share of a second's allowance that is taken at once
_KEPT = 1.0  #: seconds for which a share may be used


class Allowance:
    """The unused allowance of one key in this process."""

    def __init__(self) -> None:
        self._left = 0
        self._until = 0.0  #: when the rest expires
        self._none_before = 0.0  #: nothing is available before then
        self._asking = asyncio.Lock()

    async def take(self, store: AioStore, key: str, rate: float) -> None:
        """Use one request; raises Problem if none is left, RedisUnavailable if Redis cannot be asked."""
        if self._used():
            return
        async with self._asking:
            if self._used():  # an earlier request has fetched for this one, too
                return
            if time.monotonic() >= self._none_before:
                try:
                    taken, wait = await store.run(ops.one(ops.allow(key, rate, max(1, int(rate * _SHARE)))))
                except OutcomeUnknown as error:  # concerns this call only: the request itself has not begun
                    raise RedisUnavailable(str(error)) from None
                now = time.monotonic()
                self._left, self._until, self._none_before = taken, now + _KEPT, now + wait / 1000
            if self._used():
                return
        seconds = max(0.0, self._none_before - time.monotonic())
        allowed = f"the key allows {rate:g} request{'s' * (rate != 1)} a second"
        raise Problem("rate_limited", allowed, retry_after=math.floor(seconds) + 1)

    def _used(self) -> bool:
        if self._left < 1 or time.monotonic() > self._until:
            return False
        self._left -= 1
        return True
