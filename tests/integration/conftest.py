import asyncio
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import redis

import reliq
from reliq import aio
from tests.support.handlers import KINDS
from tests.support.ports import free_port
from tests.support.sync_adapter import Blocking


@pytest.fixture(params=["sync", "asyncio"])
def face(request, url):
    """A function that makes an application of either face."""
    if request.param == "sync":
        made: list[Any] = []

        def make(*arguments, **options):
            made.append(reliq.Reliq(*(arguments or (url,)), **options))
            return made[-1]

        yield make
        for app in made:
            app.close()
        return
    with asyncio.Runner() as runner:
        made = []

        def make_blocking(*arguments, **options):
            made.append(Blocking(aio.Reliq(*(arguments or (url,)), **options), runner))
            return made[-1]

        yield make_blocking
        for app in made:
            app.close()


@pytest.fixture(params=KINDS)
def kind(request):
    """The way in which a worker runs the handlers of a test."""
    return request.param


@pytest.fixture
def client(redis_server):
    with redis.Redis(port=redis_server.port) as client:
        yield client


@pytest.fixture
def queue(face):
    return face().queue("q")


@pytest.fixture(scope="session")
def postgresql():
    """A server of our own in a temporary folder; as the user postgres, since it refuses to run as root."""
    binaries = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    root = os.geteuid() == 0
    if not binaries or (root and shutil.which("runuser") is None):
        pytest.skip("no PostgreSQL")
    with tempfile.TemporaryDirectory(prefix="reliq-pg-") as folder:
        if root:
            shutil.chown(folder, "postgres")

        def run(program: str, *arguments: str) -> None:
            command = [str(binaries[-1].parent / program), "-D", f"{folder}/data", *arguments]
            as_user = ["runuser", "-u", "postgres", "--"] if root else []
            subprocess.run([*as_user, *command], check=True, cwd=folder, stdout=subprocess.DEVNULL, timeout=60)

        port = free_port()
        run("initdb", "-A", "trust", "-U", "postgres", "-N")
        settings = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off"
        run("pg_ctl", "-w", "-l", f"{folder}/log", "-o", settings, "start")
        try:
            yield f"postgresql+psycopg://postgres@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
