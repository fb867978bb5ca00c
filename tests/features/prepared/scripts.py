"""One call of each script of prepared messages, and what a queue has of them."""

from reliq.features.prepared import ops as own
from reliq.ops import Entry
from tests.support.state import KEYS, World, element, keyed

ENTRY = Entry("n", keyed("n", "k"), 0.0, "dedup", 60.0, "digest")
CALLS = {
    "ask": lambda: own.ask(KEYS, "p", element("p2"), 60.0),
    "decide": lambda: own.decide(KEYS, "p", "committed", 60.0, "producer", 1, KEYS.dedup("dedup")),
    "prepare": lambda: own.prepare(KEYS, ENTRY, 60.0, 3, "producer", 1),
}


def given(world: World) -> None:
    prepared = Entry("p", keyed("p", "k"), 0.0, "dedup", 86_400.0, "digest")
    world.run(own.prepare(KEYS, prepared, 86_400.0, 3, "z", 1))
    world.redis.zadd(KEYS.prepared, {"p": 1})
