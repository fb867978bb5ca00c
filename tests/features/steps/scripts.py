"""One call of each script of durable handlers, and what a queue has of them."""

from reliq.features.steps import ops as own
from reliq.features.steps.model import Entry
from reliq.features.steps.ops import Parting
from reliq.model.message import Message
from reliq.ops.coming import Coming
from reliq.ops.held import Hold
from tests.support.state import KEYS, World, element, keyed

HELD = Hold(KEYS, "w", Message.decode("q", keyed("a", "k")))
ENTRY = Entry("s", 1, "charge", b"j5").encoded()
CALLS = {
    "park": lambda: own.park(HELD, "approval", 60.0, Parting(keyed("a2", "k"), frees_key=True)),
    "leave_record": lambda: own.leave_record(KEYS, "r"),
    "put_record": lambda: own.put_record(KEYS, Coming("y", KEYS.dedup("brought")), b"0 0 -", []),
    "record": lambda: own.record(HELD, 1, ENTRY),
    "recorded": lambda: own.recorded(KEYS, "a"),
    "remove_parked": lambda: own.remove_parked(KEYS, "purged", ["p"], KEYS.call("once")),
    "signal": lambda: own.signal(KEYS, "p", "approval", b"j1", None, KEYS.call("once")),
    "sleep": lambda: own.sleep(HELD, 1, ENTRY, 60.0, Parting(keyed("a2", "k"), frees_key=True), "slept"),
    "unpark_due": lambda: own.unpark_due(KEYS, 10),
}


def given(world: World) -> None:
    world.redis.hset(KEYS.parked, "p", b"1 1 approval\n" + element("p"))
    world.redis.zadd(KEYS.waits, {b"\r" + (1).to_bytes(6, "big") + b"\x01p": -1})
    world.redis.hset(KEYS.followed, "\nr", "0 0 -")
