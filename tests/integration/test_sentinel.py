"""A master found through its sentinel, and a failover under a running worker."""

import socket
import subprocess

import pytest

import reliq
from reliq.embedded import EmbeddedRedis, find_server
from reliq.ops import command
from reliq.store import Store
from tests.workers import eventually, working


@pytest.fixture
def master():
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def replica(master):
    with EmbeddedRedis(settings=("--replicaof", "127.0.0.1", str(master.port))) as server:
        eventually(lambda: info(server)["master_link_status"] == "up")
        yield server


@pytest.fixture
def sentinel_url(master, replica, tmp_path):
    """One sentinel that watches them, as a URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (tmp_path / "sentinel.conf").write_text(
        f"port {port}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {master.port} 1\n"
        "sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 5000\n"
    )
    log = (tmp_path / "log").open("wb")
    child = subprocess.Popen([find_server(), str(tmp_path / "sentinel.conf"), "--sentinel"], stdout=log, stderr=log)
    store = Store(f"redis://127.0.0.1:{port}/0", allow_eviction=True, connect=None)
    store._checked = True  # a sentinel is no server for queues, but it answers
    eventually(lambda: b"slaves=1" in store.call(command("INFO", "sentinel")))
    store.close()
    yield f"redis+sentinel://127.0.0.1:{port}/mymaster/0"
    child.terminate()
    child.wait()
    log.close()


def info(server):
    store = Store(server.url)
    store._checked = True
    answer = store.call(command("INFO", "replication")).decode()
    store.close()
    return dict(line.split(":", 1) for line in answer.splitlines() if ":" in line)


def test_the_master_is_found_through_its_sentinel(face, sentinel_url, master):
    face(sentinel_url).queue("q").send("x")
    assert face(master.url).queue("q").stats().ready == 1


def test_a_failover_under_a_running_worker_loses_nothing_that_was_replicated(sentinel_url, master, replica):
    app, handled = reliq.Reliq(sentinel_url, send_timeout="30s"), []
    app.handler("q")(lambda message: handled.append(message.json()))
    queue = app.queue("q")
    queue.pause()
    queue.send_many(range(300))
    eventually(lambda: info(replica)["slave_repl_offset"] == info(master)["master_repl_offset"])
    with working(app, monitor=True):
        eventually(lambda: queue.stats().consumers == 1)
        master.kill()
        eventually(lambda: info(replica)["role"] == "master", timeout=40)
        queue.resume()
        queue.send_many(range(300, 600))
        eventually(lambda: set(handled) == set(range(600)), timeout=60)
    app.close()
