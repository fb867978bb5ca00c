"""Commands that run until they are stopped: worker, monitor, dev, demo."""

import argparse
import importlib
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import reliq
from reliq.cli.child_settings import ChildSettings
from reliq.cli.options import BAD_USAGE, command, logging_options, metrics_options, stop_event, store_of
from reliq.errors import MissingExtra, RedisUnavailable, RedisUnsuitable
from reliq.model import settings
from reliq.model.keys import new_owner
from reliq.observability.histograms import Measurements
from reliq.protocol.application import Application, url_from_environment
from reliq.runtime import startup
from reliq.runtime.outage_log import OutageLog
from reliq.transport.store import Store

#: Options of `reliq worker` that are not passed on to its child processes.
_OF_THE_PARENT = {"run", "app", "processes", "monitor", "reconnect_grace", "metrics_port", "metrics_host"}


def add_to(commands: Any) -> None:
    """Add these commands to the parser."""
    one = command(commands, "worker", worker, "run the handlers of an application")
    one.add_argument("app", metavar="MODULE:APP", help="where the reliq.Reliq object is, e.g. shop.tasks:app")
    one.add_argument("--processes", type=int, default=1, metavar="N", help="worker processes (default 1)")
    one.add_argument(
        "--threads", type=int, default=1, metavar="N", help="def handlers at once, per process (default 1)"
    )
    one.add_argument(
        "--concurrency", type=int, default=100, metavar="N", help="async def handlers at once, per queue (default 100)"
    )
    one.add_argument(
        "--lease",
        default=settings.LEASE,
        metavar="TIME",
        help="silence after which a worker counts as dead (default 15s)",
    )
    one.add_argument(
        "--grace",
        type=float,
        default=settings.GRACE,
        metavar="SECONDS",
        help="time to finish after SIGTERM (default 25)",
    )
    metrics_options(one)
    _grace_option(one)
    one.add_argument("--no-monitor", dest="monitor", action="store_false", help="run no monitor in this process")
    one.add_argument("--tracebacks", action="store_true", help="log a failure that is tried again with its traceback")
    logging_options(one)
    if (child := ChildSettings.read()) is not None:
        one.set_defaults(**child.options)

    one = command(commands, "monitor", monitor, "return messages of vanished workers, make delayed messages ready")
    one.add_argument(
        "--interval",
        type=float,
        default=settings.SCAN_INTERVAL,
        metavar="SECONDS",
        help="between two scans (default 0.5)",
    )
    _grace_option(one)
    metrics_options(one)
    logging_options(one)

    one = command(commands, "dev", dev, "an embedded Redis and a monitor in one terminal")
    one.add_argument("--data", type=Path, default=None, help="where Redis keeps its file (default .data/redis)")
    one.add_argument("--port", type=int, default=0, help="port of 127.0.0.1 (default: a free one)")
    one.set_defaults(quiet=True)

    one = command(
        commands,
        "demo",
        demo,
        "see messages survive kill -9, on the standard library's own files",
        url_default="an embedded one",
    )
    one.add_argument("--files", type=int, default=0, metavar="N", help="at most this many files (default: all)")
    one.set_defaults(quiet=True)


def _grace_option(one: argparse.ArgumentParser) -> None:
    one.add_argument(
        "--reconnect-grace",
        default=os.environ.get("RELIQ_RECONNECT_GRACE") or settings.RECONNECT_GRACE,
        metavar="TIME",
        help="how long a worker may be without its connection before the monitor considers it dead, sooner than its "
        "lease (default 5s, or RELIQ_RECONNECT_GRACE)",
    )


def worker(options: argparse.Namespace) -> int:
    """Run the handlers of an application."""
    from reliq.worker import Options
    from reliq.worker.metrics import Metering

    child = ChildSettings.take()
    settings.whole(options.processes, "processes", 1, 1000)
    if options.url:
        os.environ["RELIQ_URL"] = url_from_environment(options.url)
        options.url = "env:RELIQ_URL"  # what the children are told has no password
    app = _load(options.app)
    if app is None:
        return BAD_USAGE
    if startup.note_only():
        return 0
    url = url_from_environment(options.url or app.url)
    store = Store(url, allow_eviction=app.allow_eviction)
    if options.url and isinstance(app, reliq.Reliq):
        app.store.redirect(url)
    work = Options(options.threads, options.concurrency, options.lease, options.grace)
    metering = Metering(app.handlers, work, options.processes)
    monitor = _monitor_beside(store, metering.own, options.reconnect_grace) if options.monitor else None
    try:
        with metering:
            if options.metrics_port is not None:
                metering.serve(store, options.metrics_port, options.metrics_host, monitor and monitor.monitor)
            if options.processes == 1:
                measurements = None if options.metrics_port is None else metering.own
                return _work_here(app, store, work, measurements, child)
            return _supervise(options, store, metering)
    finally:
        if monitor is not None:
            monitor.stop()


def _supervise(options: argparse.Namespace, store: Store, metering: Any) -> int:
    from reliq.worker.supervisor import Child, Supervisor

    def start(place: int) -> Child:
        child = ChildSettings(new_owner(), place, child_options(options), metering.folder)
        command = [sys.executable, "-m", "reliq", "worker", options.app]
        return Child(child.owner, command, child.environment())

    def take_back(owner: str, seen_at: float) -> int:
        return _take_back(store, owner, seen_at, metering.own)

    supervisor = Supervisor(start, options.processes, options.grace, take_back)
    supervisor.stop_on_signals()
    return supervisor.run()


