"""A rolling upgrade: processes of the version before and of this one share a Redis, and no message is lost."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import reliq
from reliq import ops
from reliq.cli import main
from reliq.model.keys import QueueKeys
from tests.integration.worker.mixed_app import SIZES, body_of
from tests.support.workers import ROOT, eventually, working
from tools.versions import sources

BEFORE = "b12afcc"  #: the last commit that stored every body in its element
NEW = ROOT


@pytest.fixture(scope="session")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the version before, from the history of this repository."""
    try:
        return sources(BEFORE, tmp_path_factory.mktemp("before"))
    except LookupError as error:
        pytest.skip(str(error))


class Processes:
    """Processes of either version; all are ended with the test."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        (folder / "mixed_app.py").write_bytes(Path(__file__).with_name("mixed_app.py").read_bytes())

    def start(self, version: Path, log: str, *command: str) -> subprocess.Popen[bytes]:
        """Start a Python command with this version; it reports to the file `log`."""
        paths = [version, version / "monitor", version / "api", self._folder]
        environment = {
            **os.environ, "RELIQ_URL": self._url, "MIXED_LOG": str(self._folder / log),
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
        }  # fmt: skip
        with (self._folder / "errors").open("ab") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", *command], cwd=self._folder, env=environment, stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL, stderr=errors, start_new_session=True,
            )  # fmt: skip
        self._running.append(process)
        return process

    def worker(self, version: Path, *options: str) -> subprocess.Popen[bytes]:
        options = ("--no-monitor", "--lease", "2s", "--quiet", *options)
        return self.start(version, "handled", "reliq", "worker", "mixed_app:app", *options)

    def monitor(self, version: Path) -> subprocess.Popen[bytes]:
        return self.start(version, "unused", "reliq", "monitor", "--quiet", "--reconnect-grace", "0.5s")

    def producer(self, version: Path, label: str) -> subprocess.Popen[bytes]:
        return self.start(version, "answered", "mixed_app", label)

    def script(self, version: Path, source: str) -> subprocess.Popen[bytes]:
        (self._folder / "script.py").write_text(source)
        return self.start(version, "handled", "script")

    def lines(self, log: str) -> list[str]:
        """What the processes have reported."""
        path = self._folder / log
        return path.read_text().splitlines() if path.exists() else []

    def errors(self) -> str:
        return (self._folder / "errors").read_text()

    def end(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def processes(url: str, tmp_path: Path) -> Iterator[Processes]:
    processes = Processes(url, tmp_path)
    yield processes
    processes.end()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(30)


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(30)


def end_of_input(process: subprocess.Popen[bytes]) -> None:
    """End a producer after the call that it has under way."""
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == 0


def settled(queue: reliq.Queue) -> bool:
    stats = queue.stats()
    return not (stats.ready or stats.processing or stats.delayed)


@pytest.mark.long
def test_workers_and_monitors_are_replaced_under_load_then_the_producers(app, url, old, processes):
    queue = app.queue("q")
    queue.configure(max_deliveries=100)
    log = processes.lines

    def advanced(by: int = 200) -> None:
        """Let the load go on between two replacements: wait until so many more messages are handled."""
        target = len(log("handled")) + by
        eventually(lambda: len(log("handled")) >= target, timeout=30, what=processes.errors())

    def answering(*labels: str) -> None:
        """Wait until each of these producers has sent something."""
        eventually(lambda: set(labels) <= {name.partition("-")[0] for name in log("answered")}, timeout=30)

    producers = [processes.producer(old, f"old{number}") for number in range(2)]
    workers = [processes.worker(old) for _ in range(3)]
    monitors = [processes.monitor(old) for _ in range(2)]
    answering("old0", "old1")
    advanced()
    replacements: list[Callable[[subprocess.Popen[bytes]], None]] = [stop, kill, stop]
    for place, end in enumerate(replacements):
        end(workers[place])
        workers[place] = processes.worker(NEW)
        advanced()
        if place < len(monitors):
            replacements[place + 1](monitors[place])  # kill one, stop the other
            monitors[place] = processes.monitor(NEW)
    kill(producers[0])
    producers[0] = processes.producer(NEW, "new0")
    advanced()
    kill(workers[0])
    workers[0] = processes.worker(NEW)
    kill(monitors[0])
    monitors[0] = processes.monitor(NEW)
    end_of_input(producers[1])
    producers[1] = processes.producer(NEW, "new1")
    answering("new0", "new1")
    advanced()
    kill(producers[0])
    end_of_input(producers[1])
    eventually(lambda: settled(queue), timeout=30, what=processes.errors())
    for process in (*workers, *monitors):
        stop(process)

    answered = set(log("answered"))
    assert answered <= set(log("handled")), "lost"
    stats = queue.stats()
    assert (stats.ready, stats.processing, stats.delayed, stats.dead) == (0, 0, 0, 0)
    assert stats.counters["acked"] == stats.counters["enqueued"]
    assert bodies(app) == 0
    assert main.main(["audit", "--url", url]) == 0


def bodies(app: reliq.Reliq) -> int:
    """How many bodies are stored apart from their messages."""
    return int(app.store.call(ops.command("HLEN", QueueKeys("q").bodies)))


def test_what_a_killed_consumer_of_the_version_before_held_is_taken_back(app, old, processes):
    queue = app.queue("q")
    queue.configure(max_deliveries=100)
    holder = processes.script(old, """
