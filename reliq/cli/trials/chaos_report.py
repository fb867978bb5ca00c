"""The report of `reliq chaos`: faults, recoveries, and whether a message was lost."""

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reliq.cli.trials.processes import WorkerProcess


@dataclass
class Fault:
    """A worker that was killed or paused."""

    worker: WorkerProcess
    at: float  #: by the monotonic clock
    consumers: Sequence[str]  #: under which the worker held messages
    held: int
    returned: float | None = None  #: seconds until all its messages were back in the queue
    over: bool = False  #: whether a paused worker has continued


@dataclass
class Report:
    """The report of one run. A message is lost if no run of it ended and it is not in the queue."""

    where: str
    workers: int
    messages: int
    seconds: float
    killed: Sequence[Fault]
    paused: Sequence[Fault]
    redelivered: int
    handled: int
    extra_runs: int
    lost: int
    unhandled: int = field(init=False)  #: still in the queue at the time limit

    def __post_init__(self) -> None:
        self.unhandled = self.messages - self.handled - self.lost

    @property
    def good(self) -> bool:
        return self.lost == self.unhandled == 0

    def as_dict(self) -> dict[str, Any]:
        return {
            "messages": self.messages,
            "workers": self.workers,
            "seconds": round(self.seconds, 2),
            "killed": _summary(self.killed),
            "paused": _summary(self.paused),
            "redelivered": self.redelivered,
            "extra_runs": self.extra_runs,
            "unhandled": self.unhandled,
            "lost": self.lost,
        }

    def __str__(self) -> str:
        rows = [
            ("killed (kill -9)", _text(self.killed)),
            ("paused past the lease", _text(self.paused)),
            ("redelivered", f"{self.redelivered:,}"),
            ("duplicate runs", f"{self.extra_runs:,}"),
            ("not handled in time", f"{self.unhandled:,}"),
            ("lost", f"{self.lost:,}"),
        ]
        head = f"{self.messages:,} messages, {self.workers} workers, {self.seconds:.1f} s, on {self.where}\n"
        return head + "".join(f"\n  {name:24}{value}" for name, value in rows)


def lost_and_runs(history: Path, sent: Sequence[str], in_queue: set[str]) -> tuple[set[str], int, int]:
    """Return the lost ids, the number of messages with a finished run, and the number of repeated runs."""
    events = Counter(line.partition(" ")[::2] for line in history.read_text().splitlines())
    starts = [events["start", one] for one in sent]
    ended = {one for one in sent if events["end", one]}
    return set(sent) - ended - in_queue, len(ended), sum(starts) - sum(map(bool, starts))


def _times(faults: Sequence[Fault]) -> list[float]:
    return [fault.returned for fault in faults if fault.returned is not None]


def _summary(faults: Sequence[Fault]) -> dict[str, Any]:
    times = _times(faults)
    return {
        "workers": len(faults),
        "held": sum(fault.held for fault in faults),
        "recovery_p50": round(statistics.median(times), 3) if times else None,
        "recovery_max": round(max(times), 3) if times else None,
    }


def _text(faults: Sequence[Fault]) -> str:
    summary = _summary(faults)
    if summary["recovery_max"] is None:
        return f"{len(faults)}"
    p50, longest = summary["recovery_p50"], summary["recovery_max"]
    return (
        f"{len(faults)}, held {summary['held']:,} messages, back in the queue after {p50:.2f} s (max {longest:.2f} s)"
    )
