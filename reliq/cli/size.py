"""`reliq size`: the hardware that a load needs."""

import argparse
import json
import math
import sys
from dataclasses import asdict
from typing import Any

from reliq.cli.columns import columns
from reliq.cli.options import command, counted
from reliq.cli.sizing import COSTS, Load, Needs, Table, needs
from reliq.contract import values
from reliq.contract.values import MAX_BODY_BYTES, bytes_text
from reliq.errors import InvalidSetting

_LARGEST_RATE = 1e9


def add_to(commands: Any) -> None:
    """Add the command to the parser."""
    what = "compute the masters, memory, file growth and workers that a load needs"
    one = command(commands, "size", size, what, url_default=None)
    one.add_argument("--messages-per-second", required=True, metavar="N", help="messages/s of all queues, such as 5000")
    one.add_argument("--body", default="1KiB", metavar="SIZE", help="size of a body, such as 2KiB (default 1KiB)")
    one.add_argument("--queues", type=int, default=1, metavar="N", help="queues that share the load (default 1)")
    one.add_argument("--handler", default="10ms", metavar="TIME", help="time of a handler's run (default 10ms)")
    one.add_argument("--threads", type=int, default=10, metavar="N", help="threads of a worker process (default 10)")
    one.add_argument("--batch", type=int, default=1, metavar="N", help="messages in a send (default 1)")
    one.add_argument("--keyed", action="store_true", help="the messages have ordering keys")
    backlog = "how long messages may wait, as while all workers are away (default 60s)"
    one.add_argument("--backlog", default="60s", metavar="TIME", help=backlog)
    one.add_argument("--busy", type=float, default=60.0, metavar="PERCENT", help="largest load of a core (default 60)")
    one.add_argument("--memory", default="16GiB", metavar="SIZE", help="memory of a master (default 16GiB)")
    check = (
        "run a tenth of the load for some seconds, on a Redis started for it; exit with 1 if it costs 3 times as much"
    )
    one.add_argument("--check", action="store_true", help=check)


def size(options: argparse.Namespace) -> int:
    """Compute, and check by a run if asked to; 1 if that differs too much."""
    load, table = _load(options), Table(COSTS.read_text(encoding="utf-8"))
    needed = needs(load, table)
    if not options.check:
        print(json.dumps(_members(load, needed, table)) if options.json else _text(load, needed, table))
        return 0
    from reliq.cli.trials import sized

    sized.check(load)
    if not options.json:
        print(_text(load, needed, table), flush=True)
    compare = sized.compared(load, table, sized.run(load))
    members = {**_members(load, needed, table), "check": compare.as_dict()}
    print(json.dumps(members) if options.json else f"\n{compare}", flush=True)
    if compare.trouble:
        print(f"reliq: {compare.trouble}", file=sys.stderr)
    return 1 if compare.trouble else 0


def _load(options: argparse.Namespace) -> Load:
    try:
        rate = float(options.messages_per_second.replace(",", "").replace("_", ""))
    except ValueError:
        rate = 0.0
    if not 0 < rate <= _LARGEST_RATE:
        raise InvalidSetting(
            f"--messages-per-second is {options.messages_per_second!r}: give more than 0, up to 1e9, e.g. 5000"
        )
    if not 1 <= options.busy <= 100:
        raise InvalidSetting(f"--busy is {options.busy:g}: give a percentage from 1 to 100")
    return Load(
        rate=rate,
        body=values.size(options.body, "--body", 1, MAX_BODY_BYTES),
        queues=values.whole(options.queues, "--queues", 1, 1_000_000),
        handler=values.seconds(options.handler, "--handler"),
        threads=values.whole(options.threads, "--threads", 1, 10_000),
        batch=values.whole(options.batch, "--batch", 1, 1_000_000),
        keyed=options.keyed,
        backlog=values.seconds(options.backlog, "--backlog"),
        busy=options.busy / 100,
        memory=values.size(options.memory, "--memory", 2**20, 2**50),
    )


def _members(load: Load, needed: Needs, table: Table) -> dict[str, Any]:
    measured = {"measured": table.measured, "on": table.on, "command": table.command}
    return {"load": asdict(load), "needs": asdict(needed), "costs": measured}


def _text(load: Load, needed: Needs, table: Table) -> str:
    queues = "1 queue" if load.queues == 1 else f"{load.queues:,} queues"
    time = f"handlers of {load.handler:g} s" if load.handler >= 1 else f"handlers of {load.handler * 1000:g} ms"
    title = f"{load.rate:,.10g} messages/s of {bytes_text(load.body)} in {queues}, {time}"
    masters = f"for {needed.masters_by}; a core at most {load.busy:.0%} busy, half of {bytes_text(load.memory)} used"
    threads, handlers = counted(load.threads, "thread"), counted(needed.handlers, "handler")
    processes = "process" if needed.workers == 1 else "processes"
    workers = f"{processes} of {threads}, for {handlers} at once"
    rows = [
        ("masters", f"{needed.masters:,}", masters),
        ("Redis CPU", _short(needed.redis), "cores, of all masters together"),
        ("memory", _bytes(needed.memory), f"messages that wait for {load.backlog:g} s, on all masters"),
        ("file", f"{_bytes(needed.file)}/s", f"{_bytes(needed.file * 86_400)} a day, before Redis rewrites its file"),
        ("network", _bits(needed.network), "to and from Redis; each replica adds what the file gets"),
        ("workers", f"{needed.workers:,}", workers),
        ("producers", _short(needed.producers), f"cores; {counted(load.batch, 'message')} a call"),
        ("monitors", f"{needed.monitors:,}", "one of them a spare"),
    ]
    if needed.partitions > 1:
        rows.insert(1, ("partitions", f"{needed.partitions:,}", f"of each queue, {_reach(load, needed)}"))
    table_said = f"Computed from costs measured on {table.measured} ({table.on}); `--check` tries a tenth of it here."
    return "\n".join([title, "", *columns(rows, -11, 13), "", table_said])


def _reach(load: Load, needed: Needs) -> str:
    queues = math.ceil(needed.masters / needed.partitions)
    if queues > load.queues:
        return f"the most: so many masters need {queues:,} queues"
    return "so that all masters have some"


def _short(cores: float) -> str:
    if cores < 0.01:
        return "< 0.01"
    return f"{cores:,.2g}" if cores < 10 else f"{cores:,.0f}"


def _bits(number: float) -> str:
    return f"{number / 1e6:,.3g} Mbit/s" if number < 1e9 else f"{number / 1e9:,.1f} Gbit/s"


def _bytes(number: float) -> str:
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if number >= factor:
            return f"{number / factor:,.3g} {unit}"
    return f"{number:,.0f} B"
