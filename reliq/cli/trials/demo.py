"""The demo: every file of Python's own standard library, two workers, one of them killed and one paused."""

import contextlib
import sqlite3
import sys
import sysconfig
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reliq import ops
from reliq.cli.progress import Progress
from reliq.cli.trials import by_http, by_spark
from reliq.cli.trials.app import QUEUE, RESULTS, count
from reliq.cli.trials.own_queue import remove, run_trial
from reliq.cli.trials.processes import WorkerProcess, Workers
from reliq.client.app import Reliq
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.ops.schema import Counter

LEASE = 2.0
_TIMEOUT = 600.0
_SCHEMA = """
CREATE TABLE results (path TEXT PRIMARY KEY, lines INT, functions INT, classes INT, runs INT);
CREATE TABLE runs (id TEXT, pid INT, at REAL);
"""


@dataclass
class Faults:
    """The faults of the workers and their recovery."""

    paused_held: int = 0
    returned: float | None = None  #: seconds from the kill until the messages of the killed worker were ready again
    recovery: float | None = None  #: seconds from the kill until a message of the killed worker ran elsewhere


def run(url: str | None, files: int = 0) -> int:
    """Run the demo on an embedded Redis or the given one; return the exit status: 1 if a message was lost."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    paths = [path for path in paths if "site-packages" not in path.parts][: files or None]
    return run_trial("demo", url, lambda app, folder: _Demo(app, paths, folder / "results.sqlite"), embedded=True)


def _left_out(why: str) -> str:
    return f"left out, their files are sent from here: {why}" if why else ""


class _Demo:
    def __init__(self, app: Reliq, paths: Sequence[Path], results: Path) -> None:
        remove(app, QueueKeys(QUEUE))  # a demo that was killed has left it
        with contextlib.closing(sqlite3.connect(results)) as connection:
            connection.executescript(_SCHEMA)
        self._app = app
        self.queue = app.queue(QUEUE)
        self._paths = paths
        self._results = results
        self.workers = Workers(
            app.url, "reliq.cli.trials.app:app", results.with_name("workers.log"), "--lease", str(LEASE),
            "--no-monitor", **{RESULTS: str(results)},
        )  # fmt: skip
        self._faults = Faults()

    def run(self) -> int:
        print(f"{len(self._paths)} Python files of {sysconfig.get_path('stdlib')}, on {self._app.store.where}")
        ids = self._send()
        started = time.monotonic()
        self.workers.start()
        self.workers.start()
        self._watch(len(ids))
        seconds = time.monotonic() - started
        self.workers.stop()
        return self._report(ids, seconds)

    def _send(self) -> list[str]:
        """Send half of the files over HTTP and half from a Spark job; send from here if one of these is missing."""
        half = len(self._paths) // 2
        first, second = self._paths[:half], self._paths[half:]
        without_http, without_spark = by_http.missing(), by_spark.missing()
        print(_left_out(without_http) or f"{len(first)} sent over HTTP", flush=True)
        ids = self._send_from_here(first) if without_http else by_http.send_by_http(self._app.url, QUEUE, first)
        print(_left_out(without_spark) or f"{len(second)} sent from a Spark job ...", flush=True)
        if without_spark:
            return ids + self._send_from_here(second)
        return ids + by_spark.send_by_spark(self._app.url, QUEUE, second, self._results.parent)

    def _send_from_here(self, paths: Sequence[Path]) -> list[str]:
        return self.queue.send_many([{"path": str(path)} for path in paths])

    def _watch(self, total: int) -> None:
        """Draw the bar until all messages are handled, and cause the faults half way."""
        bar, until = Progress("handled", total), time.monotonic() + _TIMEOUT
        harm: threading.Thread | None = None
        while time.monotonic() < until:
            stats = self.queue.stats()
            acked = stats.counters.get(Counter.ACKED, 0)
            bar.update(acked, f"ready {stats.ready} processing {stats.processing} dead {stats.dead}")
            if harm is None and acked >= total // 2:
                harm = threading.Thread(target=self._harm, daemon=True)
                harm.start()
            elif harm is not None and not harm.is_alive() and stats.ready == stats.processing == stats.delayed == 0:
                break
            time.sleep(0.05)
        bar.update(self.queue.stats().counters.get(Counter.ACKED, 0), final=True)

    def _harm(self) -> None:
        """Kill one worker with SIGKILL; then pause the other past its lease, and continue it."""
        victim, other = self.workers
        self._pause_while_it_holds(victim)
        victim.kill()
        killed_at = time.time()
        held = self._held(victim)
        self._say(f"killed one worker (kill -9) while it held {len(held)} messages")
        self.workers.start()
        # At once: when the messages of the killed one are back, the other may have handled all the rest.
        self._faults.paused_held, paused_at = self._pause_while_it_holds(other), time.monotonic()
        self._say(f"paused the other past its lease while it held {self._faults.paused_held} messages")
        self._faults.returned = self._wait_until_returned(victim, killed_at)
        self._faults.recovery = self._wait_until_run(held, killed_at)
        time.sleep(max(0.0, paused_at + LEASE + 1.0 - time.monotonic()))
        other.go_on()
        self._say("continued it")

    def _pause_while_it_holds(self, worker: WorkerProcess) -> int:
        """Pause the worker at a moment at which it holds messages; return how many."""
        while True:
            worker.pause()
            held = len(self._held(worker))
            if held or self.queue.stats().ready == 0:
                return held
            worker.go_on()
            time.sleep(0.01)

    def _say(self, text: str) -> None:
        print(f"\r\x1b[K  {text}" if sys.stderr.isatty() else f"  {text}", flush=True)

    def _held(self, worker: WorkerProcess) -> set[str]:
        elements = self._app.store.call(ops.read_back(QueueKeys(QUEUE), worker.owner))
        return {Message.decode(QUEUE, element).id for element in elements}

    def _wait_until_returned(self, worker: WorkerProcess, since: float) -> float:
        until = time.monotonic() + 60
        while self._held(worker) and time.monotonic() < until:
            time.sleep(0.01)
        return time.time() - since

    def _wait_until_run(self, ids: set[str], since: float) -> float | None:
        """Return the seconds until one of these messages ran; None without messages."""
        until = time.monotonic() + 60
        with contextlib.closing(sqlite3.connect(self._results, timeout=30)) as connection:
            while ids and time.monotonic() < until:
                rows = connection.execute("SELECT id, at FROM runs WHERE at > ? ORDER BY at", (since,)).fetchall()
                for identity, at in rows:
                    if identity in ids:
                        return float(at) - since
                time.sleep(0.02)
        return None

    def _report(self, ids: Sequence[str], seconds: float) -> int:
        """Print what has become of the messages; return the exit status."""
        stats = self.queue.stats()
        with contextlib.closing(sqlite3.connect(self._results)) as connection:
            (handled, runs) = connection.execute("SELECT count(*), total(runs) FROM results").fetchone()
            more_than_once = connection.execute("SELECT count(*) FROM results WHERE runs > 1").fetchone()[0]
            found = connection.execute("SELECT sum(lines), sum(functions), sum(classes) FROM results").fetchone()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            direct = tuple(map(sum, zip(*map(count, self._paths), strict=True)))
        lost = len(ids) - handled
        returned = "-" if self._faults.returned is None else f"{self._faults.returned:.2f} s after kill -9"
        recovery = "-" if self._faults.recovery is None else f"{self._faults.recovery:.2f} s, behind the backlog"
        rows = [
            ("files sent", len(ids)),
            ("handled", handled),
            ("handled more than once", f"{more_than_once} ({int(runs) - handled} duplicate runs)"),
            ("lost", lost),
            ("reclaimed", stats.counters.get(Counter.RECLAIMED, 0)),
            ("back in the queue", returned),
            ("running again", recovery),
            ("messages/s", f"{len(ids) / seconds:,.0f} (with the pauses of the faults)"),
            ("lines, functions, classes", "  ".join(f"{number:,}" for number in found)),
            ("counted without the queue", "  ".join(f"{number:,}" for number in direct)),
        ]
        print("", *(f"  {name:28} {value}" for name, value in rows), sep="\n")
        if lost == 0 and tuple(found) == direct and stats.dead == 0:
            print("\n  Nothing was lost.")
            return 0
        print("\n  FAILED: the numbers do not agree. The workers said:")
        print(self._results.with_name("workers.log").read_text(errors="replace")[-4000:])
        return 1
