"""Each command of each runbook runs as it is typed: by the command line of this checkout, on a real Redis."""

import re
import shlex
from pathlib import Path

import pytest

import reliq
from reliq.embedded import EmbeddedRedis
from reliq.ops import command
from tests.support.commands import run
from tests.support.workers import ROOT

RUNBOOKS = sorted((ROOT / "docs" / "runbooks").glob("*.md"))
SERVICES = ("api", "monitor", "worker")  #: run until they are stopped: test_runbooks parses them


def typed(page: Path, program: str) -> list[list[str]]:
    """Return the arguments of each command of this program that a page has, in text and in blocks."""
    text = page.read_text(encoding="utf-8")
    lines = re.findall(rf"(?:`|^\s*\$ ){program} ([^`\n]+)", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


@pytest.fixture(scope="module")
def server():
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def emergency(server):
    """A queue named as in the runbooks, with whatever their commands are about."""
    app = reliq.Reliq(server.url)
    app.store.call(command("FLUSHALL"))
    queue = app.queue("QUEUE")
    queue.send("x", id="ID")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        consumer.dead(message, "the customer is gone")
    queue.send("TEXT", headers={"kind": "ready"})
    queue.send("z", delay="1h")
    app.subscribe("QUEUE", "KEY")
    app.schedules.add("NAME", "1h", "QUEUE", "tick")
    yield app
    app.close()


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_every_command_of_a_runbook_works_as_it_is_typed(emergency, page):
    for arguments in typed(page, "reliq"):
        if arguments[0] not in SERVICES:
            done = run(*arguments, url=emergency.url)
            assert done.returncode == 0, f"reliq {shlex.join(arguments)}: {done.stderr}"


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda page: page.stem)
def test_every_command_of_redis_in_a_runbook_is_one_that_redis_knows(emergency, page):
    for arguments in typed(page, "redis-cli"):
        if not arguments[0].startswith("-"):
            emergency.store.call(command(*("-1" if one == "-N" else one for one in arguments)))
