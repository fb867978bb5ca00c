"""The scenarios: one fault each, what it is done to, and what must hold nevertheless."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from tests.campaign import faults
from tests.campaign.servers import (
    ClusterServer,
    GatedSentinelServer,
    ProxiedServer,
    SentinelServer,
    Server,
)
from tests.campaign.system import Setup, System
from tests.campaign.tasks import MIX, SQS_MIX

Inflict = Callable[[System], int]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the campaign."""

    name: str
    about: str
    unit: str  #: what `volume` counts: messages, or faults
    volume: int  #: that of a short run
    full: int  #: that of `make faults`
    inflict: Inflict | None = None  #: causes faults and returns how many; with messages: called while they are handled
    setup: Setup = field(default_factory=Setup)
    full_setup: Setup | None = None  #: that of `make faults`, if another
    settings: tuple[str, ...] = ()  #: of the Redis server
    duplicates: Literal["none", "explained"] = "explained"
    recovery_limit: float | None = None  #: seconds from a kill to the next claim, for 99 of 100, in a full run
    server: type[Server] = Server
    sends_are_safe: bool = False  #: whether an answered send survives although Redis may forget other things
    own_disk: bool = False  #: whether Redis gets a small file system of its own
    needs_older: bool = False  #: whether its processes begin with another version of reliq


_SWIFT = Setup(workers=4, producers=2, rate=0, batch=100, work=0.0)
_LEASE = Setup().lease  #: seconds; a scan takes half a second at most
#: A message takes too long for the worker alone, so that the consumers of SQS get most.
_SQS = Setup(workers=1, producers=1, rate=60, mix=SQS_MIX, work=0.04, endpoints=2, sqs_consumers=3)

