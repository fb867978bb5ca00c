"""One call of each script of the batches."""

from reliq.features.batches import ops as own
from reliq.features.batches.model import Counts
from tests.support.state import KEYS, World

CALLS = {
    "batch_open": lambda: own.batch_open("batch", {"done": b"", "dead": b""}, "parent"),
    "batch_change": lambda: own.batch_change("batch", "state", "closed"),
    "batch_end": lambda: own.batch_end("batch", "parent", Counts(0, 3, 1, 1)),
    "batch_note": lambda: own.batch_ending("batch", b"3 1 1"),
    "batch_forget": lambda: own.batch_forget(KEYS, "batch"),
}


def given(_: World) -> None:
    """The queue that all tests of scripts have is enough."""
