"""One call of each script of the cycle, and what a queue has of it."""

from reliq.features.cycle import ops as own
from reliq.model.element import group_of
from tests.scripts.test_cycle import member
from tests.support.state import KEYS, World

CALLS = {
    "cycle_add": lambda: own.cycle_add(KEYS, [member("n", "bob")], "producer", 1),
    "cycle_remove": lambda: own.cycle_remove(KEYS, [group_of("ann")]),
}


def given(world: World) -> None:
    world.run(own.cycle_add(KEYS, [member("i", "ann")]))
