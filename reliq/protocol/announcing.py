"""Announcing a queue in a call of its own; where it shares a call, the transport leaves it out as `announced` does."""

from reliq import ops
from reliq.errors import RedisUnavailable, RedisUnsuitable
from reliq.ops import Steps

_RETRIES = 3


def announce_if_possible(queue: str) -> Steps[None]:
    """Announce a queue unless the node of the names is away: its own node is not, and a later call announces it."""
    try:
        yield ops.at_most(ops.announce(queue), _RETRIES)
    except RedisUnsuitable:
        raise
    except RedisUnavailable:
        pass
