"""One call of each script of flows, and what a queue has of them."""

from reliq.features.flows import ops as own
from tests.support.state import KEYS, World

CALLS = {"flow_hold": lambda: own.flow_hold(KEYS, [("later", ["a", "b"])])}


def given(world: World) -> None:
    """Nothing is there before."""
