"""The command line: the one place that puts library, worker and monitor together."""

import argparse
import importlib
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import reliq
from reliq import logs, settings
from reliq.app import Application, eviction_allowed, url_from_environment
from reliq.dead_letters import REASONS, DeadLetter
from reliq.errors import RedisUnavailable, ReliqError
from reliq.observe import Measurements
from reliq.progress import Progress
from reliq.store import Store, unchecked_store

BAD_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit status: 0 done, 1 failed, 2 wrong usage."""
    options = _parser().parse_args(arguments)
    level = logging.WARNING if getattr(options, "quiet", False) else logging.INFO
    logs.configure(level, as_json=getattr(options, "log_json", False))
    if os.environ.get("RELIQ_OTEL") == "1":
        from reliq.otel import instrument

        instrument()
    try:
        status: int = options.run(options)
        return status
    except ReliqError as error:
        print(f"reliq: {error}", file=sys.stderr)
        return BAD_USAGE if isinstance(error, ValueError) else 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `reliq dead list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def entry() -> NoReturn:
    sys.exit(main())


# --- services --------------------------------------------------------------------------------------------------------


def worker(options: argparse.Namespace) -> int:
    """Run the handlers of an application."""
    from reliq.metering import Metering
    from reliq.worker import Options
    from reliq.worker.supervisor import Supervisor

    if options.url:
        os.environ["RELIQ_URL"] = options.url
    app = _load(options.app)
    if app is None:
        return BAD_USAGE
    store = Store(options.url or app.url, allow_eviction=app.allow_eviction)
    if options.url and isinstance(app, reliq.Reliq):
        app.store.redirect(options.url)
    work = Options(options.threads, options.concurrency, options.lease, options.grace)
    metering = Metering(app.handlers, work, options.processes)
    monitor = _monitor_beside(store, metering.own) if options.monitor else None
    try:
        with metering:
            if options.metrics_port is not None:
                metering.serve(store, options.metrics_port, options.metrics_host, monitor and monitor.monitor)
            if options.processes == 1:
                measurements = None if options.metrics_port is None else metering.own
                return _work_here(app, store, work, measurements)
            supervisor = Supervisor(
                [sys.executable, "-m", "reliq", *_child_arguments(options)],
                options.processes,
                options.grace,
                lambda owner, seen_at: _take_back(store, owner, seen_at, metering.own),
            )
            supervisor.stop_on_signals()
            return supervisor.run()
    finally:
        if monitor is not None:
            monitor.stop()


def _work_here(app: Application, store: Store, work: Any, measurements: Measurements | None) -> int:
    from reliq.metering import of_this_child
    from reliq.worker import Worker
    from reliq.worker.supervisor import OWNER, PLACE
    from reliq.worker.worker import exit_now

    owner = os.environ.pop(OWNER, None)
    place = int(os.environ.pop(PLACE, "0"))
    running = Worker(store, app.handlers, work, owner, measurements or of_this_child(app.handlers, place))
    running.stop_on_signals()
    if owner is not None:
        _stop_with_parent(running.stop)
    exit_now(running.run())
    return 0


def _child_arguments(options: argparse.Namespace) -> list[str]:
    arguments = ["worker", options.app, "--processes", "1", "--no-monitor"]
    arguments += ["--threads", str(options.threads), "--concurrency", str(options.concurrency)]
    lease = options.lease if isinstance(options.lease, str) else f"{options.lease}s"
    arguments += ["--lease", lease, "--grace", str(options.grace)]
    return arguments + (["--url", options.url] if options.url else []) + (["--quiet"] if options.quiet else [])


def _stop_with_parent(stop: Callable[[], None]) -> None:
    """Our standard input is a pipe that our parent holds open: when it ends, the parent is gone."""

    def wait() -> None:
        sys.stdin.buffer.read()
        stop()

    threading.Thread(target=wait, name="reliq-parent", daemon=True).start()


def _load(target: str) -> Application | None:
    """The application named MODULE:ATTRIBUTE; None, with the reason printed, when there is none."""
    module_name, _, attribute = target.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except Exception:  # noqa: BLE001  a user's module may raise anything
        traceback.print_exc()
        print(f"reliq: cannot import {module_name!r}, see above", file=sys.stderr)
        return None
    app = getattr(module, attribute or "app", None)
    if not isinstance(app, Application):
        kind = "has no attribute" if app is None else f"has a {type(app).__name__}, not a reliq.Reliq, as"
        print(f"reliq: module {module_name!r} {kind} {attribute or 'app'!r}: give MODULE:APP", file=sys.stderr)
        return None
    if not len(app.handlers):
        print(f"reliq: {target} has no handlers: decorate a function with @app.handler(queue)", file=sys.stderr)
        return None
    return app


def _monitor_beside(store: Store, measurements: Measurements) -> Any:
    from reliq_monitor import MonitorThread

    thread = MonitorThread(store, measurements=measurements)
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
    from reliq.metering import exporter_class
    from reliq_monitor import Monitor

    stopping = _stop_event()
    store, measurements = _store(options), Measurements()
    running = Monitor(store, options.interval, measurements)
    if options.metrics_port is not None:
        exporter_class()(store, [measurements], monitor=running).serve(options.metrics_port, options.metrics_host)
    logging.getLogger("reliq.monitor").info("monitor started")
    running.run(stopping)
    return 0


def dev(options: argparse.Namespace) -> int:
    """Run an embedded Redis and a monitor in this terminal."""
    from reliq.embedded import EmbeddedRedis, data_folder
    from reliq_monitor import Monitor

    stopping = _stop_event()
    with EmbeddedRedis(options.data or data_folder(), port=options.port) as server:
        print(f"Redis    {server.url}   (data in {server.folder})")
        print(f"Monitor  running\n\nexport RELIQ_URL={server.url}\n\nCtrl-C ends it; the messages stay.", flush=True)
        Monitor(Store(server.url)).run(stopping)
    return 0


def demo(options: argparse.Namespace) -> int:
    """Send a message for every file of the standard library, and kill workers half way."""
    from reliq.demo.run import run

    return run(options.url, files=options.files)


def _stop_event() -> threading.Event:
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    return stopping


# --- messages --------------------------------------------------------------------------------------------------------


def send(options: argparse.Namespace) -> int:
    """Send one message, or with --lines each line of standard input."""
    queue = _app(options).queue(options.queue)
    headers = dict(_pair(one) for one in options.header)
    if options.lines:
        ids = queue.send_many(sys.stdin.buffer.read().splitlines(), delay=options.delay, headers=headers)
        print(json.dumps(ids) if options.json else f"{len(ids)} sent")
        return 0
    body = sys.stdin.buffer.read() if options.body in (None, "-") else options.body
    identity = queue.send(
        body, id=options.id, delay=options.delay, headers=headers, dedup_key=options.dedup_key, ttl=options.ttl
    )
    print(json.dumps({"id": identity}) if options.json else identity)
    return 0


def stats(options: argparse.Namespace) -> int:
    """Print the queues' numbers."""
    app = _app(options)
    found = [app.queue(name).stats() for name in options.queues or app.queues()]
    if options.json:
        print(json.dumps([asdict(one) for one in found]))
        return 0
    print(f"{'queue':30} {'ready':>9} {'processing':>10} {'delayed':>9} {'dead':>7} {'oldest':>8}  consumers")
    for one in found:
        age, paused = f"{one.oldest_ready_age:.1f}s", "  paused" if one.paused else ""
        print(
            f"{one.queue:30} {one.ready:9} {one.processing:10} {one.delayed:9} {one.dead:7} {age:>8}  "
            f"{one.consumers}{paused}"
        )
    return 0


