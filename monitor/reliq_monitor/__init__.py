"""The monitor: returns what vanished workers held, and makes delayed messages ready when they are due."""

from reliq_monitor.monitor import Monitor, MonitorThread

__all__ = ["Monitor", "MonitorThread"]
