"""Memory pressure, checked once a second: producers must wait long before Redis itself refuses."""

from reliq import aio, ops
from reliq.errors import RedisUnsuitable
from reliq.ops import Steps
from reliq_api.access.cached import Cached
from reliq_api.background import Background
from reliq_api.http.problems import Problem

_EVERY = 1.0
_KEPT = 10.0  #: seconds for which the share that was read last holds while a node of a cluster does not answer


class Pressure:
    """The used share of Redis' memory."""

    def __init__(self, reliq: aio.Reliq, watermark: float, background: Background) -> None:
        self._watermark = watermark
        self._share = Cached(
            "memory of Redis", lambda: reliq.store.run(used_share()), _EVERY, background, lambda _: _KEPT
        )

    async def check(self) -> None:
        """Raise Problem if nothing more should be enqueued."""
        share = await self._share.get()
        if share >= self._watermark:
            raise Problem(
                "memory_pressure",
                f"Redis uses {share:.0%} of its maxmemory, {self._watermark:.0%} is the limit; nothing was enqueued",
            )


def used_share() -> Steps[float]:
    """Read the used share of maxmemory; 0.0 without maxmemory, or if INFO is forbidden."""
    try:
        (info,) = yield ops.server_info("memory")
    except RedisUnsuitable:  # INFO is forbidden
        return 0.0
    most = int(info.get("maxmemory", 0))
    return int(info.get("used_memory", 0)) / most if most else 0.0
