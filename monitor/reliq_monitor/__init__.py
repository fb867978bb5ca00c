"""The monitor: returns the messages of vanished workers, and makes delayed messages ready when they are due."""

from reliq_monitor.monitor import Monitor
from reliq_monitor.thread import MonitorThread

__all__ = ["Monitor", "MonitorThread"]
