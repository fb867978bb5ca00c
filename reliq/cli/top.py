"""`reliq top`: the queues, live, in the width of the terminal."""

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from reliq.cli.options import counted
from reliq.cli.progress import age, bar
from reliq.cli.workers import row
from reliq.errors import ReliqError
from reliq.model.stats import Stats
from reliq.model.worker import WorkerProcess
from reliq.ops import server_time
from reliq.ops.schema import Counter
from reliq.protocol.partial_reads import every_queue, or_unseen
from reliq.protocol.running import Running, running
from reliq.protocol.stats import read_readable
from reliq.protocol.workers import every_worker
from reliq.runtime.logging import printable
from reliq.runtime.looking import looking
from reliq.transport.store import Store

_MOST = 1000  #: queues that are read
_BUSY = 20  #: of them, those with the most in processing, whose messages are read
_WORKERS = 8  #: that are shown
_BARS = 10  #: messages that are shown with their progress
_WIDTH = 80  #: of a terminal that does not say
_UNBOUNDED = 1 << 16  #: width of a file or a pipe
_NAME, _SHORTEST_NAME = 23, 9
_HEAD = f"{'ready':>7}{'proc':>6}{'delayed':>8}{'dead':>6}{'oldest':>7}{'in/s':>6}{'out/s':>6}{'cons':>5}"
_WENT = (Counter.ACKED, Counter.DEAD_LETTERED, Counter.PURGED, Counter.CANCELLED)
_ENTER, _LEAVE, _HOME, _CLEAR_LINE, _CLEAR_REST = (
    "\x1b[?1049h\x1b[?25l",
    "\x1b[?25h\x1b[?1049l",
    "\x1b[H",
    "\x1b[K",
    "\x1b[J",
)


class Look:
    """All queues at one time. `running`: messages that report their progress; `now`: seconds since the epoch."""

    def __init__(
        self,
        readings: Sequence[Stats],
        at: float,
        queues: int,
        unreadable: Collection[str] = (),
        running: Sequence[Running] = (),
        missing: Sequence[str] = (),
        workers: Sequence[WorkerProcess] = (),
        now: float = 0.0,
    ) -> None:
        self.readings = {reading.queue: reading for reading in readings}
        self.at = at
        self.queues = queues
        self.unreadable = len(unreadable)
        self.running = running
        self.missing = missing
        self.workers = workers
        self.now = now


def look(store: Store) -> Look:
    """Read all queues now; raises ReliqError."""
    with looking() as missing:
        names = store.run(every_queue(), timeout=0)
        readings, unreadable = store.run(read_readable(names[:_MOST]), timeout=0)
        busy = sorted((one for one in readings if one.processing), key=lambda one: -one.processing)[:_BUSY]
        steps = [or_unseen(f"the running messages of {one.queue}", running(one.queue, _BARS), []) for one in busy]
        workers = store.run(every_worker(), timeout=0)
        held = [one for each in steps for one in store.run(each, timeout=0)]
        now = store.call(server_time(), timeout=0) / 1000  # this machine's clock may be wrong
    reporting = [one for one in held if one.fraction is not None][:_BARS]
    return Look(readings, time.monotonic(), len(names), unreadable, reporting, missing.lines(), workers, now)


def watch(store: Store, interval: float, once: bool, as_json: bool) -> int:
    """Show a frame every `interval` seconds, until Ctrl-C; with `once`, as JSON or into a pipe, a single one."""
    latest = look(store)
    if as_json:
        time.sleep(interval)
        now = look(store)
        print(json.dumps(_summary_of(latest, now)))
        for line in now.missing:
            print(f"reliq: {line}", file=sys.stderr)
        return int(bool(now.missing))
    if once or not sys.stdout.isatty():
        time.sleep(interval)
        now = look(store)
        sys.stdout.write("\n".join(frame(latest, now, store.where, _MOST, _UNBOUNDED)) + "\n")
        return int(bool(now.missing))
    before = latest
    with _screen():
        while True:
            size = shutil.get_terminal_size()
            _show(frame(before, latest, store.where, size.lines - 1, size.columns), size.columns)
            time.sleep(interval)
            try:
                before, latest = latest, look(store)
            except ReliqError as error:
                _show(wrapped(f"reliq top: {error}", size.columns), size.columns)


def _summary_of(before: Look, now: Look) -> dict[str, Any]:
    """Return what a program shows: each queue with its messages per second, and the workers."""
    elapsed = max(now.at - before.at, 1e-9)
    queues = []
    for name, one in now.readings.items():
        came, went = _rates(before.readings.get(name), one, elapsed)
        queues.append({**asdict(one), "in_per_second": round(came, 3), "out_per_second": round(went, 3)})
    return {"queues": queues, "workers": [one.summary() for one in now.workers]}


def frame(before: Look, now: Look, where: str, height: int, width: int = _WIDTH) -> list[str]:
    """Return lines of at most `width` characters: a summary, then the queues with the most messages."""
    elapsed = max(now.at - before.at, 1e-9)
    rows = sorted(now.readings.values(), key=lambda one: (-(one.ready + one.processing), -one.dead, one.queue))
    rates = {one.queue: _rates(before.readings.get(one.queue), one, elapsed) for one in rows}
    bars = _worker_lines(now.workers, now.now, width) + _bars(now.running, width)
    top = _summary(rows, rates, now.queues, where, width)
    if now.missing:
        top += wrapped(now.missing[0], width)
    elif now.unreadable:
        top += wrapped(f"{now.unreadable} cannot be read, `reliq queue stats` says why", width)
    else:
        top.append("")
    room = max(1, height - len(top) - 1 - len(bars))
    shown = rows[:room]
    name = _name_width(shown, width)
    table = [_row(one, *rates[one.queue], name, width) for one in shown]
    while len(table) > 1 and sum(map(len, table)) > room:
        table.pop()
    more = now.queues - now.unreadable - len(table)
    if more:
        table[-1:] = [[f"... and {more + 1} more queues"]]
    return [*top, f"{'queue':{name}}{_HEAD}"[:width], *(line[:width] for row in table for line in row), *bars]


