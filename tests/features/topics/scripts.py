"""One call of each script of topics."""

from reliq.features.topics import ops as own
from reliq.model.keys import TOPICS_CALL, QueueKeys
from tests.support.state import KEYS, World, keyed

CALLS = {
    "bind": lambda: own.bind("bind", ["q order.created"], TOPICS_CALL + "once"),
    "publish": lambda: own.publish([KEYS, QueueKeys("other")], "n", keyed("n", "k"), 0.0, "producer", 1),
}


def given(world: World) -> None:
    """A queue has nothing of topics."""
