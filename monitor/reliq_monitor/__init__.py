"""The monitor: returns the messages of vanished workers, and makes delayed messages ready when they are due."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reliq_monitor.monitor import Monitor
    from reliq_monitor.thread import MonitorThread

__all__ = ["Monitor", "MonitorThread"]


def __getattr__(name: str) -> object:
    """Import the monitor when it is asked for: it imports the slices, and their duties this package."""
    if name in __all__:
        return getattr(import_module(f"reliq_monitor.{'monitor' if name == 'Monitor' else 'thread'}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
