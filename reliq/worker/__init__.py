"""The worker: claims messages, runs their handlers, settles them."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reliq.worker.worker import Options, Worker

__all__ = ["Options", "Worker"]


def __getattr__(name: str) -> object:
    """Import the worker when it is asked for: it imports the slices, and their companions this package."""
    if name in __all__:
        return getattr(import_module("reliq.worker.worker"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
