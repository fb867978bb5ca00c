"""What starting costs, and whether a worker grows."""

import os
import subprocess
import sys
import time

import psutil

import reliq
from bench.suite.contestants import BENCH
from bench.suite.harness import Check, Row, Setting, fresh_redis
from reliq.model.keys import QueueKeys

_PATHS = os.pathsep.join(str(BENCH.parent / part) for part in (".", "monitor", "api"))
_IMPORT = "import time; began = time.perf_counter(); import reliq; print(time.perf_counter() - began)"
_BATCH = 10_000


def _run(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": _PATHS}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, check=True, capture_output=True, text=True
    ).stdout


def start_up(setting: Setting) -> Row:
    times = 5 * setting.rounds
    imports = [float(_run("-c", _IMPORT)) * 1000 for _ in range(times)]
    helps = []
    for _ in range(times):
        began = time.perf_counter()
        _run("-m", "reliq", "--help")
        helps.append((time.perf_counter() - began) * 1000)
    row = Row("start-up")
    row.checks = [
        Check("import reliq, ms", imports, 100, at_least=False),
        Check("reliq --help, ms", helps, 250, at_least=False),
    ]
    return row


def worker_memory(setting: Setting) -> Row:
    """Its resident memory after a tenth of the messages, and after all."""
    messages = max(10 * _BATCH, setting.volume(400_000, 5_000_000))
    with fresh_redis() as (server, client):
        script = str(BENCH / "contestants" / "with_reliq.py")
        environment = {**os.environ, "PYTHONPATH": _PATHS}
        worker = subprocess.Popen(
            [sys.executable, script, "consume", server.url, str(messages + 1)],
            env=environment, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        app, keys = reliq.Reliq(server.url), QueueKeys("bench")
        queue, sizes = app.queue("bench"), []
        for start in range(0, messages, _BATCH):
            queue.send_many(["x" * 200] * _BATCH)
            while int(client.hget(keys.counters, "acked") or 0) < start + _BATCH // 2:
                time.sleep(0.005)
            sizes.append(psutil.Process(worker.pid).memory_info().rss / 2**20)
        app.close()
        worker.terminate()
        worker.wait()
    early, late = sizes[len(sizes) // 10], sizes[-1]
    row = Row(f"worker memory after {messages:,} messages")
    row.checks = [Check("growth since a tenth of them", [abs(late / early - 1)], 0.05, at_least=False)]
    row.notes = [f"{early:.1f} MiB after {messages // 10:,}, {late:.1f} MiB after all, at most {max(sizes):.1f}"]
    return row
