"""The process of the endpoint: its server, a monitor beside it, and where `reliq api --sqs` runs both services."""

import contextlib
import logging
import threading
from collections.abc import Iterator

from reliq.protocol.application import eviction_allowed, url_from_environment
from reliq.transport.store import Store
from reliq_api.server import Server, run, server_for
from reliq_sqs.app import create_app
from reliq_sqs.settings import Settings

log = logging.getLogger("reliq.sqs")


def server_of(settings: Settings) -> Server:
    return server_for(create_app(settings), settings)


def serve(settings: Settings, monitor: bool) -> None:
    """Serve until SIGTERM or SIGINT, with a monitor in this process if wanted. Raises InvalidSetting."""
    with _monitor(settings) if monitor else contextlib.nullcontext():
        run(server_of(settings), settings)


@contextlib.contextmanager
def beside(settings: Settings, monitor: bool) -> Iterator[None]:
    """Serve in a thread while the context lasts, beside another service of the process, which has the signals."""
    server = server_of(settings)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            run(server, settings)
        except BaseException as error:  # noqa: BLE001  it is raised in the thread of the context
            failed.append(error)

    thread = threading.Thread(target=work, name="reliq-sqs", daemon=True)
    with _monitor(settings) if monitor else contextlib.nullcontext():
        thread.start()
        try:
            yield
        finally:
            server.should_exit = True
            thread.join(timeout=settings.grace + 10)
    if failed:
        raise failed[0]


@contextlib.contextmanager
def _monitor(settings: Settings) -> Iterator[None]:
    from reliq_monitor import MonitorThread

    url = url_from_environment(settings.url)
    thread = MonitorThread(Store(url, allow_eviction=eviction_allowed(settings.allow_eviction)))
    thread.start()
    try:
        yield
    finally:
        thread.stop()
