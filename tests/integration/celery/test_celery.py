"""Celery with its workers on reliq: canvas, control, events, beat, Flower, kills and dead letters."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import celery
import pytest

import reliq
from reliq.embedded import EmbeddedRedis
from tests.integration.celery.workers import APP, Process, environment, send, signature, working
from tests.support.workers import eventually

pytestmark = pytest.mark.celery


def test_results_canvas_and_retries(app: reliq.Reliq, broker: str, client: Any) -> None:
    with working(broker):
        results = [send(client, "add", number, 1) for number in range(50)]
        assert [one.get(timeout=20) for one in results] == list(range(1, 51))
        sums = celery.group(signature(client, "add", number, number) for number in range(10))
        assert celery.chord(sums, app=client)(signature(client, "total")).get(timeout=20) == 90
        chain = celery.chain(signature(client, "add", 1, 2), signature(client, "add", 10), app=client)
        assert chain.apply_async().get(timeout=20) == 13
        assert send(client, "stubborn").get(timeout=20) == 2
    stats = app.queue("celery").stats()
    assert (stats.ready, stats.processing, stats.delayed, stats.dead) == (0, 0, 0, 0)


def test_control_and_events(broker: str, client: Any) -> None:
    with working(broker, "-c", "1", "-E") as worker:
        inspect = client.control.inspect(timeout=2)
        assert inspect.ping() == {"one@test": {"ok": "pong"}}
        assert inspect.ping() == {"one@test": {"ok": "pong"}}
        running = send(client, "sleep", 30)
        (active,) = eventually(lambda: inspect.active()["one@test"])
        assert active["id"] == running.id
        seen: list[str] = []

        def see(event: Any) -> None:
            if not seen:
                client.control.revoke(running.id, terminate=True, signal="SIGKILL")
            seen.append(event["type"])
            receiver.should_stop = event["type"] == "task-revoked"

        with client.connection() as connection:
            receiver = client.events.Receiver(connection, handlers={"*": see})
            receiver.capture(limit=None, timeout=20)
        assert seen[-1] == "task-revoked"
        client.control.shutdown()
        assert worker.process.wait(timeout=20) == 0


def test_workers_find_each_other(broker: str, client: Any) -> None:
    """Mingle and gossip: exchanges that reach each worker."""
    with working(broker, "-c", "1"), working(broker, "-c", "1", name="two") as two:
        two.until_logged("mingle: sync with 1 nodes")
        assert set(client.control.ping(timeout=2)[0]) <= {"one@test", "two@test"}
        eventually(lambda: len(client.control.inspect(timeout=1).ping() or ()) == 2)


def test_a_failed_task_is_a_dead_letter_with_its_traceback(app: reliq.Reliq, broker: str, client: Any) -> None:
    with working(broker):
        with pytest.raises(KeyError):
            send(client, "fail").get(timeout=20)
        (letter,) = eventually(lambda: list(app.queue("celery").dead.list()))
        assert (letter.reason, letter.headers["task"]) == ("rejected", f"{APP}.fail")
        assert letter.errors[-1].error_class == "KeyError"
        assert 'raise KeyError("no such order")' in letter.errors[-1].text
        app.queue("celery").dead.redrive(error_class="KeyError")
        eventually(lambda: app.queue("celery").stats().counters.get("redriven") == 1)
        eventually(lambda: app.queue("celery").stats().dead == 1)


def test_a_task_that_kills_its_process_ends_in_the_dead_letters(app: reliq.Reliq, broker: str, client: Any) -> None:
    app.queue("celery").configure(max_deliveries=3)
    with working(broker):
        send(client, "die")
        others = [send(client, "add", number, 1) for number in range(10)]
        (letter,) = eventually(lambda: list(app.queue("celery").dead.list()), timeout=40)
        assert [one.get(timeout=20) for one in others] == list(range(1, 11))
    assert (letter.reason, letter.headers["task"]) == ("max_deliveries", f"{APP}.die")
    assert [one.error_class for one in letter.errors] == ["WorkerLostError"] * 3


def test_a_killed_worker_gives_its_task_to_another_long_before_its_lease_ends(
    broker: str, client: Any, tmp_path: Path
) -> None:
    """Its guard returns it: no lease ends, no grace is over. The pool of the killed worker does not run on."""
    path = tmp_path / "notes"
    long = '{"lease": 60, "reconnect_grace": 60}'
    with (
        working(broker, "-c", "1", TEST_OPTIONS=long) as one,
        working(broker, "-c", "1", name="two", TEST_OPTIONS=long) as two,
    ):
        send(client, "note", str(path), "task", 6.0)
        eventually(lambda: path.exists() and path.read_text())
        (pool,) = one.children if " begin " in one.log or _is_running(one) else two.children
        killed, other = (one, two) if pool in one.children else (two, one)
        os.kill(killed.process.pid, signal.SIGKILL)
        begun = time.monotonic()
        eventually(lambda: path.read_text().count("begin") == 2, timeout=40)
        took = time.monotonic() - begun
        assert took < 30  # on an idle machine 0.1 s: bench/celery.py
        eventually(lambda: path.read_text().count("end") == 1, timeout=40)
        assert other.process.poll() is None
    assert path.read_text().splitlines() == ["begin task", "begin task", "end task"]


def test_a_task_of_many_leases_runs_once(broker: str, client: Any, tmp_path: Path) -> None:
    """As one of three hours with the default lease; the solo pool has no thread free for heartbeats but reliq's."""
    path = tmp_path / "notes"
    short, one_each = '{"lease": 2}', ("--prefetch-multiplier", "1")
    with (
        working(broker, "-c", "1", *one_each, TEST_OPTIONS=short),
        working(broker, "-P", "solo", *one_each, name="two", TEST_OPTIONS=short),
    ):
        for text in ("first", "second"):
            send(client, "note", str(path), text, 7.0)
        eventually(lambda: path.exists() and path.read_text().count("begin") == 2)
        eventually(lambda: path.read_text().count("end") == 2, timeout=30)
    assert sorted(path.read_text().splitlines()) == ["begin first", "begin second", "end first", "end second"]


