"""Time until a killed worker's message runs elsewhere, and delay of a due message.

    python bench/faults.py [--kills 20] [--delayed 200]

Two real worker processes on an embedded Redis, lease 15 s (the default): what is noticed sooner is noticed by the
connection that is gone.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.protocol.workers import every_worker

ROOT = Path(__file__).resolve().parents[1]
QUEUE = "bench"
APP = f"""
import os, time, reliq
app = reliq.Reliq()
log = os.open(os.environ["BENCH_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@app.handler({QUEUE!r})
def work(message):
    os.write(log, f"{{message.id}} {{os.getpid()}} {{time.time()}}\\n".encode())
    if message.body == b"hold":
        while not message.redelivered and not message.lost:
            time.sleep(0.01)
"""


def start(folder: Path, url: str) -> subprocess.Popen:
    paths = os.pathsep.join(str(ROOT / part) for part in ("", "api", "monitor"))
    environment = {**os.environ, "PYTHONPATH": paths, "RELIQ_URL": url, "BENCH_LOG": str(folder / "log")}
    command = [sys.executable, "-m", "reliq", "worker", "bench_app", "--quiet"]
    return subprocess.Popen(command, cwd=folder, env=environment)


def runs(folder: Path, identity: str) -> list[tuple[int, float]]:
    log = folder / "log"
    lines = (line.split() for line in log.read_text().splitlines()) if log.exists() else ()
    return [(int(pid), float(at)) for name, pid, at in lines if name == identity]


def until(condition, timeout=60.0):
    end = time.monotonic() + timeout
    while not (answer := condition()):
        if time.monotonic() > end:
            raise SystemExit("gave up waiting")
        time.sleep(0.005)
    return answer


def known(app: reliq.Reliq, workers: list[subprocess.Popen]) -> bool:
    """Return whether all of these processes say that they are workers."""
    named = {one.process.pid for one in app.store.run(every_worker()) if one.process}
    return {one.pid for one in workers} <= named


def recoveries(app: reliq.Reliq, folder: Path, kills: int) -> list[float]:
    """Return the seconds from each kill of a worker until another one has its message."""
    queue, url = app.queue(QUEUE), app.url
    workers = [start(folder, url), start(folder, url)]
    until(lambda: known(app, workers))
    time.sleep(3)
    found = []
    try:
        for _ in range(kills):
            identity = queue.send("hold")
            pid, _ = until(lambda identity=identity: runs(folder, identity))[0]
            victim = next(worker for worker in workers if worker.pid == pid)
            killed = time.time()
            victim.kill()
            victim.wait()
            workers.remove(victim)
            second = until(lambda identity=identity: runs(folder, identity)[1:])[0]
            found.append(second[1] - killed)
            workers.append(start(folder, url))
            until(lambda: known(app, workers))
            time.sleep(2)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait()
    return found


def lateness(queue: reliq.Queue, folder: Path, url: str, count: int) -> list[float]:
    worker, due = start(folder, url), {}
    try:
        until(lambda: queue.stats().consumers == 1)
        for place in range(count):
            delay = 0.3 + 0.01 * place
            due[queue.send("now", delay=delay)] = time.time() + delay
        until(lambda: queue.stats().counters.get("acked", 0) >= count)
    finally:
        worker.terminate()
        worker.wait()
    return [runs(folder, identity)[0][1] - at for identity, at in due.items()]


def show(what: str, values: list[float]) -> None:
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(f"{what}: n={len(values)} median={statistics.median(values):.3f} s  p99={p99:.3f} s  max={ordered[-1]:.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--delayed", type=int, default=200)
    options = parser.parse_args()
    with EmbeddedRedis() as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "bench_app.py").write_text(APP)
        app = reliq.Reliq(server.url)
        queue = app.queue(QUEUE)
        if options.delayed:
            show("late", lateness(queue, folder, server.url, options.delayed))
        if options.kills:
            show("kill -9 until running elsewhere", recoveries(app, folder, options.kills))


if __name__ == "__main__":
    main()