def doctor(options: argparse.Namespace) -> int:
    """Say what this Redis means for the messages in it; exit 0, 1 (warnings, with --strict), 2 (failures)."""
    from reliq.doctor import examine, unreachable

    store = unchecked_store(url_from_environment(options.url))
    try:
        report = store.run(examine())
    except RedisUnavailable as error:
        report = unreachable(error)
    if options.json:
        print(json.dumps(report.as_dict()))
    for finding in () if options.json else report.findings:
        print(f"{finding.level:8} {finding.subject:12} {finding.fact}\n{'':22}{finding.meaning}")
        if finding.change:
            print(f"{'':22}-> {finding.change}")
    return report.exit_status(options.strict)


def top(options: argparse.Namespace) -> int:
    """Show the queues live, until Ctrl-C."""
    from reliq.top import watch

    return watch(_store(options), options.interval, options.once, _stop_event())


def audit(options: argparse.Namespace) -> int:
    """Check the queues' books; exit 1 when messages are missing or too many."""
    from reliq_monitor.audit import audit, balanced
    from reliq_monitor.orphans import find_orphans

    store = _store(options)
    orphans = store.run(find_orphans(options.queues, options.repair))
    books = store.run(audit(options.queues))
    if options.json:
        print(json.dumps([{**book.summary(), "orphans": orphans.get(book.queue, [])} for book in books]))
    else:
        print("\n".join(book.line() for book in books) or "there are no queues")
        for queue, consumers in orphans.items():
            if consumers:
                state = "the monitor returns it now" if options.repair else "see --repair"
                print(f"{queue:30} {len(consumers)} consumers hold messages and no monitor knows of them: {state}")
    return 0 if balanced(books) and (options.repair or not any(orphans.values())) else 1


