"""One call of each script that finds and cancels messages."""

from reliq.features.tracking import ops as own
from reliq.features.tracking.ops import Criterion
from reliq.features.tracking.search_ops import search
from tests.support.state import KEYS, World

CALLS = {
    "biography": lambda: own.biography(KEYS, "a", b"-"),
    "forget_tracked": lambda: own.forget_tracked(KEYS),
    "search": lambda: search(KEYS, KEYS.messages, 0, b"m", 10, 100),
    "sweep": lambda: own.sweep(KEYS, KEYS.messages, 0, Criterion.with_id("m"), 1, KEYS.call("once")),
    "tell": lambda: own.tell(KEYS, "w", "a", 0),
}


def given(_: World) -> None:
    """The queue that all tests of scripts have is enough."""
