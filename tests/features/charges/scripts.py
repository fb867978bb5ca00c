"""One call of each script of charges, and what a queue has of it."""

from reliq.features.charges import ops as own
from reliq.model.message import Message
from tests.support.state import KEYS, World, keyed

CALLS = {"charge": lambda: own.charge(KEYS, Message.decode("q", keyed("a", "k")), 5)}


def given(world: World) -> None:
    pass
