"""One call of each script of the schedules, and what a queue has of them."""

from reliq.features.schedules import ops as own
from reliq.features.schedules.model import Definition, Run, State
from tests.scripts.test_schedules import due_tick
from tests.support.state import KEYS, World

CALLS = {
    "fates": lambda: own.fates(KEYS, ["d", "x", "none"], ["w"], 10),
    "fire": lambda: own.fire(KEYS, [due_tick("z")]),
    "schedule_put": lambda: own.schedule_put(KEYS, [own.Written("s", b"", State("r", 1, 1), None)]),
    "schedule_index": lambda: own.index_schedules([("s", "", "q")]),
    "schedule_ran": lambda: own.schedule_ran(KEYS, "tick", Run(1, 1)),
    "schedule_remove": lambda: own.schedule_remove(KEYS, "tick", KEYS.call("once")),
    "ticks": lambda: own.ticks([KEYS], 3.0, 10, 10, [0]),
}


def given(world: World) -> None:
    tick = own.Written("tick", b"", State("r", 1, 1), Definition("tick", "q", "1s"))
    world.run(own.schedule_put(KEYS, [tick]))
    world.redis.hset(KEYS.runs, "tick", "1 {}")
