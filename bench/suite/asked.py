"""What growth may cost, and what it was found to cost: one table of the figures that other parts of the suite measure.

What is asked for here is more than the bounds of the parts, which only notice that a figure gets worse.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.suite.harness import Check, Row


@dataclass(frozen=True, slots=True)
class Asked:
    """One figure, and where to find it: in the rows of a part, by the row's name and the beginning of the check's."""

    part: str
    row: str
    check: str
    bound: float
    at_least: bool = False
    before: str = ""  #: as it was found on 2026-11-12

    def find(self, rows: Iterable[Row]) -> tuple[str, Check] | None:
        """Return the name of the row and the figure beside what is asked for; None where it was not measured."""
        for row in sorted(rows, key=lambda row: len(row.what)):
            for one in row.checks:
                if row.what.startswith(self.row) and one.what.startswith(self.check):
                    return row.what, Check(one.what, one.values, self.bound, self.at_least)
        return None


def _idle(row: str, bound: float, before: str = "") -> Asked:
    return Asked("idle", f"idle: {row}", "commands/s", bound, before=before)


def _kept(row: str, threads: float, connections: float, before: tuple[str, str] = ("", "")) -> tuple[Asked, Asked]:
    return (
        Asked("idle", f"idle: {row}", "threads", threads, before=before[0]),
        Asked("idle", f"idle: {row}", "connections", connections, before=before[1]),
    )


def _long(case: str, before: str = "") -> Asked:
    return Asked("long", f"long: {case}", "longest call", 2.0, before=before)


def _bodies(row: str, sizes: str, bound: float, befores: Sequence[str] = ()) -> tuple[Asked, ...]:
    """One figure for each of some sizes."""
    named, at_least = sizes.split(", "), "messages/s" in row
    return tuple(
        Asked("weight", row, f"{size}:", bound, at_least=at_least, before=was)
        for size, was in zip(named, befores or [""] * len(named), strict=True)
    )


_ONE, _WORKERS = 5.0, 300.0
_MONITOR = 100.0

#: The figures that are asked for, by topic.
TABLE: dict[str, tuple[Asked, ...]] = {
    "1 idle is nearly free": (
        _idle("a worker of one queue", _ONE, "29"),
        _idle("a worker of 16 partitions", _ONE, "404"),
        _idle("a worker of 64 partitions", _ONE, "1,700"),
        _idle("a worker of 256 partitions", _ONE, "6,643"),
        _idle("workers of 16 partitions", _WORKERS, "977"),
        _idle("workers of 64 partitions", _WORKERS, "3,062"),
        _idle("workers of 256 partitions", _WORKERS, "14,239"),
        _idle("a monitor, queues,", _MONITOR),
        _idle("a monitor, partitions,", _MONITOR, "9,913 for 738"),
        _idle("3 monitors, partitions,", 3 * _MONITOR, "12,419 for 738"),
        _idle("a monitor, queues with a delayed message each,", _MONITOR, "20,000"),
        _idle("a monitor, partitions on 3 masters", _MONITOR),
        _idle("a consumer by hand, 256 partitions", _ONE, "1,309"),
        Asked("latency", "latency idle, send -> handler starts", "p50", 1.1, before="1.4"),
        Asked("latency", "latency idle, send -> handler starts, 12 partitions", "p50", 1.1),
        Asked("latency", "latency at rest, send -> handler starts, 64 partitions", "p50", 1.1),
    ),
    "2 one thread and one connection a node": (
        *_kept("a worker of one queue", 5, 3, ("5", "")),
        *_kept("a worker of 64 partitions", 5, 4, ("70", "")),
        *_kept("a worker of 256 partitions", 5, 4, ("262", "")),
        *_kept("a consumer by hand, 256 partitions", 2, 2, ("257", "545")),
        *_kept("a monitor, partitions,", 8, 8),
        *_kept("HTTP service, queues", 8, 8),
    ),
    "3 limits are O(1)": (
        Asked("limits", "limits: concurrency, 8,000 consumers", "us, times", 1.1, before="26 with 4,000"),
        Asked("limits", "limits: concurrency, 100,000 consumers", "us, times", 1.1),
        _idle("workers of a queue without a free slot", 20 * _ONE, "1 a consumer"),
    ),
    "4 long calls are cut, ms": (
        _long("send_many, a key each", "13 to 29"),
        _long("send_many, dedup_key"),
        _long("send_many, delay", "13 to 29"),
        _long("send_many, limit_key, fair", "13 to 29"),
        _long("send_many, limit_key, key_rate", "13 to 29"),
        _long("send_many of 5,000, key_rate"),
        _long("claim and ack 1,000"),
        _long("claim and ack 1,000 with keys"),
        _long("claim 1,000 within key_rate"),
        _long("purge of keys, followed"),
        _long("redrive of keys, followed"),
        _long("resize to 16 partitions"),
        _long("find"),
        _long("cancel_many, followed"),
        _long("5,000 schedules"),
        Asked("states", "growth: messages", "longest command", 2.0),
        Asked("states", "growth: limit keys", "longest command", 2.0),
        Asked("states", "growth: queues", "longest command", 2.0),
        Asked("states", "growth: idle consumers", "longest command", 2.0),
        Asked("states", "growth: schedules", "longest command", 2.0),
        Asked("states", "growth: open batches", "longest command", 2.0),
    ),
    "5 sharing": (
        Asked("sharing", "sharing: 12 partitions, most", "5 workers", 1.25, before="1.55"),
        Asked("sharing", "sharing: 12 partitions, most", "7 workers", 1.25, before="1.9"),
        Asked("sharing", "sharing: 12 partitions, most", "16 workers", 1.25, before="2.15"),
        Asked("sharing", "sharing: 12 partitions, kill -9", "p99", 17.0),
        Asked("cluster", "cluster: 12 partitions", "three masters", 2.4, at_least=True, before="2.4 to 3.3"),
        Asked("cluster", "cluster: 12 partitions", "six masters", 4.8, at_least=True, before="3.7"),
    ),
    "6 bodies and sends": (
        *_bodies(
            "weight: consume, messages/s", "200 B, 1 KiB, 4 KiB, 16 KiB, 64 KiB, 256 KiB", 1.0,
            ("1.93", "", "1.00", "", "0.81", "0.89"),
        ),
        *_bodies("weight: send_many, messages/s", "200 B, 4 KiB, 64 KiB, 256 KiB", 1.0,
                 ("2.4", "1.2", "0.78", "0.75")),
        *_bodies("weight: Redis CPU of send / xadd", "200 B, 64 KiB", 1.1),
        *_bodies("weight: Redis CPU of send_many", "200 B, 64 KiB", 1.1, ("", "1.31")),
        *_bodies("weight: bytes appended by send,", "200 B, 64 KiB", 150, ("304 to 394", "")),
        Asked("celery", "celery: a send", "Redis CPU", 1.1, before="1.24 to 1.46"),
        Asked("celery", "celery: a send", "commands", 1.1, before="2.5"),
    ),
    "7 HTTP": (
        Asked("http", "http: the service", "single enqueues", 0.8, at_least=True),
        Asked("http", "http: the service", "MB with", 80),
    ),
    "8 a part away": (Asked("away", "away: each surface", "exit code", 0),),
    "9 planned from figures, measured / computed": (
        Asked("size", "size: a tenth of a load", "handled", 1.0, at_least=True),
        Asked("size", "size: a tenth of a load", "Redis CPU", 1.25),
        Asked("size", "size: a tenth of a load", "file", 1.25),
        Asked("size", "size: a tenth of a load", "memory", 1.25),
    ),
}  # fmt: skip

PARTS = frozenset(one.part for asked in TABLE.values() for one in asked)


def table(rows: Sequence[Row]) -> str:
    """Return what was asked for beside what was measured; `before` is from another day and load."""
    form = "{:62} {:>16} {:>9} {:>24} {:7} {}"
    lines = [form.format("what", "before", "asked", "measured", "", "python -m bench")]
    for point, every in TABLE.items():
        lines += ["", point]
        for one in every:
            name, found = one.find(rows) or (one.row, None)
            what = f"  {name.partition(': ')[2] or name}: {one.check.removesuffix(':')}"
            asked = f"{'>=' if one.at_least else '<='} {one.bound:g}"
            measured, verdict = (found.shown, "ok" if found.ok else "missed") if found else ("not measured", "")
            lines.append(form.format(what, one.before, asked, measured, verdict, f"--only {one.part}"))
    return "\n".join(lines) + "\n"
