"""Which nodes of a Redis Cluster answer."""

from reliq import ops
from reliq.errors import ReliqError
from reliq.ops import Steps, Together
from reliq.ops.topology import cluster_slots
from reliq.runtime.looking import is_away


def nodes_away() -> Steps[tuple[int, dict[str, str]]]:
    """Ask each master with slots; return how many there are, and why those that did not answer did not."""
    slots = yield cluster_slots(("", 0))
    answers = yield Together([ops.one(ops.exists(slots.key_on(node))) for node in slots.nodes])
    away = {
        f"{node[0]}:{node[1]}": str(answer)
        for node, answer in zip(slots.nodes, answers, strict=True)
        if isinstance(answer, ReliqError) and is_away(answer)
    }
    return len(slots.nodes), away