import sys
import mixed_app as m
m.app.queue("q").send_many([m.body_of(str(size), size) for size in m.SIZES])
with m.app.queue("q").consumer(lease="1s") as consumer:
    m.note(*(message.id for message in consumer.claim(10)))
    sys.stdin.read()
""")  # fmt: skip
    eventually(lambda: len(processes.lines("handled")) == len(SIZES), timeout=30, what=processes.errors())
    kill(holder)
    done = handled_by_this_version(app, len(SIZES))
    assert done == {str(size): size for size in SIZES}
    assert queue.stats().counters["reclaimed"] == len(SIZES)


def handled_by_this_version(app: reliq.Reliq, count: int) -> dict[str, int]:
    """Run a worker and a monitor until so many messages are acked; the size of each body by its name."""
    done: dict[str, int] = {}
    app.handler("q")(lambda message: done.update({message.body.decode().rstrip("."): len(message.body)}))
    with working(app, monitor=True):
        eventually(lambda: app.queue("q").stats().counters.get("acked") == count)
    return done


def test_delayed_and_dead_messages_of_the_version_before_go_on(app, old, processes):
    queue = app.queue("q")
    writer = processes.script(old, """
import mixed_app as m
queue = m.app.queue("q")
queue.send_many([m.body_of(f"dead{size}", size) for size in m.SIZES])
with queue.consumer() as consumer:
    for message in consumer.claim(10):
        consumer.dead(message, "as it should")
    queue.send_many([m.body_of(f"retried{size}", size) for size in m.SIZES])
    for message in consumer.claim(10):
        consumer.retry(message, delay=0.1, error="as it should")
queue.send_many([m.body_of(f"delayed{size}", size) for size in m.SIZES], delay=0.1)
""")  # fmt: skip
    assert writer.wait(30) == 0, processes.errors()
    stats = queue.stats()
    assert (stats.dead, stats.delayed) == (2, 4)
    assert {len(letter.body) for letter in queue.dead.list()} == set(SIZES)
    assert queue.dead.redrive().redriven == len(SIZES)
    done = handled_by_this_version(app, 6)
    assert done == {f"{what}{size}": size for what in ("dead", "retried", "delayed") for size in SIZES}


def test_a_large_message_that_an_old_worker_cannot_read_is_dead_until_a_redrive_by_this_version(app, old, processes):
    queue = app.queue("q")
    identity = queue.send(body_of("large", SIZES[1]))
    worker = processes.worker(old)
    eventually(lambda: queue.stats().dead == 1, timeout=30, what=processes.errors())
    stop(worker)
    assert [letter.reason for letter in queue.dead.list()] == ["decode"]
    assert bodies(app) == 1, "its body waits for it"

    assert queue.dead.redrive().redriven == 1
    with queue.consumer() as consumer:
        (message,) = consumer.claim(10)
        assert (message.id, message.body.decode()) == (identity, body_of("large", SIZES[1]))
        consumer.ack(message)
    assert bodies(app) == 0