def child_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a worker's child processes, which have neither a monitor nor a metrics server."""
    return {name: value for name, value in vars(options).items() if name not in _OF_THE_PARENT} | {"monitor": False}


def _work_here(
    app: Application, store: Store, work: Any, measurements: Measurements | None, child: ChildSettings | None
) -> int:
    from reliq.worker import Worker
    from reliq.worker.metrics import of_child
    from reliq.worker.worker import exit_now

    if child is not None and child.metrics_folder is not None:
        measurements = of_child(app.handlers, child.metrics_folder, child.place)
    running = Worker(store, app.handlers, work, None if child is None else child.owner, measurements)
    running.stop_on_signals()
    if child is not None:
        _stop_with_parent(running.stop)
    exit_now(running.run())
    return 0


def _stop_with_parent(stop: Callable[[], None]) -> None:
    """Stop when the parent is gone: standard input is a pipe that the parent holds open."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        stop()

    threading.Thread(target=wait, name="reliq-parent", daemon=True).start()


def _load(target: str) -> Application | None:
    """Load the application named MODULE:ATTRIBUTE; None, with the reason printed, if that fails."""
    module_name, _, attribute = target.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")) or module_name.endswith(".py"):
        print(
            f"reliq: {target!r} is not MODULE:APP: write a module as in `import`, e.g. shop.tasks:app", file=sys.stderr
        )
        return None
    if "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = _imported(module_name)
    except MissingExtra:  # its text says it all
        raise
    except Exception as error:  # noqa: BLE001  a user's module may raise anything
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            print(f"reliq: there is no module {error.name!r}, neither in {Path.cwd()} nor installed", file=sys.stderr)
            return None
        traceback.print_exception(error.with_traceback(_without_importing(error.__traceback__)))
        print(f"reliq: cannot import {module_name!r}, see above", file=sys.stderr)
        return None
    app = getattr(module, attribute or "app", None)
    if not isinstance(app, Application):
        kind = "has no attribute" if app is None else f"has a {type(app).__name__}, not a reliq.Reliq, as"
        print(f"reliq: module {module_name!r} {kind} {attribute or 'app'!r}: give MODULE:APP", file=sys.stderr)
        return None
    if app.handlers.empty:
        print(f"reliq: {target} has no handlers: decorate a function with @app.handler(queue)", file=sys.stderr)
        return None
    return app


def _without_importing(frames: TracebackType | None) -> TracebackType | None:
    """Remove the frames of this module and of Python's import before those of the application."""
    while frames is not None and (
        frames.tb_frame.f_code.co_filename == __file__ or "importlib" in frames.tb_frame.f_code.co_filename
    ):
        frames = frames.tb_next
    return frames


def _imported(name: str) -> ModuleType:
    """Import the module. If its import uses Redis, for example to subscribe, wait until Redis is reachable."""
    outage = OutageLog(logging.getLogger("reliq.worker"), f"importing {name}")
    while True:
        try:
            return importlib.import_module(name)
        except RedisUnsuitable:
            raise
        except RedisUnavailable as error:
            outage.failed(error)
            time.sleep(1.0)


def _monitor_beside(store: Store, measurements: Measurements, reconnect_grace: settings.Duration) -> Any:
    from reliq_monitor import MonitorThread

    thread = MonitorThread(store, measurements=measurements, reconnect_grace=reconnect_grace)
    thread.start()
    return thread


def _take_back(store: Store, owner: str, seen_at: float, measurements: Measurements) -> int:
    from reliq_monitor.reclaim import take_back_owner

    returned = store.run(take_back_owner(owner))
    for queue, messages in returned.items():
        measurements.recovered(queue, time.monotonic() - seen_at, messages)
    return sum(returned.values())


def monitor(options: argparse.Namespace) -> int:
    """Run a monitor until SIGTERM."""
    from reliq.worker.metrics import exporter_class
    from reliq_monitor import Monitor

    interval = settings.seconds(options.interval, "interval", shortest=0.01, longest=60)
    stopping = stop_event()
    store, measurements = store_of(options), Measurements()
    running = Monitor(store, interval, measurements, options.reconnect_grace)
    if options.metrics_port is not None:
        exporter_class()(store, [measurements], monitor=running).serve(options.metrics_port, options.metrics_host)
    logging.getLogger("reliq.monitor").info("monitor started")
    running.run(stopping)
    return 0


def dev(options: argparse.Namespace) -> int:
    """Run an embedded Redis and a monitor in this terminal."""
    from reliq.embedded import EmbeddedRedis, data_folder
    from reliq_monitor import Monitor

    settings.whole(options.port, "port", 0, 65_535)
    stopping = stop_event()
    with EmbeddedRedis(options.data or data_folder(), port=options.port) as server:
        print(f"Redis    {server.url}   (data in {server.folder})")
        print(f"Monitor  running\n\nexport RELIQ_URL={server.url}\n\nCtrl-C ends it; the messages stay.", flush=True)
        Monitor(Store(server.url)).run(stopping)
    return 0


def demo(options: argparse.Namespace) -> int:
    """Send a message for every file of the standard library, and kill workers half way."""
    from reliq.cli.trials.demo import run

    return run(options.url, files=settings.whole(options.files, "files", 0, 1_000_000))
