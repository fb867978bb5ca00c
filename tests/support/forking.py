"""Servers and pools that fork the application: what they run with, and what their children sent."""

import concurrent.futures
import contextlib
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import reliq
from tests.support.ports import free_port
from tests.support.workers import ROOT, Child, eventually

CHILDREN, SENDS = 4, 25


def environment(url: str) -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "monitor"), str(ROOT / "api"), str(_packages())]
    return {**os.environ, "RELIQ_URL": url, "PYTHONPATH": os.pathsep.join(paths), "PYTHONFAULTHANDLER": "1"}


def _packages() -> Path:
    """Where redis-py is installed: uWSGI embeds an interpreter that does not know our environment."""
    import redis

    return Path(redis.__file__).parent.parent


@contextlib.contextmanager
def serving_wsgi(url: str, *command: str) -> Iterator[str]:
    """The address of a WSGI server of the application; ADDRESS in its command stands for a free host:port."""
    address = f"127.0.0.1:{free_port()}"
    child: Child[bytes] = Child(
        [part.replace("ADDRESS", address) for part in command],
        cwd=ROOT,
        env=environment(url),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )

    def up() -> str:
        assert child.poll() is None, child.stderr.read().decode()
        with contextlib.suppress(OSError):
            return read(f"http://{address}/first")
        return ""

    try:
        eventually(up, timeout=60, what=f"{command[0]} answers")
        yield f"http://{address}/"
    finally:
        child.terminate()
        child.communicate(timeout=60)


def read(address: str) -> str:
    with urllib.request.urlopen(address, timeout=30) as answer:
        body: bytes = answer.read()
    return body.decode()


def send_from_all_children(address: str) -> list[str]:
    """Make requests that send a message each until every child has sent; return the ids that they answered."""
    ids, children = [read(address + "first")], set()

    def send_some() -> bool:
        with concurrent.futures.ThreadPoolExecutor(2 * CHILDREN) as threads:
            for answer in threads.map(lambda _: read(address), range(SENDS)):
                child, identity = answer.split()
                children.add(child)
                ids.append(identity)
        return len(children) >= CHILDREN and len(ids) > CHILDREN * SENDS

    eventually(send_some, timeout=60, what="requests to all children")
    return ids


def all_ready(app: reliq.Reliq) -> list[str]:
    """Take every message out of queue orders; return their ids, sorted."""
    with app.queue("orders").consumer() as consumer:
        ids = []
        while messages := consumer.claim(limit=1000):
            ids += [message.id for message in messages]
            consumer.ack(*messages)
    return sorted(ids)
