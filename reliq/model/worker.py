"""Workers: the processes that consume, as each of their consumers describes them in Redis."""

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec

from reliq.contract.values import cut

_MOST_BYTES = 200  #: of a text


@dataclass(frozen=True, slots=True)
class Process:
    """A process. `started`: ms since the epoch, by its own clock."""

    host: str
    pid: int
    title: str
    started: int
    version: str


@dataclass(frozen=True, slots=True)
class Doing:
    """What a worker does with the messages of a queue.

    `handled`: messages since it started. `rate`: of them, how many in a second lately. `running`: the id of the message
    that has run for longest, and `since`: from when on, ms since the epoch; empty and 0 without one.
    """

    handled: int = 0
    rate: float = 0.0
    running: str = ""
    since: int = 0
    paused: bool = False


#: What a consumer that follows no instructions is, in the words of every surface.
NO_WORKER = "your own consumer, a lease over HTTP or a batch of Spark follows no instructions: stop its program"


@dataclass(frozen=True, slots=True)
class Consuming:
    """A consumer of a queue. `process`: None for one of an earlier version; of a lease over HTTP that of the service.

    `lease_ends`: ms of the server's clock, None without a lease. `beat`: when the lease was last renewed.
    """

    queue: str
    consumer: str
    lease_ends: int | None = None
    beat: int | None = None
    processing: int = 0
    process: Process | None = None
    doing: Doing = Doing()
    follows: bool = False  #: whether it can be told to pause, to resume and to stop
    home: str = ""  #: the queue that it consumes from: the same, or one of its homes


@dataclass(slots=True)
class WorkerProcess:
    """A process that consumes, with all of its consumers."""

    id: str
    process: Process | None
    consumers: list[Consuming] = field(default_factory=list)

    @property
    def queues(self) -> list[str]:
        return sorted({one.queue for one in self.consumers})

    @property
    def processing(self) -> int:
        return sum(one.processing for one in self.consumers)

    @property
    def rate(self) -> float:
        """Messages a second, lately."""
        return sum(one.doing.rate for one in self.consumers)

    @property
    def beat(self) -> int | None:
        """When it last renewed a lease, ms of the server's clock."""
        return max((one.beat for one in self.consumers if one.beat is not None), default=None)

    @property
    def paused(self) -> bool:
        return any(one.doing.paused for one in self.consumers)

    @property
    def follows(self) -> bool:
        """Whether it can be told to pause, to resume and to stop; if not, `NO_WORKER` says what it is."""
        return any(one.follows for one in self.consumers)

    @property
    def running(self) -> Consuming | None:
        """The consumer with the message that has run for longest."""
        return min((one for one in self.consumers if one.doing.running), key=lambda one: one.doing.since, default=None)

    def summary(self) -> dict[str, Any]:
        """Return it as a dict for JSON; times are ms since the epoch."""
        longest = self.running
        about = asdict(self.process) if self.process else dict.fromkeys(Process.__slots__)
        return {
            "id": self.id,
            **about,
            "queues": self.queues,
            "processing": self.processing,
            "messages_per_second": round(self.rate, 3),
            "last_heartbeat": self.beat,
            "paused": self.paused,
            "running": longest and {"queue": longest.queue, "id": longest.doing.running, "since": longest.doing.since},
        }


def encoded(process: Process, lease: float, doing: Doing | None = None) -> bytes:
    """Return the text about a consumer; `doing`: of a worker, which follows instructions."""
    about: dict[str, Any] = {
        "host": cut(process.host, _MOST_BYTES), "pid": process.pid, "title": cut(process.title, _MOST_BYTES),
        "started": process.started, "version": process.version, "lease": round(lease * 1000),
    }  # fmt: skip
    if doing is not None:
        about |= {name: value for name, value in asdict(doing).items() if name != "paused" or value}
    return msgspec.json.encode(about)


def read(
    queue: str, consumer: str, text: bytes | None, lease_ends: int | None, processing: int, home: str = ""
) -> Consuming:
    """Return a consumer with what its text says; a text that reliq did not write says nothing."""
    about: Any = None
    with contextlib.suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        about = msgspec.json.decode(text or b"null")
    if not isinstance(about, Mapping):
        return Consuming(queue, consumer, lease_ends, None, processing, home=home)
    lease = _number(about.get("lease"))
    process = Process(
        _text(about.get("host")), int(_number(about.get("pid"))), _text(about.get("title")),
        int(_number(about.get("started"))), _text(about.get("version")),
    )  # fmt: skip
    doing = Doing(
        int(_number(about.get("handled"))), _number(about.get("rate")), _text(about.get("running")),
        int(_number(about.get("since"))), about.get("paused") is True,
    )  # fmt: skip
    beat = None if lease_ends is None else lease_ends - int(lease)
    return Consuming(queue, consumer, lease_ends, beat, processing, process, doing, "handled" in about, home)


def _text(value: object) -> str:
    return cut(value, _MOST_BYTES) if isinstance(value, str) else ""


def _number(value: object) -> float:
    """Return a number in the range of a time."""
    sound = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 253_402_300_799_999
    return value if sound else 0  # type: ignore[return-value]
