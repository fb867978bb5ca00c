"""The process of the endpoint: its server, a monitor beside it, and where `reliq api --sqs` runs both services."""

import contextlib
import threading
from collections.abc import Iterator

from reliq.observability.prometheus import Exporter
from reliq.protocol.application import eviction_allowed, url_from_environment
from reliq.transport.store import Store
from reliq_api.server import Server, listen, run, server_for
from reliq_monitor import MonitorThread
from reliq_sqs.app import create_app
from reliq_sqs.settings import Settings


def serve(settings: Settings, monitor: bool) -> None:
    """Serve until SIGTERM or SIGINT, with a monitor in this process if wanted. Raises InvalidSetting."""
    with _server(settings, monitor) as server:
        run(server, settings)


@contextlib.contextmanager
def serving(settings: Settings) -> Iterator[None]:
    """Serve in a thread while the context lasts, beside another service of the process, which handles the signals.

    Raises InvalidSetting if the port is taken.
    """
    with _server(settings, monitor=True) as server:
        listening = listen(settings)
        thread = threading.Thread(target=server.run, args=[listening], name="reliq-sqs", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join(timeout=settings.grace + 10)


@contextlib.contextmanager
def _server(settings: Settings, monitor: bool) -> Iterator[Server]:
    """The server, with what runs beside it: a monitor, and metrics."""
    app = create_app(settings)
    store = Store(url_from_environment(settings.url), allow_eviction=eviction_allowed(settings.allow_eviction))
    with contextlib.ExitStack() as stack:
        running = None
        if monitor:
            running = stack.enter_context(MonitorThread(store, measurements=app.state.measurements))
        if settings.metrics_port is not None:
            exporter = Exporter(store, [app.state.measurements], monitor=running.monitor.state if running else None)
            stack.enter_context(exporter.serve(settings.metrics_port, settings.metrics_host))
        yield server_for(app, settings)
