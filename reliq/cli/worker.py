"""The command that runs the handlers of an application: in this process, in several, or again at every change."""

import argparse
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reliq.cli.child_settings import ChildSettings
from reliq.cli.loading import load
from reliq.cli.options import (
    BAD_USAGE,
    command,
    expect_no_refusal,
    grace_option,
    logging_options,
    metrics_options,
    reconnect_grace_of,
)
from reliq.cli.queue_names import left_out
from reliq.cli.streams import print_whole_lines
from reliq.contract import values
from reliq.model.keys import new_owner
from reliq.observability.histograms import Measurements
from reliq.protocol.application import Application, url_from_environment
from reliq.runtime import startup
from reliq.runtime.process import name_process
from reliq.runtime.url import read_url
from reliq.transport.store import Store

#: Options of `reliq worker` that are not passed on to its child processes.
_OF_THE_PARENT = {"run", "app", "processes", "monitor", "reconnect_grace", "metrics_port", "metrics_host", "reload"}


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    one = command(commands, "worker run", worker, "run the handlers of an application", json_too=False)
    one.set_defaults(patient=True)
    one.add_argument("app", metavar="MODULE:APP", help="the reliq.Reliq object, e.g. shop.tasks:app")
    one.add_argument("--processes", type=int, default=1, metavar="N", help="worker processes (default 1)")
    one.add_argument(
        "--threads", type=int, default=1, metavar="N", help="def handlers at once, per process (default 1)"
    )
    one.add_argument(
        "--concurrency", type=int, default=100, metavar="N", help="async def handlers at once, per queue (default 100)"
    )
    one.add_argument(
        "--lease",
        default=values.LEASE,
        metavar="TIME",
        help="how long a worker keeps its messages without a heartbeat (default 15s)",
    )
    one.add_argument(
        "--grace", type=float, default=values.GRACE, metavar="SECONDS", help="time to finish after SIGTERM (default 25)"
    )
    one.add_argument("--queues", metavar="A,B", help="handle only these queues of the application")
    one.add_argument("--except", dest="without", metavar="A,B", help="handle all its queues but these")
    one.add_argument("--reload", action="store_true", help="start again when a Python file of this folder changes")
    metrics_options(one)
    grace_option(one)
    one.add_argument("--no-monitor", dest="monitor", action="store_false", help="run no monitor in this process")
    one.add_argument("--tracebacks", action="store_true", help="log retried failures with their tracebacks")
    logging_options(one)
    if (child := ChildSettings.read()) is not None:
        one.set_defaults(**child.options)


def worker(options: argparse.Namespace) -> int:
    """Run the handlers of an application."""
    from reliq.worker import Options
    from reliq.worker.metrics import Metering

    child = ChildSettings.take()
    values.whole(options.processes, "processes", 1, 1000)
    values.port(options.metrics_port or 0, "metrics-port")
    grace = reconnect_grace_of(options)
    url = url_from_environment(options.url)
    read_url(url)  # a wrong one is refused here: the application would show a traceback
    if options.url is not None:
        os.environ["RELIQ_URL"] = url
        options.url = "env:RELIQ_URL"  # what the children are told has no password
    if options.reload:
        return _reload(options, child)
    print_whole_lines()
    app = load(options.app)
    if app is None:
        return BAD_USAGE
    if options.queues is not None or options.without:
        app.handlers.leave_out(left_out([one.queue for one in app.handlers], options.queues, options.without))
    name_process(f"reliq worker {options.app}")
    startup.note_only()
    url = url_from_environment(options.url or app.url)
    store = Store(url, allow_eviction=app.allow_eviction)
    if child is None:
        expect_no_refusal(store)
    if options.url:
        app._redirect(url)  # noqa: SLF001
    work = Options(options.threads, options.concurrency, options.lease, options.grace)
    metering = Metering(app.handlers, work, options.processes)
    with contextlib.ExitStack() as stack:
        monitor = None
        if options.monitor:
            monitor = stack.enter_context(_monitor(store, metering.own, grace))
        stack.enter_context(metering)
        if options.metrics_port is not None:
            metering.serve(store, options.metrics_port, options.metrics_host, monitor and monitor.monitor.state)
        if options.processes == 1:
            measurements = None if options.metrics_port is None else metering.own
            return _work_here(app, store, work, measurements, child)
        return _supervise(options, store, metering, child)


def _reload(options: argparse.Namespace, child: ChildSettings | None) -> int:
    from reliq.cli.reload import Stops, run_again_and_again

    stops = Stops()
    startup.take_over(stops.stop)
    if child is not None:
        _stop_with_parent(stops.stop)
    again = {name: value for name, value in vars(options).items() if name not in ("run", "app", "reload")}
    return run_again_and_again(options.app, again, options.grace, stops)


def _supervise(options: argparse.Namespace, store: Store, metering: Any, child: ChildSettings | None) -> int:
    # All at the start: when a child dies, another version may be installed over this one.
    from reliq.worker.supervisor import Child, Supervisor
    from reliq_monitor.reclaim import take_back_owner

    def start(place: int) -> Child:
        settings = ChildSettings(new_owner(), place, child_options(options), metering.folder)
        command = [sys.executable, "-m", "reliq", "worker", options.app]
        return Child(settings.owner, command, settings.environment())

    def take_back(owner: str, seen_at: float) -> int:
        returned = store.run(take_back_owner(owner))
        for queue, messages in returned.items():
            metering.own.recovered(queue, time.monotonic() - seen_at, messages)
        return sum(returned.values())

    supervisor = Supervisor(start, options.processes, options.grace, take_back)
    supervisor.stop_on_signals()
    if child is not None:
        _stop_with_parent(supervisor.stop)
    return supervisor.run()


def child_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of a worker's child processes, which have neither a monitor nor a metrics server."""
    return {name: value for name, value in vars(options).items() if name not in _OF_THE_PARENT} | {"monitor": False}


def _work_here(
    app: Application, store: Store, work: Any, measurements: Measurements | None, child: ChildSettings | None
) -> int:
    from reliq.worker import Worker
    from reliq.worker.metrics import of_child
    from reliq.worker.supervisor import TOLD_TO_STOP
    from reliq.worker.worker import exit_now

    if child is not None and child.metrics_folder is not None:
        measurements = of_child(child.metrics_folder, child.place)
    running = Worker(store, app.handlers, work, None if child is None else child.owner, measurements)
    running.stop_on_signals()
    if child is not None:
        _stop_with_parent(running.stop)
    status = startup.end_status(running.run())
    exit_now(TOLD_TO_STOP if child is not None and running.told_to_stop and status == 0 else status)
    return 0


def _stop_with_parent(stop: Callable[[], None]) -> None:
    """Stop when the parent is gone: standard input is a pipe that the parent holds open.

    From now on it is empty: a program that a handler runs would wait at the pipe for its end.
    """
    pipe = os.dup(sys.stdin.fileno())
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), sys.stdin.fileno())

    def wait() -> None:
        while os.read(pipe, 4096):
            pass
        stop()

    threading.Thread(target=wait, name="reliq-parent", daemon=True).start()


def _monitor(store: Store, measurements: Measurements, reconnect_grace: float) -> Any:
    from reliq_monitor import MonitorThread

    return MonitorThread(store, measurements=measurements, reconnect_grace=reconnect_grace)
