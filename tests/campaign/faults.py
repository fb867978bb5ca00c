"""The faults: each causes one, notes it, waits until it is over, and returns how many it was."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from reliq.client.app import Reliq
from reliq.errors import ReliqError
from tests.campaign.actors import Actor
from tests.campaign.faulty_proxy import FaultyProxy
from tests.campaign.servers import ClusterServer, ProxiedServer, SentinelServer
from tests.campaign.system import System
from tests.campaign.tasks import QUEUE
from tests.support.cluster import Cluster
from tests.support.fleet import wait

_DOWN = 0.1  #: seconds that a killed Redis stays away, at most
_EVERYSEC = 2.0  #: seconds of answered writes that a Redis with `appendfsync everysec` may lose (`reliq doctor`)
_UNREPLICATED = 1.0  #: seconds of answered writes that no replica may have received
_RESUMED = 60.0
_STALL = 20.0
_NOTED = 20.0  #: seconds within which Redis notes what its disk refuses
_CONNECTED = 1.0  #: seconds until a process is back after its network is
_NOTICED = 9.0  #: seconds within which a client gives up a connection that answers nothing


def _pick(system: System, actors: list[Actor]) -> Actor:
    return system.random.choice(actors)


def _rest(system: System, least: float = 0.02, most: float = 0.2) -> None:
    time.sleep(system.random.uniform(least, most))


# --- processes ---


def kill_worker(system: System) -> int:
    """Kill a random worker with SIGKILL, and start another."""
    _replace(system, _pick(system, system.workers), system.workers, system.start_worker)
    _rest(system)
    return 1


def kill_any(system: System) -> int:
    """Kill a random worker; every tenth time a monitor, a supervisor or the HTTP service."""
    others: list[tuple[list[Actor], Callable[[], Actor]]] = [
        (system.monitors, system.start_monitor),
        (system.supervisors, system.start_supervisor),
        (system.services, system.start_service),
    ]
    if system.random.random() < 0.2:
        actors, start = system.random.choice(others)
        if actors:
            _replace(system, _pick(system, actors), actors, start)
            return 1
    return kill_worker(system)


def _replace(system: System, victim: Actor, actors: list[Actor], start: Callable[[], Actor]) -> None:
    actors.remove(victim)
    at = time.monotonic()
    victim.kill()
    system.note_fault("sigkill", victim.name, at)
    system.wait_until_up(start())


def kill_sqs(system: System) -> int:
    """Kill a random consumer or endpoint of SQS with SIGKILL, and start another; every eighth time Redis."""
    chance = system.random.random()
    if chance < 0.125:
        return kill_redis_always(system)
    if chance < 0.5:
        port, victim = system.random.choice(sorted(system.endpoints.items(), key=lambda one: one[0]))
        _replace(system, victim, [victim], lambda: system.start_endpoint(port))
    else:
        victim = _pick(system, system.sqs_consumers)
        system.wait_until_consuming(victim)  # Python with boto3 takes seconds to start on a busy machine
        _replace(system, victim, system.sqs_consumers, system.start_sqs_consumer)
    _rest(system, 0.2, 0.6)
    return 1


def pause(system: System) -> int:
    """Stop half of the workers, at times a monitor too, until well past their leases, then let them go on."""
    victims = system.random.sample(system.workers, max(1, len(system.workers) // 2))
    if len(system.monitors) > 1 and system.random.random() < 0.5:
        victims.append(_pick(system, system.monitors))
    at = time.monotonic()
    for one in victims:
        one.pause()
    time.sleep(system.setup.lease + system.random.uniform(0.5, 2.0))
    for one in victims:
        one.go_on()
    for one in victims:
        system.note_fault("sigstop", one.name, at)
    _rest(system, 0.2, 0.5)
    return len(victims)


def restart_in_order(system: System) -> int:
    """Replace the oldest worker by a new one."""
    _replace_in_order(system, system.workers[0], system.workers, system.start_worker)
    return 1


def change_version(system: System) -> int:
    """Replace a process by one of the other version: workers first, then monitors, then producers.

    When all have this version, all go back, in the opposite order.
    """
    groups: list[tuple[list[Actor], Callable[[], Actor]]] = [
        (system.workers, system.start_worker),
        (system.monitors, system.start_monitor),
        (system.producers, system.start_producer),
    ]
    left = [(one, *group) for group in groups for one in group[0] if one.told.code != system.code]
    if not left:
        system.code = None if system.code else system.older
        return 0
    _replace_in_order(system, *left[-1 if system.code else 0])
    return 1


def _replace_in_order(system: System, oldest: Actor, actors: list[Actor], start: Callable[[], Actor]) -> None:
    """Start another process; when it is up, ask the old one to stop, which ends by itself."""
    system.wait_until_up(start())
    actors.remove(oldest)
    oldest.ask_to_stop()
    if not oldest.wait():
        raise ReliqError(f"{oldest.name} did not stop within its grace")
    _rest(system)


def replace_dead(system: System) -> int:
    """Start a worker for each one that its handler has killed."""
    dead = [one for one in system.workers if one.ended]
    for one in dead:
        system.workers.remove(one)
        system.note_fault("died", one.name, time.monotonic())
        system.start_worker()
    time.sleep(0.01)
    return len(dead)


def move_clocks(system: System) -> int:
    """Set the clock of each process to a random time within an hour of the true one."""
    for one in system.actors():
        one.clock.move(system.random.uniform(-3600, 3600))
    _rest(system, 0.1, 0.4)
    return 1


# --- connections ---


def _proxies(system: System) -> dict[str, FaultyProxy]:
    if not isinstance(system.server, ProxiedServer):
        raise TypeError("this fault needs proxies")
    running = {one.name for one in system.actors()}
    return {name: proxy for name, proxy in system.server.proxies.items() if name in running}


def cut_replies(system: System) -> int:
    """Cut a fifth of all replies for a while, after their commands have run; return how many."""
    proxies = _proxies(system).values()
    for proxy in proxies:
        proxy.cuts.clear()
        proxy.share = 0.2
    _rest(system, 0.2, 0.5)
    for proxy in proxies:
        proxy.share = 0.0
    for proxy in proxies:
        system.details.update(proxy.cuts)
    _rest(system)
    return sum(proxy.cuts.total() for proxy in proxies)


def stall_connections(system: System) -> int:
    """Hold back a request of each process until long after the client has given it up, then deliver it."""
    return _break(system, "stall", lambda proxy: proxy.stall(_STALL), lambda proxy: proxy.stalled, _STALL + 0.5)


def close_halves(system: System) -> int:
    """Close the server's side of a connection of each process, which is not told."""
    return _break(system, "half-open", FaultyProxy.close_half, lambda proxy: proxy.half_open, _NOTICED)