SCENARIOS = [
    Scenario(
        "none", "no fault, as fast as it goes", "messages", 2000, 1_000_000,
        setup=_SWIFT, full_setup=Setup(workers=16, producers=8, rate=0, batch=100, work=0.0), duplicates="none",
    ),
    Scenario(
        "sigkill", "SIGKILL of a worker, at times of a monitor, a supervisor, the HTTP service", "kills", 10, 2000,
        faults.kill_any, Setup(monitors=2),
        Setup(workers=8, monitors=2, supervisors=1, services=1, rate=40, work=0.02),
        recovery_limit=_LEASE + 1.0,
    ),
    Scenario(
        "sigstop", "SIGSTOP of workers and monitors until past their leases", "pauses", 4, 500, faults.pause,
        Setup(lease=1.0, monitors=2), Setup(workers=10, lease=1.0, monitors=2),
    ),
    Scenario(
        "reply-cut", "replies cut off after their commands have run, of every command", "cuts", 100, 20_000,
        faults.cut_replies, full_setup=Setup(rate=300, work=0.0), duplicates="none", server=ProxiedServer,
    ),
    Scenario(
        "stall", "requests held back for 20 s, then delivered although the client has gone on", "stalls", 3, 200,
        faults.stall_connections, full_setup=Setup(workers=14, producers=6, monitors=2, rate=30), server=ProxiedServer,
    ),
    Scenario(
        "half-open", "connections that only the client believes in", "connections", 3, 200, faults.close_halves,
        full_setup=Setup(workers=14, producers=6, monitors=2, rate=30), server=ProxiedServer,
    ),
    Scenario(
        "network-cut", "processes cut off in silence, in one direction or both, for less or more than a lease",
        "processes", 6, 500, faults.cut_network, Setup(lease=3.0, monitors=2),
        Setup(workers=8, lease=3.0, monitors=2, rate=40), server=ProxiedServer,
    ),
    Scenario(
        "redis-kill-always", "kill -9 of Redis with appendfsync always", "kills", 2, 100, faults.kill_redis_always,
        settings=("--appendfsync", "always"),
    ),
    Scenario(
        "redis-kill-everysec", "kill -9 of Redis with appendfsync everysec", "kills", 2, 100,
        faults.kill_redis_everysec,
    ),
    Scenario(
        "redis-rewound", "Redis started again with its files of a second ago", "rewinds", 2, 50, faults.rewind_redis,
    ),
    Scenario(
        "memory-full", "no memory left in Redis, then freed", "times", 3, 50, faults.fill_memory,
        Setup(send_timeout=0.2), duplicates="none",
    ),
    Scenario(
        "disk-full", "no disk left for Redis, then freed", "times", 2, 50, faults.fill_disk, Setup(send_timeout=0.2),
        own_disk=True,
    ),
    Scenario(
        "save-failing", "background saves fail, for which Redis refuses writes", "times", 2, 50, faults.fail_saves,
        Setup(send_timeout=0.2), settings=("--save", "3600 1"),
    ),
    *(
        Scenario(
            f"sentinel-{kind}", f"{about}, sends with replicas=1", "failovers", 1, 50, inflict,
            Setup(durability="replicas=1", rate=50), server=server, sends_are_safe=True,
        )
        for kind, about, inflict, server in (
            ("planned", "failover by SENTINEL FAILOVER", faults.fail_over_planned, SentinelServer),
            ("paused", "failover of a master that hangs for 4 s and comes back", faults.fail_over_paused,
             SentinelServer),
            ("cut", "failover of a master that its replicas and the sentinels do not reach, but clients do",
             faults.fail_over_cut_off, GatedSentinelServer),
            ("killed", "failover of a master that is killed", faults.fail_over_killed, SentinelServer),
        )
    ),
    Scenario(
        "sentinel-memory", "failover of a master that is killed, sends not waiting for replicas", "failovers", 1, 50,
        faults.fail_over_killed, Setup(rate=50), server=SentinelServer,
    ),
    Scenario(
        "cluster-killed", "the queue's master in a cluster killed, its replica promoted, sends with replicas=1",
        "failovers", 1, 20, faults.kill_cluster_master, Setup(durability="replicas=1", rate=50), server=ClusterServer,
        sends_are_safe=True,
    ),
    Scenario(
        "cluster-slot", "the queue's slot moved to another master under load", "moves", 2, 20, faults.move_slot,
        Setup(rate=50, monitors=3), server=ClusterServer,
    ),
    Scenario(
        "partitions-killed", "a master with partitions of a queue killed, its replica promoted, sends with replicas=1",
        "failovers", 1, 20, faults.kill_cluster_master, Setup(durability="replicas=1", rate=50, partitions=6),
        server=ClusterServer, sends_are_safe=True,
    ),
    Scenario(
        "clocks", "clocks of all processes moved by up to an hour", "moves", 5, 50, faults.move_clocks,
        duplicates="none",
    ),
    Scenario(
        "rolling-restart", "workers replaced, one after another", "restarts", 4, 50, faults.restart_in_order,
        duplicates="none",
    ),
    Scenario(
        "rolling-upgrade", "all processes replaced one by one by those of another version, and back, again and again",
        "restarts", 8, 50, faults.change_version, Setup(monitors=2), duplicates="none", needs_older=True,
    ),
    Scenario(
        "deadly", "1 % of the messages kill the process that runs them", "messages", 300, 100_000, faults.replace_dead,
        Setup(rate=150, mix={**MIX, "deadly": 1}, max_deliveries=2),
        Setup(workers=8, rate=60, mix={**MIX, "deadly": 1}, max_deliveries=2),
    ),
    Scenario(
        "sqs", "SIGKILL of consumers and endpoints of SQS, and of Redis with appendfsync always; a worker beside",
        "kills", 12, 500, faults.kill_sqs,
        _SQS, replace(_SQS, sqs_consumers=6),
        settings=("--appendfsync", "always"),
    ),
    Scenario(
        "sqs-javascript", "the same with consumers that have the SDK of JavaScript, beside those with boto3", "kills",
        12, 500, faults.kill_sqs,
        replace(_SQS, sqs_consumers=4, javascript=True), replace(_SQS, sqs_consumers=6, javascript=True),
        settings=("--appendfsync", "always"),
    ),
    Scenario(
        "soak", "all of it at random: processes, connections, clocks, memory and Redis", "seconds", 15, 1800,
        faults.soak, Setup(monitors=2), server=ProxiedServer,
    ),
]  # fmt: skip


def named(name: str) -> Scenario | None:
    return next((one for one in SCENARIOS if one.name == name), None)
