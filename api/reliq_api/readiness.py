"""Whether Redis can be used. A probe is answered within a second, also while a look at Redis takes longer."""

import asyncio
import time

from fastapi import Request

from reliq import aio
from reliq.errors import RedisUnsuitable, ReliqError
from reliq.observability.doctor import NODES, examine
from reliq.ops import Steps
from reliq.runtime.looking import looking
from reliq.transport.server_check import check_server
from reliq_api.background import Background
from reliq_api.http.problems import Problem

_WITHIN = 0.8  #: seconds for which a probe waits for the look at Redis
_KEPT = 60.0  #: seconds for which the last look answers for one that has not ended

Found = tuple[list[str], list[str]]  #: why Redis cannot hold queues, and why a part of a cluster cannot


class Readiness:
    """Looks at Redis when a probe comes, one look at a time."""

    def __init__(self, reliq: aio.Reliq, background: Background) -> None:
        self._reliq = reliq
        self._background = background
        self._last: tuple[Found, float] | None = None
        self._looking: asyncio.Task[Found] | None = None

    async def look(self) -> Found:
        """Return what a look finds; if it takes too long, what the last one found, and that this one has not ended."""
        if self._looking is None:
            self._looking = self._background.fetch(self._look())
        done, _ = await asyncio.wait([self._looking], timeout=_WITHIN)
        if done:
            return done.pop().result()
        late = f"Redis did not answer within {_WITHIN:g} s"
        if self._last is None:
            return [late], []
        (found, degraded), at = self._last
        age = time.monotonic() - at
        if age > _KEPT:
            return [late], []
        return found, [*degraded, f"{late}; this was seen {age:.0f} s ago"]

    async def _look(self) -> Found:
        try:
            found = await self._find_problems()
            self._last = found, time.monotonic()
            return found
        finally:
            self._looking = None

    async def _find_problems(self) -> Found:
        store = self._reliq.store
        try:
            with looking():
                return await store.run(readiness_problems(self._reliq), timeout=0)
        except RedisUnsuitable as error:
            store.depart(store.epoch)  # from a former master, for one: the host name may lead to the new one by now
            return [str(error).replace(f" at {store.where}", "")], []
        except ReliqError as error:
            return [f"Redis cannot be used: {type(error).__name__}"], []


def check_tasks(request: Request) -> None:
    """Raise Problem unless all background tasks run."""
    if down := request.app.state.background.down:
        raise Problem("not_ready", f"failed, now restarting: {', '.join(down)}; the log of the service says more")


async def check_ready(request: Request) -> list[str]:
    """Return why a part of a cluster cannot hold queues; raise Problem if Redis cannot, or a task does not run."""
    check_tasks(request)
    readiness: Readiness = request.app.state.readiness
    found, degraded = await readiness.look()
    if found:
        raise Problem("not_ready", " ".join(found))
    return degraded


def readiness_problems(reliq: aio.Reliq) -> Steps[tuple[list[str], list[str]]]:
    """Return why Redis cannot hold queues, and why a part of a cluster cannot, as found by `reliq doctor`.

    Full memory does not count: it drains only through consumers, and some of them use this service. Raises
    RedisUnavailable and RedisUnsuitable.
    """
    yield from check_server(reliq.store.where, reliq.allow_eviction, cluster=reliq.store.sharded)
    report = yield from examine(reliq.store.sharded, pings=1)
    passed = ("memory", "eviction") if reliq.allow_eviction else ("memory",)
    found = [one for one in report.findings if one.level == "failure" and one.subject not in passed]
    texts = {one: f"{one.subject}: {one.fact}. {one.meaning}" for one in found}
    return (
        [text for one, text in texts.items() if one.subject != NODES],
        [text for one, text in texts.items() if one.subject == NODES],
    )
