"""One call of each script of output, and what a queue has of it."""

from reliq.features.output import ops as own
from reliq.model.message import Message
from reliq.ops.coming import Coming
from reliq.ops.held import Hold
from tests.support.state import KEYS, World, keyed

HELD = Hold(KEYS, "w", Message.decode("q", keyed("a", "k")))
BROUGHT = own.Emitted(
    "1 2 1 1 token 0 open", exists=True, entries=((b"9000000000000-0", (b"run", b"1", b"chunk", b"j1")),)
)
CALLS = {
    "emit": lambda: own.emit(HELD, "token", b"j1"),
    "emitted": lambda: own.emitted(KEYS, "y", "", 10),
    "put_output": lambda: own.put_output(KEYS, Coming("z", KEYS.dedup("brought")), "9000000000000-0", BROUGHT),
    "gone_outputs": lambda: own.gone_outputs(KEYS, 10),
    "drop_outputs": lambda: own.drop_outputs(KEYS, 1, [own.Gone("gone", "1")]),
}


def given(world: World) -> None:
    world.redis.set(KEYS.outputs, "1")
    for name in ("a", "y", "gone"):
        world.redis.xadd(KEYS.output(name), {"run": 1, "chunk": "j1"})
    world.redis.hset(KEYS.followed, mapping={"\t": 1, "\t\t1": "gone"})