def _is_running(worker: Process) -> bool:
    return "received" in worker.log


def test_an_eta_is_kept_in_redis(app: reliq.Reliq, broker: str, client: Any, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with working(broker):
        result = send(client, "add", 1, 1, countdown=1.5)
        assert app.queue("celery").stats().delayed == 1
        begun = time.monotonic()
        assert result.get(timeout=20) == 2
        assert time.monotonic() - begun > 1.0
    assert not path.exists()


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["threads", "gevent"])
def test_pools_without_processes(app: reliq.Reliq, broker: str, client: Any, tmp_path: Path, pool: str) -> None:
    path = tmp_path / "notes"
    with working(broker, "-P", pool, "-c", "10") as worker:
        for number in range(10):
            send(client, "note", str(path), str(number), 1.0)
        eventually(lambda: path.exists() and path.read_text().count("begin") == 10)
        assert path.read_text().count("end") < 10  # at the same time
        eventually(lambda: app.queue("celery").stats().counters.get("acked") == 10)
        send(client, "note", str(path), "long", 60.0)
        eventually(lambda: "begin long" in path.read_text())
        worker.process.kill()
        eventually(lambda: app.queue("celery").stats().ready == 1)


@pytest.mark.parametrize("pool", ["threads", "solo"])
def test_a_cold_shutdown_lets_tasks_end_that_the_pool_cannot_end(
    app: reliq.Reliq, broker: str, client: Any, tmp_path: Path, pool: str
) -> None:
    path = tmp_path / "notes"
    with working(broker, "-P", pool, "-c", "1") as worker:
        result = send(client, "note", str(path), "one", 2.0)
        eventually(path.exists)
        worker.process.send_signal(signal.SIGQUIT)
        assert worker.process.wait(timeout=30) == 0
    assert result.state == "SUCCESS"
    stats = app.queue("celery").stats()
    assert (stats.ready, stats.processing, stats.dead) == (0, 0, 0)


@pytest.mark.slow
def test_an_outage_of_redis_stops_no_task_and_no_stop(url: str, tmp_path: Path) -> None:
    """The event loop goes on: what the worker holds is run, heartbeats are dropped, and SIGTERM is obeyed."""
    path = tmp_path / "notes"
    with EmbeddedRedis() as server, contextlib.ExitStack() as stack:
        broker = f"reliq+{server.url}"
        worker = stack.enter_context(working(broker, "-c", "1", TEST_BACKEND=url))
        code = f"from {APP} import note\nfor n in range(4): note.delay({str(path)!r}, str(n), 2.0)"
        subprocess.run([sys.executable, "-c", code], env=environment(broker), check=True)
        eventually(lambda: path.exists() and path.read_text())
        server.kill()
        eventually(lambda: path.read_text().count("end") == 4, timeout=30)
        worker.process.terminate()
        assert worker.process.wait(timeout=30) == 0


def test_beat_sends_what_is_due(app: reliq.Reliq, broker: str, client: Any, tmp_path: Path) -> None:
    script = tmp_path / "beating.py"
    script.write_text(
        "from tests.integration.celery.app import app, note\n"
        f"often = {{'task': note.name, 'schedule': 0.5, 'args': ('{tmp_path}/out', 'b')}}\n"
        "app.conf.beat_schedule = {'often': often}\n"
    )
    path = os.pathsep.join([str(tmp_path), environment(broker)["PYTHONPATH"]])
    beat = Process(broker, "beat", "-s", str(tmp_path / "schedule"), app="beating", PYTHONPATH=path)
    try:
        with working(broker):
            out = tmp_path / "out"
            eventually(lambda: out.exists() and out.read_text().count("end b") >= 3)
    finally:
        beat.end()


def test_flower_shows_workers_and_tasks(broker: str, client: Any) -> None:
    pytest.importorskip("flower")
    with working(broker, "-c", "1", "-E"):
        flower = Process(broker, "flower", "--address=127.0.0.1", "--port=0", FLOWER_UNAUTHENTICATED_API="true")
        try:
            address = f"http://127.0.0.1:{_port(flower)}"
            eventually(lambda: "one@test" in _json(f"{address}/api/workers?refresh=1"), timeout=30)
            result = send(client, "add", 20, 22)
            assert result.get(timeout=20) == 42
            task = eventually(lambda: _json(f"{address}/api/tasks").get(result.id), timeout=30)
            assert eventually(lambda: _json(f"{address}/api/tasks")[result.id]["state"] == "SUCCESS")
            assert task["name"] == f"{APP}.add"
        finally:
            flower.end()


def _json(address: str) -> Any:
    with urllib.request.urlopen(address, timeout=10) as answer:
        return json.load(answer)


def _port(process: Process) -> int:
    """The port that a server of this process listens at on the loopback interface."""
    import psutil

    def listening() -> list[int]:
        connections = psutil.Process(process.process.pid).net_connections(kind="tcp4")
        return [one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN]

    return int(eventually(listening, timeout=30)[0])
