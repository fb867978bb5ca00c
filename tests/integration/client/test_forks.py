"""Forks that run none of Python's at-fork hooks: uWSGI's workers, and a C library's fork(). Nothing sent is lost."""

import concurrent.futures
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.support.workers import ROOT, eventually

CHILDREN, SENDS = 4, 25

FORKS = """
import asyncio, ctypes, os, sys
import reliq
from reliq import aio

children, sends = int(sys.argv[2]), int(sys.argv[3])
app = reliq.Reliq()
queue = app.queue("orders")
runner = asyncio.Runner()
if sys.argv[1] == "asyncio":
    queue = aio.Reliq().queue("orders")
    send = lambda body: runner.run(queue.send(body))
    send_many = lambda bodies: runner.run(queue.send_many(bodies))
else:
    send, send_many = queue.send, queue.send_many

def say(ids):
    os.write(1, "".join(f"{one}\\n" for one in ids).encode())

say([send("before the forks")])
pids = []
for _ in range(children):
    pid = ctypes.PyDLL(None).fork()
    if pid == 0:
        runner = asyncio.Runner()  # an event loop cannot be shared
        for number in range(sends):
            say([send(number)])
        say(send_many(range(sends)))
        os._exit(0)
    pids.append(pid)
for number in range(sends):
    say([send(number)])
say(send_many(range(sends)))
for pid in pids:
    assert os.waitpid(pid, 0)[1] == 0
os._exit(0)
"""


def environment(url):
    paths = [str(ROOT), str(ROOT / "monitor"), str(ROOT / "api"), str(packages())]
    return {**os.environ, "RELIQ_URL": url, "PYTHONPATH": os.pathsep.join(paths)}


def packages():
    """Where redis-py is installed: uWSGI embeds an interpreter that does not know our environment."""
    import redis

    return Path(redis.__file__).parent.parent


@pytest.mark.parametrize("face", ["sync", "asyncio"])
def test_a_fork_through_libc_sends_under_names_of_its_own(app, url, face):
    command = [sys.executable, "-c", FORKS, face, str(CHILDREN), str(SENDS)]
    done = subprocess.run(command, env=environment(url), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    ids = done.stdout.split()
    assert len(ids) == 1 + (CHILDREN + 1) * 2 * SENDS
    assert len(set(ids)) == len(ids)
    assert all_ready(app) == sorted(ids)


def test_uwsgi_workers_lose_nothing(app, url):
    with uwsgi(url, "--master", "--processes", str(CHILDREN)) as address:
        ids, workers = [read(address + "first")], set()

        def work():
            with concurrent.futures.ThreadPoolExecutor(2 * CHILDREN) as threads:
                for answer in threads.map(lambda _: read(address), range(SENDS)):
                    pid, identity = answer.split()
                    workers.add(pid)
                    ids.append(identity)
            return len(workers) == CHILDREN and len(ids) > CHILDREN * SENDS

        eventually(work, timeout=60, what="requests to all workers")
    assert len(set(ids)) == len(ids)
    assert all_ready(app) == sorted(ids)


def all_ready(app):
    with app.queue("orders").consumer() as consumer:
        ids = []
        while messages := consumer.claim(limit=1000):
            ids += [message.id for message in messages]
            consumer.ack(*messages)
    return sorted(ids)


def read(address):
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.read().decode()


@contextlib.contextmanager
def uwsgi(url, *options):
    program = shutil.which("uwsgi", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None:
        pytest.skip("no uwsgi")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        program, "--need-app", "--http-socket", f"127.0.0.1:{port}", "--disable-logging", "--die-on-term",
        "--wsgi-file", str(Path(__file__).with_name("wsgi_app.py")), *options,
    ]  # fmt: skip
    child = subprocess.Popen(command, env=environment(url), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    address = f"http://127.0.0.1:{port}/"

    def up():
        assert child.poll() is None, child.stderr.read().decode()
        with contextlib.suppress(OSError):
            return read(address + "first")
        return ""

    try:
        eventually(up, timeout=60, what="uwsgi answers")
        yield address
    finally:
        child.terminate()
        child.communicate(timeout=30)
