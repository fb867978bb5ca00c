"""What a Redis server says about itself, for `reliq.observability.doctor`."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from reliq import ops
from reliq.errors import QueueFull, RedisUnavailable, RedisUnsuitable, ReliqError
from reliq.ops import Op, Steps
from reliq.protocol.partial_reads import nodes_away, or_unseen
from reliq.transport.sentinel import View

COVERAGE = "cluster-require-full-coverage"  #: a setting of a cluster
_SECTIONS = ("server", "replication", "memory", "persistence", "stats")
_SETTINGS = ("appendfsync", "save", "min-replicas-to-write", "no-appendfsync-on-rewrite", COVERAGE)
PINGS = 10


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that the server reports about itself. None or empty: not reported."""

    info: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    pings: Sequence[float] = ()  #: seconds
    clock_ahead: float = 0.0  #: seconds the server's clock is ahead of this machine's
    clock_jump: Mapping[str, str] = field(default_factory=dict)  #: the latest one noticed by a monitor: at, by, in ms
    scripts: bool = True
    client_list: bool = True
    nodes: int = 0  #: masters of a cluster
    away: Mapping[str, str] = field(default_factory=dict)  #: those of them that do not answer, and why
    sentinels: Sequence[View] = ()  #: what each of the URL says
    refusal: str = ""  #: the error of other commands than INFO, if it refuses them now: pings and rights are unknown

    def number(self, name: str) -> int:
        return int(self.info.get(name) or 0)

    @property
    def version(self) -> tuple[int, ...]:
        return tuple(int(part) for part in self.info.get("redis_version", "").split(".")[:2] if part.isdigit())


def read_facts(cluster: bool, sentinels: Sequence[View], pings: int) -> Steps[Facts]:
    """Read the facts, or those that it tells while it refuses; raises RedisUnavailable if there is no answer.

    `cluster`: of all its nodes. `pings`: round trips that are measured.
    """
    nodes, away = (yield from nodes_away()) if cluster else (0, {})
    if away and len(away) == nodes:
        raise RedisUnavailable("; ".join(away.values()))
    info: dict[str, str] = {}
    for section in (yield from _ask_each(ops.server_info(*_SECTIONS))):
        info |= section or {}
    settings: dict[str, str] = {}
    for setting in (yield from _ask_each([ops.server_setting(name) for name in _SETTINGS])):
        settings |= setting or {}
    asked_at = time.time()
    now = yield ops.server_time()
    between = (asked_at + time.time()) / 2
    facts = Facts(info, settings, clock_ahead=now / 1000 - between, nodes=nodes, away=away, sentinels=sentinels)
    try:
        took = yield from _measure(pings)
        jump = yield from or_unseen("the latest jump of the clock", _ask(ops.clock_jump()), None)
        scripts, named = yield from _ask_each([ops.empty_script(), ops.few_clients()])
    except RedisUnsuitable:
        raise
    except RedisUnavailable as error:
        return replace(facts, refusal=str(error))
    may_script, may_list = scripts is not None, named is not None
    return replace(facts, pings=took, clock_jump=jump or {}, scripts=may_script, client_list=may_list)


def _ask(op: Op[Any]) -> Steps[Any]:
    """Return the op's answer, or None if the server or the user lacks the command."""
    try:
        return (yield op)
    except ReliqError as error:
        if not _is_refusal(error):
            raise
        return None


def _is_refusal(error: ReliqError) -> bool:
    """Whether a command is not allowed, or unknown: disabled, renamed, or of a newer version."""
    return isinstance(error, (RedisUnsuitable, QueueFull)) or type(error) is ReliqError


def _ask_each(some: Sequence[Op[Any]]) -> Steps[list[Any]]:
    """Return the answers, None for what the server or the user lacks: in one round trip where nothing is refused."""
    try:
        return list((yield list(some)))
    except ReliqError as error:
        if not _is_refusal(error):
            raise
        answers: list[Any] = []
        for op in some:
            answers += [(yield from _ask(op))]
        return answers


def _measure(count: int) -> Steps[list[float]]:
    """Return the seconds that some round trips take."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        yield ops.ping()
        took.append(time.perf_counter() - began)
    return took
