"""What whole systems cost: a cluster, workers that share partitions, Celery, the HTTP service, a part that is away.

They are measured by the programs that measure them alone: bench/partitions.py, faults.py, celery.py, http_service.py.
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import reliq
from bench import celery, faults, http_service
from bench.partitions import measure
from bench.suite.contestants import BENCH
from bench.suite.harness import Check, Row, Setting, percentile, ratios
from reliq.cli.sizing import COSTS, Load, Table
from reliq.cli.trials import sized
from reliq.embedded import EmbeddedRedis
from reliq.model.keys import new_owner
from tests.support.shares import loads, shares

PARTITIONS = 12
_LEASE = 15.0  #: seconds: the default
_NAMES = 200  #: sets of workers, each of other names
_SURFACES = "tests/integration/partitions/test_surfaces.py"
_LOAD = Load(rate=20_000, body=1024, batch=10, handler=0.001)  #: of which a machine carries a tenth


def cluster(setting: Setting) -> Iterator[Row]:
    """Masters that have the partitions of one queue, beside one master with one queue; messages without keys."""
    messages = setting.volume(60_000, 120_000)
    times: dict[int, list[float]] = {3: [], 6: []}
    costs: dict[tuple[int, int], list[float]] = {}
    for _ in range(setting.rounds):
        for masters, partitions in ((1, 1), (1, PARTITIONS), (3, PARTITIONS), (6, PARTITIONS)):
            (one,) = measure(masters, partitions, messages, kinds=(False,))
            costs.setdefault((masters, partitions), []).append(one.in_us + one.out_us)
    for masters, found in times.items():
        found += [masters * less for less in ratios(costs[1, 1], costs[masters, PARTITIONS])]
    row = Row(f"cluster: {PARTITIONS} partitions, CPU of a message without key")
    row.checks = [
        Check("three masters, times one", times[3], 2.4),
        Check("six masters, times one", times[6], 4.8),
    ]
    row.notes = [
        f"{masters} masters, {partitions} partitions: {statistics.median(found):.2f} us"
        for (masters, partitions), found in costs.items()
    ]
    yield row


def sharing(setting: Setting) -> Iterator[Row]:
    """What each worker computes as its share, for many sets of workers; and how soon others have what one held."""
    row = Row(f"sharing: {PARTITIONS} partitions, most / least of a worker")
    for workers in (5, 7, 16):
        served = [loads(shares(PARTITIONS, [new_owner() for _ in range(workers)])) for _ in range(_NAMES)]
        most = max(max(one) / min(one) for one in served)
        row.checks.append(Check(f"{workers} workers", [most], 1.25, at_least=False))
    yield row
    with EmbeddedRedis() as server, tempfile.TemporaryDirectory() as folder, reliq.Reliq(server.url) as app:
        (Path(folder) / "bench_app.py").write_text(faults.APP)
        app.queue(faults.QUEUE).configure(partitions=PARTITIONS)
        took = faults.recoveries(app, Path(folder), setting.volume(5, 20))
    row = Row(f"sharing: {PARTITIONS} partitions, kill -9 until another worker has the message")
    row.checks = [Check("p99, seconds", [percentile(took, 0.99)], _LEASE + 2, at_least=False)]
    row.notes = [f"median {statistics.median(took):.2f} s of {len(took)}, lease {_LEASE:g} s"]
    yield row


def sends_of_celery(setting: Setting) -> Iterator[Row]:
    tasks = setting.volume(3000, 10_000)
    found: dict[str, list[tuple[float, float]]] = {side: [] for side in celery.SIDES}
    for _ in range(setting.rounds):
        for side, sent in found.items():
            sent.append(celery.sending(side, tasks))
    commands, micros = [ratios(*by) for by in _by_side(found)]
    row = Row("celery: a send, beside the Redis transport")
    row.checks = [
        Check("Redis CPU, reliq / Redis transport", micros, 1.1, at_least=False),
        Check("commands carried out, reliq / Redis transport", commands, 1.1, at_least=False),
    ]
    row.notes = [
        f"{side}: {statistics.median(calls):.1f} commands, {statistics.median(cpu):.1f} us"
        for side, (calls, cpu) in ((side, tuple(zip(*sent, strict=True))) for side, sent in found.items())
    ]
    yield row


def _by_side(found: dict[str, list[tuple[float, float]]]) -> Iterator[tuple[list[float], list[float]]]:
    """Return the commands of reliq and of the Redis transport, round by round, and then the CPU."""
    ours, theirs = found.values()
    for place in (0, 1):
        yield [one[place] for one in ours], [one[place] for one in theirs]


def http(setting: Setting) -> Iterator[Row]:
    found = http_service.figures(max(1.0, setting.scale * (12.0 if setting.full else 4.0)))
    row = Row("http: the service in one process", figures=found)
    row.checks = [
        Check("single enqueues, share of a bare FastAPI route with LPUSH", [found["share_of_bare"]], 0.8),
        Check("MB with 1,000 long polls", [found["megabytes_with_them"]], 80, at_least=False),
    ]
    row.notes = [f"{name}: {value:,}" for name, value in found.items()]
    yield row


def away(_: Setting) -> Iterator[Row]:
    """Each read of each surface while a node is dead or a slot is half moved: a table that a test has."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", _SURFACES]
    process = subprocess.run(command, check=False, cwd=BENCH.parent, capture_output=True, text=True)
    said = [line for line in process.stdout.splitlines() if " in " in line and ("passed" in line or "failed" in line)]
    row = Row("away: each surface, each fault")
    row.checks = [Check("exit code of the test", [float(process.returncode)], 0, at_least=False)]
    row.notes = [f"pytest {_SURFACES}: {said[-1] if said else process.stderr.strip()[-200:]}"]
    yield row


def planned(_: Setting) -> Iterator[Row]:
    """`reliq size --check`: the computation for a tenth of a load beside a run of it."""
    compared = sized.compared(_LOAD, Table(COSTS.read_text(encoding="utf-8")), sized.run(_LOAD))
    tried, computed = compared.tried, compared.computed
    row = Row("size: a tenth of a load, measured / computed")
    row.checks = [
        Check("handled / sent", [tried.handled / tried.sent], 1.0),
        Check("Redis CPU", [tried.redis_cpu / computed.redis], 1.25, at_least=False),
        Check("file", [tried.file / computed.file], 1.25, at_least=False),
        Check("memory of a message", [tried.waiting / compared.waiting], 1.25, at_least=False),
    ]
    row.notes = str(compared).splitlines()
    yield row
