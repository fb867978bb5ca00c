"""A monitor inside another process, such as a worker."""

import threading
from typing import Self

from reliq.contract import values
from reliq.observability.histograms import Measurements
from reliq.transport.store import Store
from reliq_monitor.monitor import Monitor


class MonitorThread(threading.Thread):
    """A monitor that runs in a thread until `stop`; as a context, from its beginning to its end."""

    def __init__(
        self,
        store: Store,
        scan_interval: float = values.SCAN_INTERVAL,
        measurements: Measurements | None = None,
        reconnect_grace: values.Duration = values.RECONNECT_GRACE,
    ) -> None:
        super().__init__(name="reliq-monitor", daemon=True)
        self.monitor = Monitor(store, scan_interval, measurements, reconnect_grace)
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self) -> None:
        self.monitor.run(self._stopping)

    def stop(self) -> None:
        """Stop the monitor and wait for its end."""
        self._stopping.set()
        self.join(timeout=10)
