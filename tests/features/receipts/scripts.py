"""One call of each script of messages in flight, and what a queue has of them."""

from reliq.features.receipts import ops as own
from reliq.features.receipts.ops import Flight
from reliq.model.element import group_of, name_of
from tests.support.state import KEYS, World, keyed

IN_FLIGHT = keyed("f", "k2")
CALLS = {
    "delete_flying": lambda: own.delete_flying(KEYS, [name_of(IN_FLIGHT)], late=True),
    "delete_received": lambda: own.delete_received(KEYS, [(name_of(IN_FLIGHT), "")], late=True),
    "purge_received": lambda: own.cancel_received(KEYS, "f", KEYS.call("once")),
    "receive": lambda: own.receive(KEYS, "w", 30.0, [Flight(keyed("c", "k"), keyed("c2", "k"))], "attempt"),
    "receive_ready": lambda: own.receive_ready(KEYS, 30.0, 10, None, [b"12345678"] * 10, runs=True),
    "receive_again": lambda: own.receive_again(KEYS, "attempt", 30.0),
    "keep_received": lambda: own.keep_received(KEYS, "attempt", 30.0, 0, 10),
    "change_delay": lambda: own.change_delay(KEYS, [("d", 1)]),
    "return_due": lambda: own.return_due(KEYS, 10),
    "set_visibility": lambda: own.set_visibility(KEYS, [(name_of(IN_FLIGHT), 0.0, "")]),
}


def given(world: World) -> None:
    world.redis.zadd(KEYS.received, {"f": 1})
    world.redis.hset(KEYS.receipts, "f", b"0" * 16 + IN_FLIGHT)
    world.redis.hset(KEYS.active, group_of("k2"), " " + "0" * 16)