def pause(options: argparse.Namespace) -> int:
    _app(options).queue(options.queue).pause()
    return _say(options, f"{options.queue} is paused: nothing is started, sends go on", paused=True)


def resume(options: argparse.Namespace) -> int:
    _app(options).queue(options.queue).resume()
    return _say(options, f"{options.queue} goes on", paused=False)


def purge(options: argparse.Namespace) -> int:
    _confirmed(options, f"remove all ready and delayed messages of {options.queue}")
    removed = _app(options).queue(options.queue).purge()
    return _say(options, f"{removed} messages removed", removed=removed)


def cancel(options: argparse.Namespace) -> int:
    """Cancel a delayed message; exit 1 when it was not delayed any more."""
    cancelled = _app(options).queue(options.queue).cancel(options.id)
    _say(options, "cancelled" if cancelled else "not delayed (any more)", cancelled=cancelled)
    return 0 if cancelled else 1


# --- dead letters ----------------------------------------------------------------------------------------------------


def dead_list(options: argparse.Namespace) -> int:
    page = _app(options).queue(options.queue).dead.list(limit=options.limit, after=options.after, **_filters(options))
    if options.json:
        print(json.dumps({"letters": [letter.summary() for letter in page], "next": page.next}))
        return 0
    for letter in page:
        last = letter.last_error
        text = f"{last.error_class}: {last.text.strip().rpartition(chr(10))[2]}" if last else ""
        print(f"{letter.id}  {_utc(letter.died_at)}  {letter.reason:14} failures={letter.failures}  {text[:90]!a}")
    if page.next:
        print(f"more: --after {page.next}")
    return 0


def dead_show(options: argparse.Namespace) -> int:
    letter = _app(options).queue(options.queue).dead.get(options.id)
    if letter is None:
        print(f"reliq: queue {options.queue} has no dead letter {options.id}", file=sys.stderr)
        return 1
    print(json.dumps({**letter.summary(), **_details(letter)}, indent=None if options.json else 2))
    return 0


def _details(letter: DeadLetter) -> dict[str, Any]:
    errors = [
        {"at": one.at, "worker": one.worker, "error_class": one.error_class, "text": one.text} for one in letter.errors
    ]
    try:
        return {"errors": errors, "body": letter.body.decode()}
    except UnicodeDecodeError:
        return {"errors": errors, "body_hex": letter.body.hex()}


def dead_redrive(options: argparse.Namespace) -> int:
    letters = _app(options).queue(options.queue).dead
    bar = Progress("redriving", visible=False if options.json else None)
    result = letters.redrive(
        ids=options.id or None, rate=options.rate, limit=options.limit, dry_run=options.dry_run,
        keep_failures=options.keep_failures, stop_above=options.stop_above, progress=bar.update, **_filters(options),
    )  # fmt: skip
    bar.update(result.matched, final=True)
    if options.json:
        print(json.dumps(asdict(result)))
    elif options.dry_run:
        print(f"{result.matched} would be redriven")
    else:
        print(f"{result.redriven} redriven" + (f"; stopped: {result.stopped}" if result.stopped else ""))
    return 0


def dead_purge(options: argparse.Namespace) -> int:
    _confirmed(options, f"remove dead letters of {options.queue} for good")
    letters = _app(options).queue(options.queue).dead
    removed = letters.purge(ids=options.id or None, all=options.all, **_filters(options))
    return _say(options, f"{removed} dead letters removed", removed=removed)


