"""What a monitor has done since its start, and what it sees now: its own metrics."""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorState:
    """The state of a monitor, or of its loop for one node of a cluster."""

    failures: Mapping[str, int]  #: failed attempts by duty since the start
    failing: AbstractSet[tuple[str, str]]  #: the duties that fail now, each with its queue; '' means all queues
    leading: bool  #: whether it leads a share of the queues; otherwise it is a spare
    led_queues: int
    members: int  #: the monitors that share the queues, with the spares; 0 while they are not known
    taken_over: int  #: queues that came from other monitors since the start
    last_scan_at: float  #: seconds since the epoch: the end of the latest turn in which every duty ran; 0: none yet
    last_scan_took: float  #: seconds
    clock_jumps: int  #: of the server since the start

    @classmethod
    def together(cls, parts: Sequence["MonitorState"]) -> "MonitorState":
        """Return the state of a monitor with several loops; its latest scan is the oldest one of theirs."""
        failures: Counter[str] = Counter()
        for part in parts:
            failures.update(part.failures)
        return cls(
            failures=dict(failures),
            failing=set().union(*(part.failing for part in parts)),
            leading=any(part.leading for part in parts),
            led_queues=sum(part.led_queues for part in parts),
            members=max((part.members for part in parts), default=0),
            taken_over=sum(part.taken_over for part in parts),
            last_scan_at=min((part.last_scan_at for part in parts if part.last_scan_at), default=0.0),
            last_scan_took=max((part.last_scan_took for part in parts), default=0.0),
            clock_jumps=sum(part.clock_jumps for part in parts),
        )