def _name_width(rows: Sequence[Stats], width: int) -> int:
    """Return the width of the column of names: that of the longest with its mark, as far as the terminal has room."""
    longest = max((len(one.queue) + len(_mark(one)) for one in rows), default=0) + 1
    return max(_SHORTEST_NAME, min(max(_NAME, longest), width - len(_HEAD)))


def _bars(running: Sequence[Running], width: int) -> list[str]:
    """Return two lines for each message that reports its progress, after a blank line."""
    lines = []
    for one in running:
        said = one.progress.text if one.progress else ""
        report = "".join(letter if letter.isprintable() else " " for letter in said)
        lines += [*_whole(f"{one.message.queue} {one.message.id}", width)]
        lines.append(f"  {bar(one.fraction or 0)}  {report}"[:width])
    return ["", *lines] if lines else []


def _worker_lines(workers: Sequence[WorkerProcess], now: float, width: int) -> list[str]:
    """Return a line for each of the first workers that say who they are, and one for what it runs.

    A line begins with as much of the id as `reliq worker pause` needs.
    """
    named = [one for one in workers if one.process is not None]
    lines = []
    for one in named[:_WORKERS]:
        _, host, pid, title, version, up, beat, _, rate, _ = row(one, now)
        about = f"{_fitted(title, 19):20} {version:7} up {up:5} beat {beat:5}{rate:>6}/s"
        lines += wrapped(f"{one.id[:8]:8} {f'{host} {pid}':15} {about}  {', '.join(one.queues)}", width)
        if one.paused:
            lines.append("  paused")
        if one.running is not None:
            since = age(max(0.0, now - one.running.doing.since / 1000))
            lines += _whole(f"  {printable(one.running.doing.running)} for {since}", width)
    if len(named) > _WORKERS:
        lines[-1] = f"... and {len(named) - _WORKERS + 1} more workers: reliq worker list"
    return ["", *lines] if lines else []


def _fitted(text: str, width: int) -> str:
    """Return the text, or its start, in at most `width` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def wrapped(text: str, width: int) -> list[str]:
    """Return the text in lines that break between words; those after the first are indented."""
    return textwrap.wrap(text, width, subsequent_indent="    ", break_on_hyphens=False)


def _whole(text: str, width: int) -> list[str]:
    """Return the text in as many lines as it needs: what must be copied is never cut."""
    return [text[at : at + width] for at in range(0, len(text), width)]


def _summary(
    rows: Sequence[Stats], rates: dict[str, tuple[float, float]], queues: int, where: str, width: int
) -> list[str]:
    came, went = (sum(pair[place] for pair in rates.values()) for place in (0, 1))
    missing = sum(abs(one.missing) for one in rows if one.exact)
    ready, dead = sum(one.ready for one in rows), sum(one.dead for one in rows)
    parts = [
        counted(queues, "queue"), f"{short(ready)} ready", f"{short(dead)} dead", f"{short(came)}/s in",
        f"{short(went)}/s out", *([f"{short(missing)} MISSING: reliq queue audit"] if missing else []),
    ]  # fmt: skip
    text = "  ".join(parts)
    return [f"{text}  {where}"] if len(text) + len(where) + 2 <= width else wrapped(text, width)


def _mark(one: Stats) -> str:
    return "!" if one.exact and one.missing else "‖" if one.paused else ""


def _row(one: Stats, came: float, went: float, width: int, most: int) -> list[str]:
    """Return the line of a queue; a name that does not fit has lines of its own before it."""
    name = one.queue + _mark(one)
    before = [] if len(name) < width else _whole(name, most)
    oldest = age(one.oldest_ready_age) if one.ready else "-"
    numbers = (
        f"{'' if before else name:{width}}{short(one.ready):>7}{short(one.processing):>6}{short(one.delayed):>8}"
        f"{short(one.dead):>6}{oldest:>7}{short(came):>6}{short(went):>6}{one.consumers:>5}"
    )
    return [*before, numbers]


def _rates(before: Stats | None, now: Stats, elapsed: float) -> tuple[float, float]:
    """Return the messages per second that came in and that were done."""
    earlier = before.counters if before is not None else {}

    def since(*names: str) -> float:
        return max(0, sum(now.counters.get(name, 0) - earlier.get(name, 0) for name in names)) / elapsed

    return since(Counter.ENQUEUED, Counter.REDRIVEN), since(*_WENT)


def short(number: float) -> str:
    """Return the number in at most five characters."""
    if number < 10 and number != int(number):
        return f"{number:.1f}"
    for unit in ("", "k", "M", "G"):
        if number < 999.5 or (unit == "" and number < 99_999.5):
            return f"{number:.0f}{unit}" if unit == "" or number >= 99.95 else f"{number:.1f}{unit}"
        number /= 1000
    return f"{number:.0f}T"


@contextmanager
def _screen() -> Iterator[None]:
    """Switch to the terminal's alternate screen; the former content is restored afterwards."""
    sys.stdout.write(_ENTER)
    try:
        yield
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _show(lines: Sequence[str], columns: int) -> None:
    text = "".join(f"{line[:columns]}{_CLEAR_LINE}\r\n" for line in lines)
    sys.stdout.write(_HOME + text + _CLEAR_REST)
    sys.stdout.flush()
