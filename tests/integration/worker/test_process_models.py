"""Process models that fork by Python's os.fork, or start anew: nothing sent is lost, and no id is there twice."""

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.forking import CHILDREN, SENDS, all_ready, environment, send_from_all_children, serving_wsgi
from tests.support.workers import ROOT


# A child that is spawned imports all anew, and there are twice as many as run at a time.
@pytest.mark.parametrize(("method", "children"), [("fork", CHILDREN), ("spawn", 2), ("forkserver", 2)])
def test_children_of_multiprocessing_send_every_message_once(app, url, method, children):
    script = Path(__file__).with_name("multiprocessing_app.py")
    command = [sys.executable, str(script), method, str(children), str(SENDS)]
    printed, errors, status = output_of(command, url)
    assert status == 0, errors
    ids = printed.split()
    assert len(ids) > 2 * children * 2 * SENDS
    assert len(set(ids)) == len(ids)
    assert all_ready(app) == sorted(ids)
    assert app.queue("held").stats().counters["acked"] == 10


def output_of(command, url):
    """Return what the script prints, its errors, and its status; if it hangs, with what each process does."""
    script = subprocess.Popen(
        command, env=environment(url), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    try:
        return (*script.communicate(timeout=100), script.returncode)
    except subprocess.TimeoutExpired:
        family = [psutil.Process(script.pid), *psutil.Process(script.pid).children(recursive=True)]
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.send_signal(signal.SIGUSR1)
        with contextlib.suppress(subprocess.TimeoutExpired):
            script.wait(2)
        for one in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        return (*script.communicate(), "it hangs")


@pytest.mark.parametrize("kind", ["sync", "gthread"])
def test_children_of_gunicorn_with_preload_send_every_message_once(app, url, kind):
    pytest.importorskip("gunicorn")
    with gunicorn(url, "--worker-class", kind, "--threads", "4" if kind == "gthread" else "1") as address:
        ids = send_from_all_children(address)
    assert len(set(ids)) == len(ids)
    assert all_ready(app) == sorted(ids)


def gunicorn(url, *options):
    """Workers that its main process forks after it has loaded the application; each lives for a few requests."""
    return serving_wsgi(
        url, sys.executable, "-m", "gunicorn", "--preload", "--workers", str(CHILDREN), "--max-requests", "20",
        "--bind", "ADDRESS", "--log-level", "error", *options, "tests.integration.client.wsgi_app:application",
    )  # fmt: skip


def test_celery_with_its_prefork_pool(app, url, monkeypatch):
    pytest.importorskip("celery")
    broker = url.replace("/0", "/1")
    with celery_worker(url, broker):
        import celery

        sender = celery.Celery(broker=broker, backend=broker)
        results = [
            sender.send_task("tests.integration.worker.celery_app.send", [number]) for number in range(CHILDREN * SENDS)
        ]
        answers = [result.get(timeout=60) for result in results]
        sender.close()
    ids = [identity for _, (_, *identities) in answers for identity in identities]
    assert len({pid for pid, _ in answers}) >= CHILDREN
    assert len(set(ids)) == len(ids) == 3 * CHILDREN * SENDS
    assert all_ready(app) == sorted({first for _, (first, *_) in answers} | set(ids))


@contextlib.contextmanager
def celery_worker(url, broker):
    """A worker with children that live for a few tasks."""
    command = [
        sys.executable, "-m", "celery", "-A", "tests.integration.worker.celery_app", "worker", "--pool", "prefork",
        "--concurrency", str(CHILDREN), "--max-tasks-per-child", "10", "--loglevel", "ERROR", "--without-mingle",
        "--without-gossip",
    ]  # fmt: skip
    variables = environment(url) | {"BROKER": broker, "C_FORCE_ROOT": "1"}
    child = subprocess.Popen(
        command, cwd=ROOT, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
        assert child.poll() is None
    finally:
        child.terminate()
        child.wait(timeout=60)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, 9)
