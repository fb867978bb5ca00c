"""Forks while messages are held: a child that returns or exits does nothing with what its parent holds."""

import collections
import json
import os
import subprocess
import sys

import pytest

from tests.support.forking import environment
from tests.support.workers import eventually, process

MESSAGES = 30

WORKER = """
import ctypes, json, os, sys
import reliq

app = reliq.Reliq()
if os.environ["FORK"] == "libc":
    # A thread that has waited for the GIL this long asks for it. After a fork without Python's hooks, CPython's next
    # release of the GIL in the child waits for that thread, which is not there, for ever (drop_gil in ceval_gil.h).
    sys.setswitchinterval(60)

def fork():
    return ctypes.PyDLL(None).fork() if os.environ["FORK"] == "libc" else os.fork()

def work(message):
    with open("runs", "a") as runs:
        print(json.dumps([os.getpid(), message.json()]), file=runs)
    if message.json() % 5 == 0:
        child = fork()
        if child:
            os.waitpid(child, 0)
        elif os.environ["END"] == "exit":
            sys.exit(3)

if os.environ["KIND"] == "async":
    @app.handler("orders")
    async def handle(message):
        work(message)
else:
    app.handler("orders")(work)
"""


@pytest.mark.parametrize("fork", ["os", "libc"])
@pytest.mark.parametrize("end", ["exit", "return"])
@pytest.mark.parametrize("kind", ["inline", "threads", "async"])
def test_a_child_of_a_handler_ends_with_the_handler(app, url, tmp_path, kind, end, fork):
    (tmp_path / "shop.py").write_text(WORKER)
    app.queue("orders").send_many(list(range(MESSAGES)))
    threads = ["--threads", "3"] if kind == "threads" else []
    surroundings = {"KIND": kind, "END": end, "FORK": fork, "RELIQ_URL": url}
    with process("worker", "shop:app", *threads, folder=tmp_path, **surroundings) as worker:
        eventually(lambda: app.queue("orders").stats().counters.get("acked") == MESSAGES)
        worker.terminate()
        assert worker.wait(20) == 0
        runs = [json.loads(line) for line in (tmp_path / "runs").read_text().splitlines()]
        assert collections.Counter(number for _, number in runs) == dict.fromkeys(range(MESSAGES), 1)
        assert {pid for pid, _ in runs} == {worker.pid}
        with pytest.raises(ProcessLookupError):
            os.killpg(worker.pid, 0)  # no child lives on


BY_HAND = """
import os, sys
import reliq

queue = reliq.Reliq().queue("orders")
with queue.consumer() as consumer:
    held = consumer.claim(limit=3)
    with queue.prepare("with a transaction") as prepared:
        child = os.fork()
        if child == 0:
            for use in (lambda: consumer.claim(), lambda: consumer.ack(*held)):
                try:
                    use()
                except reliq.InvalidSetting as error:
                    assert "forked" in str(error)
                else:
                    os._exit(4)
            if sys.argv[1] == "exit":
                sys.exit(3)
        elif sys.argv[1] == "exit":
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        else:
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        if child:
            assert queue.stats().ready == 0
    if child:
        assert queue.stats().ready == 1
        consumer.ack(*held)
"""


@pytest.mark.parametrize("end", ["exit", "return"])
def test_a_child_that_leaves_the_blocks_of_its_parent_settles_and_decides_nothing(app, url, end):
    app.queue("orders").send_many([1, 2, 3])
    command = [sys.executable, "-c", BY_HAND, end]
    done = subprocess.run(command, env=environment(url), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert app.queue("orders").stats().counters["acked"] == 3
