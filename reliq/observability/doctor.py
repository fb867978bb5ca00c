"""Doctor: what a Redis server means for its messages: the possible loss, the time of a restart, what to change.

`judge` is pure: facts in, findings out, one function for each question.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any, Literal

from reliq.errors import RedisUnsuitable, ReliqError
from reliq.model.keys import CLOCK
from reliq.observability.facts import COVERAGE, PINGS, Facts, read_facts
from reliq.ops import Steps
from reliq.ops.schema import ClockJump
from reliq.ops.topology import address_of
from reliq.transport.sentinel import View
from reliq.transport.server_check import OLDEST_REDIS

Level = Literal["ok", "warning", "failure"]

NODES = "nodes"  #: the subject of the finding about nodes of a cluster that do not answer

WAITAOF_SINCE = (7, 2)  #: the first version with WAITAOF, which durability="fsync" needs
_LOAD_RATE = 100e6  #: bytes a second at a start; batches of 1,000 were loaded at 480e6 on a small machine
_NEARLY_FULL = 0.8
_CLOCK_LARGEST = 1.0  #: seconds
_PING_SLOW, _PING_HOPELESS = 0.01, 1.0  #: seconds
_FORK_SLOW = 1_000_000  #: microseconds
_ANSWERS = ("refuses temporarily", "maxclients")  #: parts of the errors of a server that runs
_MEND = "Change what the refusal names; loading, and a failover, end by themselves."


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact, what it means and, if it is not good, what to change."""

    level: Level
    subject: str
    fact: str
    meaning: str
    change: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All findings. `ready`: the server can hold queues."""

    findings: tuple[Finding, ...]

    @property
    def level(self) -> Level:
        levels = {finding.level for finding in self.findings}
        return "failure" if "failure" in levels else "warning" if "warning" in levels else "ok"

    @property
    def ready(self) -> bool:
        return self.level != "failure"

    def exit_status(self, strict: bool = False) -> int:
        """Return the exit status for CI: 0 = fine, 1 = warnings, if `strict`; 2 = failures."""
        return {"ok": 0, "warning": int(strict), "failure": 2}[self.level]

    def as_dict(self) -> dict[str, Any]:
        return {"level": self.level, "findings": [asdict(finding) for finding in self.findings]}


def examine(cluster: bool = False, sentinels: Sequence[View] = (), pings: int = PINGS) -> Steps[Report]:
    """Read the facts and judge them. Raises RedisUnavailable if there is no answer; `cluster`: of all its nodes."""
    return judge((yield from read_facts(cluster, sentinels, pings)))


def judge(facts: Facts) -> Report:
    """Return the findings for all questions."""
    return Report(tuple(finding for question in _QUESTIONS for finding in question(facts)))


def unreachable(error: ReliqError) -> Report:
    """Return the report for a server that does not answer, or refuses to tell of itself."""
    refused = isinstance(error, RedisUnsuitable) or any(sign in str(error) for sign in _ANSWERS)
    return Report((_no_connection(str(error), _MEND if refused else "Start Redis, or correct the URL."),))


def _no_connection(why: str, change: str) -> Finding:
    return Finding("failure", "connection", why, "Nothing can be sent or handled.", change)


def _refusal(facts: Facts) -> Iterator[Finding]:
    if facts.refusal:
        yield _no_connection(facts.refusal, _MEND)


def _nodes(facts: Facts) -> Iterator[Finding]:
    if facts.away:
        yield Finding("failure", NODES, f"{len(facts.away)} of {facts.nodes} do not answer: {', '.join(facts.away)}",
                      "Messages of queues, or parts of queues, there cannot be sent or handled; all others can.",
                      "Start these nodes, or give each a replica that takes over.")  # fmt: skip
    if facts.nodes and facts.settings.get(COVERAGE) == "yes":
        yield Finding("warning", "coverage", f"{COVERAGE} yes",
                      "While a master is away that no replica replaces, all nodes refuse calls.",
                      f"CONFIG SET {COVERAGE} no, on each node: queues of the others continue.")  # fmt: skip


def _sentinels(facts: Facts) -> Iterator[Finding]:
    silent = [f"{address_of(one.sentinel)} ({one.problem})" for one in facts.sentinels if one.master is None]
    if silent:
        meaning = "A failover is seen through the others."
        if 2 * len(silent) >= len(facts.sentinels):
            meaning = "No majority can elect a successor of the master, or confirm it: sends with replicas wait."
        fact = f"{len(silent)} of {len(facts.sentinels)} name no master: {', '.join(silent)}"
        yield Finding("warning", "sentinels", fact, meaning, "Start them, or correct the URL and the name in it.")
    named = [one for one in facts.sentinels if one.master is not None]
    if len({one.master for one in named}) > 1:
        says = ", ".join(
            f"{address_of(one.sentinel)} names {address_of(one.master)} (epoch {one.epoch})" for one in named
        )
        yield Finding("warning", "sentinels", f"they name different masters: {says}",
                      "reliq believes the highest epoch. After a failover this lasts a few seconds.",
                      "If it stays so, look whether the sentinels reach each other.")  # fmt: skip


def _version(facts: Facts) -> Iterator[Finding]:
    text = facts.info.get("redis_version", "")
    if valkey := facts.info.get("valkey_version"):
        text = f"Valkey {valkey}, compatible with Redis {text}"
    if not facts.version:
        yield Finding("warning", "version", "the server does not say", "INFO is refused: what follows is incomplete.",
                      "Allow INFO to the user of the URL.")  # fmt: skip
    elif facts.version < OLDEST_REDIS:
        yield Finding("failure", "version", text, "There is no LMOVE: no message can be claimed.",
                      "Use Redis 6.2 or newer, or Valkey.")  # fmt: skip
    elif facts.version < WAITAOF_SINCE:
        meaning = 'Enough. There is no WAITAOF, so durability="fsync" is refused before anything is sent.'
        yield Finding("ok", "version", text, meaning)
    else:
        yield Finding("ok", "version", text, 'Enough, also for durability="fsync".')


def _role(facts: Facts) -> Iterator[Finding]:
    role = facts.info.get("role", "master")
    if role != "master" and not facts.nodes:  # in a cluster the slot map names the masters
        yield Finding("failure", "role", role, "A replica refuses every write.",
                      "Give the URL of its master, or of its sentinels.")  # fmt: skip


def _persistence(facts: Facts) -> Iterator[Finding]:
    if "aof_enabled" not in facts.info:
        yield Finding("warning", "persistence", "the server does not say", "The possible loss is not known.",
                      "Ask its operators whether appendonly and appendfsync everysec are set.")  # fmt: skip
    elif facts.number("aof_enabled"):
        yield _append_only_file(facts)
    else:
        yield _snapshots(facts)
    for name, file in (("aof_last_write_status", "append-only file"), ("rdb_last_bgsave_status", "snapshot")):
        if facts.info.get(name, "ok") != "ok":
            yield Finding("failure", "persistence", f"the last write of the {file} failed",
                          "What is acknowledged now is in memory only, or Redis refuses writes.",
                          "Look at the disk of the Redis server: full, read-only, no permission.")  # fmt: skip


def _append_only_file(facts: Facts) -> Finding:
    policy = facts.settings.get("appendfsync", "")
    fact = f"append-only file, fsync {policy or 'not known'}"
    match policy:
        case "always":
            return Finding(
                "ok", "persistence", fact, "Possible loss when the machine dies: none; a killed Redis: none."
            )
        case "everysec" if facts.settings.get("no-appendfsync-on-rewrite") == "yes":
            return Finding("warning", "persistence", fact + ", but not while the file is rewritten",
                           "Possible loss when the machine dies during a rewrite: up to 30 s of messages.",
                           "CONFIG SET no-appendfsync-on-rewrite no")  # fmt: skip
        case "everysec":
            meaning = (
                "Possible loss when the machine dies: the last second (two, with a slow disk). A killed Redis: none."
            )
            return Finding("ok", "persistence", fact, meaning)
        case "no":
            return Finding("warning", "persistence", fact,
                           "Possible loss when the machine dies: what the system has not written yet, some 30 s.",
                           "CONFIG SET appendfsync everysec")  # fmt: skip
        case _:
            return Finding("warning", "persistence", fact, "The possible loss is 0 s, 1 s or 30 s: CONFIG is refused.",
                           "Allow CONFIG GET to the user in the URL, or ask this Redis's operator.")  # fmt: skip


def _snapshots(facts: Facts) -> Finding:
    change = "CONFIG SET appendonly yes, CONFIG SET appendfsync everysec, and CONFIG REWRITE"
    rules = facts.settings.get("save")
    if rules is None:
        return Finding("warning", "persistence", "no append-only file",
                       "Possible loss when Redis ends: everything since the last snapshot, if there are any.",
                       change)  # fmt: skip
    if rules:
        longest = max(int(part) for part in rules.split()[::2])
        return Finding("warning", "persistence", f"snapshots only (save {rules})",
                       f"Possible loss when Redis crashes: everything since the last snapshot, {longest} s and more.",
                       change)  # fmt: skip
    if facts.number("connected_slaves"):
        return Finding("warning", "persistence", "none here, replicas only",
                       "Possible loss when Redis ends: everything, if it is back before a replica takes over.",
                       change)  # fmt: skip
    return Finding(
        "failure", "persistence", "none", "Possible loss when Redis ends, however it ends: everything.", change
    )


def _recovery(facts: Facts) -> Iterator[Finding]:
    size = facts.number("aof_current_size") or facts.number("used_memory")
    if not size:
        return
    longest = size / _LOAD_RATE
    change = "Keep fewer messages waiting and dead, or fail over to a replica." if longest > 60 else ""
    yield Finding("warning" if longest > 60 else "ok", "recovery", f"{size / 1e6:.1f} MB to load after a restart",
                  f"Sends fail and workers wait for up to about {max(1, round(longest))} s; nothing is lost by it.",
                  change)  # fmt: skip


def _disk(facts: Facts) -> Iterator[Finding]:
    delayed, fork = facts.number("aof_delayed_fsync"), facts.number("latest_fork_usec")
    if delayed:
        yield Finding("warning", "disk", f"{delayed} writes waited for an fsync since Redis started",
                      "The disk is slow: calls stall for seconds, and the window of everysec doubles.",
                      "A faster disk, or one that is not shared.")  # fmt: skip
    if fork > _FORK_SLOW:
        yield Finding("warning", "disk", f"the last fork took {fork / 1e6:.1f} s", "Redis serves no client meanwhile.",
                      "Turn transparent huge pages off; less data in one server.")  # fmt: skip


def _replicas(facts: Facts) -> Iterator[Finding]:
    if facts.info.get("role", "") != "master":
        return
    count, needed = facts.number("connected_slaves"), int(facts.settings.get("min-replicas-to-write") or 0)
    good = int(facts.info.get("min_slaves_good_slaves") or needed)
    if good < needed:
        yield Finding("failure", "replicas", f"{good} of {needed} that must be connected",
                      "Redis refuses every send, claim and settle.",
                      "Start the missing ones, or lower min-replicas-to-write.")  # fmt: skip
    elif not count:
        yield Finding("warning", "replicas", "none", "The queues are lost with this machine's disk.",
                      "Add a replica, with Sentinel or a managed service to fail over to it.")  # fmt: skip
    elif needed:
        yield Finding("ok", "replicas", f"{count}, of which {needed} must be connected",
                      "Possible loss on a failover: what the replica had not received, at most min-replicas-max-lag; "
                      'none for sends with durability="replicas=1".')  # fmt: skip
    else:
        yield Finding("warning", "replicas", f"{count}, and writes are accepted without them",
                      "Possible loss on a failover: all that was sent to a master cut off from its replicas.",
                      'CONFIG SET min-replicas-to-write 1, or send with durability="replicas=1".')  # fmt: skip


def _memory(facts: Facts) -> Iterator[Finding]:
    policy = facts.info.get("maxmemory_policy", "")
    evicts = policy not in ("", "noeviction")
    if evicts:
        yield Finding("failure", "eviction", policy, "When it is full, Redis deletes whole queues.",
                      "CONFIG SET maxmemory-policy noeviction, in a Redis of the queues' own.")  # fmt: skip
    if "used_memory" not in facts.info:
        return
    used, most = facts.number("used_memory"), facts.number("maxmemory")
    if not most:
        yield Finding("warning", "memory", f"{used / 1e6:.1f} MB used, no maxmemory",
                      "When the machine's memory ends, the system kills Redis instead of Redis refusing sends.",
                      "CONFIG SET maxmemory, to about two thirds of the machine's memory.")  # fmt: skip
        return
    share, fact = used / most, f"{used / 1e6:.1f} of {most / 1e6:.1f} MB used"
    if evicts:
        level: Level = "failure" if share >= _NEARLY_FULL else "ok"
        yield Finding(level, "memory", fact, f"When it is full, it evicts by {policy}.",
                      "" if level == "ok" else "First the policy: see eviction.")  # fmt: skip
    elif share >= 1:
        yield Finding("failure", "memory", fact, "Sends are refused (QueueFull); workers can still drain the queues.",
                      "More workers, a larger maxmemory, or a max_length for each queue.")  # fmt: skip
    elif share >= _NEARLY_FULL:
        yield Finding("warning", "memory", fact, "Sends will be refused soon.",
                      "More workers, a larger maxmemory, or a max_length for each queue.")  # fmt: skip
    else:
        yield Finding("ok", "memory", fact, "When it is full, sends are refused and nothing is deleted.")


def _clock(facts: Facts) -> Iterator[Finding]:
    ahead = facts.clock_ahead
    fact = f"the server is {abs(ahead):.3f} s {'ahead of' if ahead >= 0 else 'behind'} this machine"
    if abs(ahead) > _CLOCK_LARGEST:
        yield Finding("warning", "clock", fact,
                      "Leases and delays are right, they go by the server's clock; times in logs do not compare.",
                      "Run NTP on both.")  # fmt: skip
    else:
        yield Finding("ok", "clock", fact, "Leases and delays go by the server's clock only.")
    if facts.clock_jump:
        at, by = (int(facts.clock_jump.get(name, "0")) / 1000 for name in (ClockJump.AT, ClockJump.BY))
        when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        yield Finding("warning", "clock", f"the server's clock jumped by {by:+.1f} s at {when}",
                      "Delayed messages and expiries came that much too early or too late; no lease ended by it.",
                      f"Run NTP on the server and have it slew the clock; then redis-cli DEL {CLOCK}")  # fmt: skip


def _latency(facts: Facts) -> Iterator[Finding]:
    if not facts.pings:
        return
    middle, worst = median(facts.pings), max(facts.pings)
    fact = f"{middle * 1000:.2f} ms a round trip, {worst * 1000:.2f} ms the worst of {len(facts.pings)}"
    if middle > _PING_HOPELESS:
        yield Finding("failure", "latency", fact, "Heartbeats come too late: leases are lost and messages run twice.",
                      "Bring workers and Redis together; look for slow commands (SLOWLOG GET).")  # fmt: skip
    elif middle > _PING_SLOW:
        yield Finding("warning", "latency", fact, f"One worker settles at most {1 / middle:.0f} batches a second.",
                      "Bring workers and Redis together; look for slow commands (SLOWLOG GET).")  # fmt: skip
    else:
        yield Finding("ok", "latency", fact, "Fast enough.")


def _rights(facts: Facts) -> Iterator[Finding]:
    if facts.refusal:
        return
    if facts.scripts:
        yield Finding("ok", "scripts", "allowed", "Every transition is one atomic script.")
    else:
        yield Finding("failure", "scripts", "refused", "No message can be sent, claimed or settled.",
                      "Allow EVAL, EVALSHA and SCRIPT LOAD to the user of the URL (ACL +@scripting).")  # fmt: skip
    if not facts.client_list:
        yield Finding("warning", "connections", "CLIENT LIST is refused",
                      "A killed worker is noticed when its lease ends (15 s), not after 5 s.",
                      "Allow CLIENT LIST and CLIENT SETNAME to the user of the URL.")  # fmt: skip


_QUESTIONS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _refusal, _nodes, _sentinels, _version, _role, _persistence, _recovery, _disk, _replicas, _memory, _clock, _latency,
    _rights,
)  # fmt: skip
