"""Commands about a whole server: doctor, audit, top."""

import argparse
import json
from typing import Any

from reliq.cli.options import command, store_of
from reliq.cli.queue_names import known_names
from reliq.contract import values
from reliq.errors import RedisUnavailable
from reliq.protocol.application import url_from_environment
from reliq.protocol.partial_reads import every_queue
from reliq.runtime import startup
from reliq.transport.server_check import check_server
from reliq.transport.store import unchecked_store


def add_to(commands: Any) -> None:
    """Add these commands to the parser."""
    one = command(commands, "doctor", doctor, "report what this Redis may lose, and what to change")
    one.add_argument("--strict", action="store_true", help="exit 1 when there are warnings")

    one = command(commands, "queue audit", audit, "check that every enqueued message is in its queue or counted")
    one.add_argument("queues", nargs="*", metavar="QUEUE", help="queues (default: all)")
    one.add_argument(
        "--repair", action="store_true", help="make the monitor return the messages of consumers unknown to it"
    )

    one = command(commands, "top", top, "show the queues live: counts and rates")
    one.add_argument("--interval", type=float, default=2.0, metavar="SECONDS", help="time between frames (default 2)")
    one.add_argument("--once", action="store_true", help="print one frame and end")
    one.set_defaults(quiet=True)


def doctor(options: argparse.Namespace) -> int:
    """Report what this Redis server means for its messages; exit 0, 1 (warnings, with --strict) or 2 (failures)."""
    from reliq.observability.doctor import examine, unreachable

    store = unchecked_store(url_from_environment(options.url))
    try:
        # For what follows a node of a cluster would be a server with queues, and a sentinel one that lacks commands.
        store.run(check_server(store.where, allow_eviction=True, cluster=store.sharded, known=True))
        report = store.run(examine(store.sharded, store.sentinels.views() if store.sentinels else ()))
    except RedisUnavailable as error:
        report = unreachable(error)
    finally:
        store.close()
    if options.json:
        print(json.dumps(report.as_dict()))
    for finding in () if options.json else report.findings:
        print(f"{finding.level:8} {finding.subject:12} {finding.fact}\n{'':22}{finding.meaning}")
        if finding.change:
            print(f"{'':22}-> {finding.change}")
    return report.exit_status(options.strict)


def audit(options: argparse.Namespace) -> int:
    """Audit the queues; exit 1 if messages are missing or too many, or if there is no queue of a given name."""
    from reliq_monitor.audit import audit, balanced
    from reliq_monitor.orphans import find_orphans

    store = store_of(options)
    names = known_names(options.queues, store.run(every_queue())) if options.queues else []
    all_known = len(names) == len(set(options.queues))
    if options.queues and not names:
        return 1
    orphans = store.run(find_orphans(names, options.repair))
    books = store.run(audit(names))
    if options.json:
        print(json.dumps([{**book.summary(), "orphans": orphans.get(book.queue, [])} for book in books]))
    else:
        width = max([30, *(len(book.queue) for book in books)])
        print("\n".join(book.line(width) for book in books) or "there are no queues")
        for queue, consumers in orphans.items():
            if consumers:
                state = "the monitor returns it now" if options.repair else "see --repair"
                print(f"{queue:{width}} {len(consumers)} consumers hold messages and no monitor knows of them: {state}")
    return 0 if all_known and balanced(books) and (options.repair or not any(orphans.values())) else 1


def top(options: argparse.Namespace) -> int:
    """Show the queues live, until Ctrl-C."""
    from reliq.cli.top import watch

    interval = values.seconds(options.interval, "interval", shortest=0.1, longest=3600)
    with startup.until_stopped():
        return watch(store_of(options), interval, options.once, options.json)
    return 0