def _break(
    system: System, kind: str, do: Callable[[FaultyProxy], None], count: Callable[[FaultyProxy], int], seconds: float
) -> int:
    proxies, at = _proxies(system), time.monotonic()
    before = sum(map(count, proxies.values()))
    for proxy in proxies.values():
        do(proxy)
    time.sleep(seconds)
    for name in proxies:
        system.note_fault(kind, name, at)
    _resume(system)
    return sum(map(count, proxies.values())) - before


def cut_network(system: System) -> int:
    """Cut half of the processes off for less or more than a lease: nothing arrives from them, at them, or both."""
    proxies, at = _proxies(system), time.monotonic()
    victims = system.random.sample(sorted(proxies), len(proxies) // 2)
    ways = system.random.choice((("request",), ("reply",), ("request", "reply")))
    for name in victims:
        proxies[name].cut(ways)
    lease = system.setup.lease
    _rest(system, *system.random.choice(((0.2, lease * 0.5), (lease + 0.5, lease + 4.0))))
    for name in victims:
        proxies[name].heal()
    time.sleep(_CONNECTED)
    for name in victims:
        system.note_fault("network-cut", name, at)
    _resume(system)
    return len(victims)


# --- Redis ---


def _crash(system: System) -> float:
    at = time.monotonic()
    system.server.redis.kill()
    _rest(system, 0.0, _DOWN)
    return at


def _resume(system: System) -> None:
    """Wait until messages are handled again."""
    _, before = system.look_patiently(_RESUMED)
    until = time.monotonic() + _RESUMED
    while system.look_patiently(_RESUMED)[1] <= before:
        if time.monotonic() > until:
            raise ReliqError(f"no message was handled within {_RESUMED:g} s after a fault")
        time.sleep(0.02)


def kill_redis_always(system: System) -> int:
    """Kill Redis, which writes each answered command to its disk first, and start it again."""
    at = _crash(system)
    system.server.redis.start()
    system.note_fault("redis-kill", "*", at)
    _resume(system)
    return 1


def kill_redis_everysec(system: System) -> int:
    """Kill Redis, which writes to its disk every second, and start it again."""
    at = _crash(system)
    system.server.redis.start()
    system.note_fault("redis-kill", "*", at, rewound=at - _EVERYSEC)
    _resume(system)
    return 1


def rewind_redis(system: System) -> int:
    """Start Redis again with its files of a second ago."""
    pid = system.server.redis.pid
    os.kill(pid, signal.SIGSTOP)
    saved_at = time.monotonic()
    saved = system.server.save()
    os.kill(pid, signal.SIGCONT)
    time.sleep(1.0)
    at = _crash(system)
    system.server.put_back(saved)
    system.server.redis.start()
    system.note_fault("redis-rewound", "*", at, rewound=saved_at)
    _resume(system)
    return 1


def fill_memory(system: System) -> int:
    """Leave Redis no memory until its messages are handled, then give it memory again."""
    at = time.monotonic()
    system.server.ask("CONFIG", "SET", "maxmemory", "1")
    _rest(system, 0.3, 0.6)
    emptied = system.wait_until_empty(20.0)
    system.server.ask("CONFIG", "SET", "maxmemory", "0")
    system.note_fault("memory-full", "-", at)
    if not emptied:
        raise ReliqError("with its memory full Redis was not drained within 20 s")
    _rest(system, 0.2, 0.4)
    return 1


def fill_disk(system: System) -> int:
    """Fill the file system of Redis, then free it."""
    filler, at = system.server.redis.folder / "filler", time.monotonic()
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            pass
    wait(lambda: b"aof_last_write_status:err" in system.server.ask("INFO", "persistence"), "a refused write", _NOTED)
    _rest(system, 0.2, 0.6)
    filler.unlink()
    system.note_fault("disk-full", "*", at)
    _resume(system)
    return 1


def fail_saves(system: System) -> int:
    """Let the background saves of Redis fail, for which it refuses writes, then let them pass."""
    in_the_way, at = system.server.redis.folder / "dump.rdb", time.monotonic()
    if in_the_way.is_file():
        in_the_way.unlink()
    (in_the_way / "something").mkdir(parents=True, exist_ok=True)
    _save(system)
    wait(lambda: b"rdb_last_bgsave_status:err" in system.server.ask("INFO", "persistence"), "a failed save", _NOTED)
    _rest(system, 0.2, 0.6)
    shutil.rmtree(in_the_way)
    _save(system)
    wait(lambda: b"rdb_last_bgsave_status:ok" in system.server.ask("INFO", "persistence"), "a save", _NOTED)
    system.note_fault("save-failing", "*", at)
    _resume(system)
    return 1


def _save(system: System) -> None:
    try:
        system.server.ask("BGSAVE")
    except ReliqError:  # one is under way
        time.sleep(0.1)


# --- failovers ---


def fail_over_planned(system: System) -> int:
    """Have the sentinels make a replica the master; the former master lives."""
    return _fail_over(system, "planned")


def fail_over_paused(system: System) -> int:
    """Let the master hang until another is master; it comes back while it takes itself for the master."""
    return _fail_over(system, "paused")


def fail_over_cut_off(system: System) -> int:
    """Cut the master off from replicas and sentinels, but not from the clients."""
    return _fail_over(system, "cut")


def fail_over_killed(system: System) -> int:
    """Kill the master."""
    return _fail_over(system, "killed")


def _fail_over(system: System, kind: str) -> int:
    if not isinstance(system.server, SentinelServer):
        raise TypeError("this fault needs sentinels")
    at = system.server.fleet.fail_over(kind)
    system.note_fault(f"failover-{kind}", "*", at, rewound=at - _UNREPLICATED)
    _resume(system)
    return 1


def kill_cluster_master(system: System) -> int:
    """Kill the master that has the queue, or one of its partitions; its replica is promoted."""
    at = _cluster(system).kill_master(_a_partition(system))
    system.note_fault("failover-cluster", "*", at, rewound=at - _UNREPLICATED)
    _resume(system)
    return 1


def move_slot(system: System) -> int:
    """Move the queue, or one of its partitions, to another master, key by key, while it is used."""
    at = _cluster(system).move_slot(_a_partition(system))
    system.note_fault("slot-moved", "*", at)
    _resume(system)
    return 1


def _a_partition(system: System) -> str:
    """Return the name of a partition of the queue; of the queue itself if it has no others."""
    with Reliq(system.server.url) as app:
        names = [one.name for one in app.queue(QUEUE).partitions().partitions]
    return system.random.choice(names)


def _cluster(system: System) -> Cluster:
    if not isinstance(system.server, ClusterServer):
        raise TypeError("this fault needs a cluster")
    return system.server.cluster


# --- all of it ---


def soak(system: System) -> int:
    """Cause a random fault, and note how much memory Redis and the producers have; return the seconds it took."""
    began = time.monotonic()
    faults = (kill_any, kill_any, pause, restart_in_order, move_clocks, cut_replies, fill_memory, kill_redis_everysec)
    system.random.choice(faults)(system)
    _resume(system)
    time.sleep(max(0.0, began + 1.0 - time.monotonic()))
    _note_memory(system)
    return round(time.monotonic() - began)


def _note_memory(system: System) -> None:
    found = {"redis": system.server.redis.pid, **{one.name: one.pid for one in system.producers}}
    for name, pid in found.items():
        size = int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1])  # type: ignore[index]
        system.details.setdefault(f"{name} kB at first", size)
        system.details[f"{name} kB at last"] = size


@contextlib.contextmanager
def own_disk(folder: Path) -> Iterator[None]:
    """Mount a small file system in memory on a folder. Raises ReliqError without the right to."""
    folder.mkdir(parents=True, exist_ok=True)
    done = _command("mount", "-t", "tmpfs", "-o", "size=64m", "reliq-campaign", str(folder))
    if done.returncode:
        raise ReliqError(f"disk-full needs a file system of its own, and mounting one failed: {done.stderr.strip()}")
    try:
        yield
    finally:
        _command("umount", str(folder))


def _command(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(words, check=False, capture_output=True, text=True)
