"""The call of the script of results."""

from reliq.features.results import ops as own
from tests.support.state import KEYS, World

CALLS = {"result": lambda: own.result(KEYS, "a", 1.0)}


def given(_: World) -> None:
    """The queue that all tests of scripts have is enough."""
