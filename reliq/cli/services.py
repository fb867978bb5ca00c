"""Commands that run until they are stopped: monitor, dev, demo."""

import argparse
import logging
from pathlib import Path
from typing import Any

from reliq.cli.options import (
    command,
    grace_option,
    logging_options,
    metrics_options,
    reconnect_grace_of,
    stop_event,
    store_of,
)
from reliq.contract import values
from reliq.observability.histograms import Measurements


def add_to(commands: Any) -> None:
    """Add these commands to the parser."""
    one = command(
        commands, "monitor", monitor, "return messages of dead workers, promote delayed messages", json_too=False
    )
    one.add_argument(
        "--interval",
        type=float,
        default=values.SCAN_INTERVAL,
        metavar="SECONDS",
        help="time between scans (default 0.5)",
    )
    grace_option(one)
    metrics_options(one)
    one.add_argument("--metrics-partitions", action="store_true", help="also export metrics of each partition")
    logging_options(one)
    one.set_defaults(patient=True)

    what = "run an embedded Redis, a monitor and the dashboard in one terminal"
    one = command(commands, "dev", dev, what, url_default=None, json_too=False)
    one.description = f"{one.description} It starts a Redis of its own, also where RELIQ_URL names another one."
    one.add_argument("app", nargs="?", metavar="MODULE:APP", help="also run the handlers of this application")
    one.add_argument("--sample", action="store_true", help="run a sample application, with messages to look at")
    one.add_argument("--open", action="store_true", help="open the dashboard in a browser")
    one.add_argument("--data", type=Path, default=None, help="where Redis keeps its file (default .data/redis)")
    one.add_argument(
        "--port", type=int, default=0, help="port of Redis (default: that of the last time, else a free one)"
    )
    one.add_argument(
        "--api-port", type=int, default=0, metavar="PORT", help="port for HTTP (default 8080, if it is free)"
    )
    one.set_defaults(quiet=True, patient=True)

    one = command(
        commands,
        "demo",
        demo,
        "watch messages survive kill -9, on the standard library's own files",
        url_default="an embedded one",
        json_too=False,
    )
    one.add_argument("--files", type=int, default=0, metavar="N", help="at most this many files (default: all)")
    one.set_defaults(quiet=True, patient=True)


def monitor(options: argparse.Namespace) -> int:
    """Run a monitor until SIGTERM."""
    from reliq.worker.metrics import exporter_class
    from reliq_monitor import Monitor

    values.port(options.metrics_port or 0, "metrics-port")
    interval = values.seconds(options.interval, "interval", shortest=0.01, longest=60)
    grace = reconnect_grace_of(options)
    stopping = stop_event()
    store, measurements = store_of(options, waits=True), Measurements()
    running = Monitor(store, interval, measurements, grace)
    if options.metrics_port is not None:
        make = exporter_class()
        from reliq.observability.partition_metrics import PartitionCollector
        from reliq.observability.worker_metrics import WorkerCollector

        more = [WorkerCollector(store), *([PartitionCollector(store)] if options.metrics_partitions else [])]
        make(store, [measurements], monitor=running.state, more=more).serve(options.metrics_port, options.metrics_host)
    logging.getLogger("reliq.monitor").info("monitor started")
    running.run(stopping)
    return 0


def dev(options: argparse.Namespace) -> int:
    """Run everything that development needs, until Ctrl-C."""
    from reliq.cli.dev import run

    values.port(options.port, "port")
    values.port(options.api_port, "api-port")
    return run(options)


def demo(options: argparse.Namespace) -> int:
    """Send a message for every file of the standard library, and kill workers half way."""
    from reliq.cli.trials.demo import run

    return run(options.url, files=values.whole(options.files, "files", 0, 1_000_000))