def _filters(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "reason": options.reason,
        "error_class": options.error_class,
        "older_than": options.older_than,
        "newer_than": options.newer_than,
        "headers": dict(_pair(one) for one in options.header),
    }


# --- helpers ---------------------------------------------------------------------------------------------------------


def _app(options: argparse.Namespace) -> reliq.Reliq:
    return reliq.Reliq(options.url)


def _store(options: argparse.Namespace) -> Store:
    return Store(url_from_environment(options.url), allow_eviction=eviction_allowed(None))


def _say(options: argparse.Namespace, text: str, **values: Any) -> int:
    print(json.dumps(values) if options.json else text)
    return 0


def _confirmed(options: argparse.Namespace, what: str) -> None:
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise reliq.InvalidSetting(f"this would {what}: say --yes")
    if input(f"This will {what}. Type yes to go on: ").strip() != "yes":
        raise SystemExit("nothing was done")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise reliq.InvalidSetting(f"--header {text!r}: write NAME=VALUE")
    return name, value


def _utc(milliseconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- the parser ------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="reliq",
        description="A reliable message queue on Redis lists.",
        epilog="Every command takes --url, or RELIQ_URL from the environment. `reliq COMMAND --help` says more.",
    )
    parser.add_argument("--version", action="version", version=f"reliq {reliq.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    one = _command(commands, "worker", worker, "run the handlers of an application")
    one.add_argument("app", metavar="MODULE:APP", help="where the reliq.Reliq object is, e.g. shop.tasks:app")
    one.add_argument("--processes", type=int, default=1, metavar="N", help="worker processes (default 1)")
    one.add_argument("--threads", type=int, default=1, metavar="N", help="def handlers at once, a process (default 1)")
    one.add_argument(
        "--concurrency", type=int, default=100, metavar="N", help="async def handlers at once, a queue (default 100)"
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
    _metrics_port(one)
    one.add_argument("--no-monitor", dest="monitor", action="store_false", help="run no monitor in this process")
    _logging(one)

    one = _command(commands, "monitor", monitor, "return what vanished workers held, make delayed messages ready")
    one.add_argument(
        "--interval",
        type=float,
        default=settings.SCAN_INTERVAL,
        metavar="SECONDS",
        help="between two scans (default 0.5)",
    )
    _metrics_port(one)
    _logging(one)

    one = _command(commands, "dev", dev, "an embedded Redis and a monitor in one terminal")
    one.add_argument("--data", type=Path, default=None, help="where Redis keeps its file (default .data/redis)")
    one.add_argument("--port", type=int, default=0, help="port of 127.0.0.1 (default: a free one)")
    one.set_defaults(quiet=True)

    one = _command(commands, "demo", demo, "see messages survive kill -9, on the standard library's own files")
    one.add_argument("--files", type=int, default=0, metavar="N", help="at most this many files (default: all)")
    one.set_defaults(quiet=True)

    one = _command(commands, "send", send, "send a message", queue=True, json_too=True)
    one.add_argument("body", nargs="?", help="the body; - or nothing reads standard input")
    one.add_argument("--lines", action="store_true", help="each line of standard input is a message")
    one.add_argument("--delay", default=0, metavar="TIME", help="invisible for so long, e.g. 10s, 5m, 2h")
    one.add_argument("--ttl", metavar="TIME", help="a dead letter (expired) if it is not started within this time")
    one.add_argument("--id", help="its id (default: a new UUIDv7)")
    one.add_argument(
        "--dedup-key", metavar="KEY", help="of messages with this key within 10 minutes, only the first counts"
    )
    _header(one, "a header")

    one = _command(commands, "stats", stats, "how many messages are where", json_too=True)
    one.add_argument("queues", nargs="*", metavar="QUEUE", help="queues (default: all)")

    one = _command(commands, "doctor", doctor, "what this Redis may lose, and what to change", json_too=True)
    one.add_argument("--strict", action="store_true", help="exit 1 when there are warnings")

    one = _command(
        commands, "audit", audit, "is every message that was enqueued here, or counted as gone?", json_too=True
    )
    one.add_argument("queues", nargs="*", metavar="QUEUE", help="queues (default: all)")
    one.add_argument(
        "--repair", action="store_true", help="have the monitor return what consumers hold it lost sight of"
    )

    one = _command(commands, "top", top, "the queues, live: where messages are, how many come and go")
    one.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="between two frames (default 2)")
    one.add_argument("--once", action="store_true", help="print one frame and end")
    one.set_defaults(quiet=True)

    _command(commands, "pause", pause, "start no message of a queue; sends go on", queue=True, json_too=True)
    _command(commands, "resume", resume, "end a pause", queue=True, json_too=True)
    one = _command(commands, "purge", purge, "remove what is ready and delayed", queue=True, json_too=True)
    one.add_argument("--yes", action="store_true", help="do not ask")
    one = _command(commands, "cancel", cancel, "remove one delayed message", queue=True, json_too=True)
    one.add_argument("id", help="its id")

    _spark(commands.add_parser("spark", help="data into queues, dead letters into data, by Spark"))

    dead = commands.add_parser("dead", help="dead letters: list, show, redrive, purge").add_subparsers(
        title="commands", metavar="COMMAND", required=True
    )
    one = _command(dead, "list", dead_list, "dead letters, latest first", queue=True, json_too=True)
    one.add_argument("--limit", type=int, default=50, help="how many (default 50)")
    one.add_argument("--after", metavar="CURSOR", help="go on behind an earlier page")
    _dead_filters(one)
    one = _command(dead, "show", dead_show, "one dead letter, with its errors and its body", queue=True, json_too=True)
    one.add_argument("id", help="its id")
    one = _command(dead, "redrive", dead_redrive, "put dead letters back into the queue", queue=True, json_too=True)
    one.add_argument("id", nargs="*", help="only these")
    one.add_argument("--rate", type=float, metavar="N", help="at most N a second")
    one.add_argument("--limit", type=int, metavar="N", help="at most N altogether")
    one.add_argument("--dry-run", action="store_true", help="only say how many")
    one.add_argument("--keep-failures", action="store_true", help="do not reset their count of failures")
    one.add_argument(
        "--stop-above",
        type=float,
        metavar="SHARE",
        help="with --rate: stop when more than this share (0 to 1) died again",
    )
    _dead_filters(one)
    one = _command(dead, "purge", dead_purge, "remove dead letters for good", queue=True, json_too=True)
    one.add_argument("id", nargs="*", help="only these")
    one.add_argument("--all", action="store_true", help="every one of them")
    one.add_argument("--yes", action="store_true", help="do not ask")
    _dead_filters(one)

    from reliq_api.cli import add_to

    add_to(commands, _command)
    return parser


def _spark(parser: argparse.ArgumentParser) -> None:
    from reliq.spark.pipeline import add_commands

    add_commands(parser.add_subparsers(title="commands", metavar="COMMAND", required=True))


def _command(
    commands: Any,
    name: str,
    run: Callable[[argparse.Namespace], int],
    help: str,
    queue: bool = False,
    json_too: bool = False,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
    parser.set_defaults(run=run)
    parser.add_argument(
        "--url", metavar="URL", help="the Redis server (default: RELIQ_URL, else redis://localhost:6379/0)"
    )
    if queue:
        parser.add_argument("queue", help="the queue's name")
    if json_too:
        parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    return parser


def _header(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help=f"{help}; may be repeated")


def _logging(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="log warnings only")
    parser.add_argument("--log-json", action="store_true", help="log JSON, an object a line (or RELIQ_LOG_JSON=1)")


def _metrics_port(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--metrics-port", type=int, metavar="PORT", help="answer Prometheus at /metrics on this port (default: none)"
    )
    parser.add_argument(
        "--metrics-host",
        default="127.0.0.1",
        metavar="HOST",
        help="the address for it (default 127.0.0.1; 0.0.0.0 = all)",
    )


def _dead_filters(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--reason", choices=REASONS, help="only those that died for this reason")
    parser.add_argument("--error-class", metavar="NAME", help="only those whose last error is of this class")
    parser.add_argument("--older-than", metavar="TIME", help="only those dead for longer, e.g. 1h")
    parser.add_argument("--newer-than", metavar="TIME", help="only those dead for less")
    _header(parser, "only those with this header")
