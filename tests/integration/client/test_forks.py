"""Forks that run none of Python's at-fork hooks: uWSGI's workers, and a C library's fork(). Nothing sent is lost."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forking import CHILDREN, SENDS, all_ready, environment, send_from_all_children, serving_wsgi

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
    with uwsgi(url) as address:
        ids = send_from_all_children(address)
    assert len(set(ids)) == len(ids)
    assert all_ready(app) == sorted(ids)


def uwsgi(url):
    program = shutil.which("uwsgi", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if program is None:
        pytest.skip("no uwsgi")
    return serving_wsgi(
        url, program, "--need-app", "--http-socket", "ADDRESS", "--disable-logging", "--die-on-term",
        "--wsgi-file", str(Path(__file__).with_name("wsgi_app.py")), "--master", "--processes", str(CHILDREN),
    )  # fmt: skip
