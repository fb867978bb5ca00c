"""Commands that read standard input stop at the limit: an endless pipe takes neither memory nor time."""

import contextlib
import json
import os
import resource
import subprocess
import sys

import pytest

from reliq.contract import values
from tests.support.commands import run
from tests.support.workers import ROOT, Child, eventually

LIMIT = values.BODY_LIMIT


@pytest.fixture
def start(url):
    """Start a command with a pipe of the test as standard input and at most 1 GiB of memory."""
    running = []

    def started(*arguments):
        child: Child[bytes] = Child(
            [sys.executable, "-m", "reliq", *arguments, "--url", url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "monitor", ROOT / "api")))},
        )  # fmt: skip
        resource.prlimit(child.pid, resource.RLIMIT_AS, (1 << 30, 1 << 30))
        running.append(child)
        return child

    yield started
    for child in running:
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout, child.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


def pour(child, data):
    """Write without end, until the reader is gone; how many bytes that were."""
    written = 0
    try:
        while written < 1 << 32:
            written += os.write(child.stdin.fileno(), data)
    except BrokenPipeError:
        return written
    raise AssertionError("it has read everything")


@pytest.mark.parametrize(
    "command", [("send", "q"), ("send", "q", "-"), ("publish", "order.created"), ("send", "q", "--lines")]
)
def test_an_endless_body_is_refused_at_the_limit(app, start, command):
    app.subscribe("q", "order.#")
    child = start(*command)
    assert pour(child, b"x" * 65536) < LIMIT + (1 << 20)
    assert child.wait(20) == 2
    said = child.stderr.read().decode()
    assert f"more than {LIMIT:,} bytes, the limit is {LIMIT:,} (--max-body)" in said
    assert "Traceback" not in said
    assert app.queue("q").stats().ready == 0


def test_endless_lines_are_sent_as_they_come(app, start):
    child = start("send", "q", "--lines")
    for _ in range(3):
        child.stdin.write(b"line\n" * 1000)
    child.stdin.flush()
    eventually(lambda: app.queue("q").stats().ready >= 2000)
    child.stdin.close()
    assert child.wait(20) == 0
    assert child.stdout.read() == b"3000 sent\n"
    assert app.queue("q").stats().ready == 3000


@pytest.mark.parametrize("buffered", ["", "1"])
def test_lines_whose_ids_nobody_reads_any_more_are_not_left_out_without_a_word(app, start, monkeypatch, buffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", buffered)
    child = start("send", "q", "--lines", "--json")
    child.stdout.close()
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(b"line\n" * 10_000)
        child.stdin.close()
    assert child.wait(20) == 1
    sent = app.queue("q").stats().ready
    assert sent < 10_000
    said = child.stderr.read().decode()
    assert said == f"reliq: the ids cannot be written: Broken pipe; {sent} lines were sent before\n"


def test_a_line_over_the_limit_is_named_and_what_came_before_is_sent(app, start):
    child = start("send", "q", "--lines", "--json")
    printed, said = child.communicate(b"first\r\n\nthird\n" + b"x" * (LIMIT + 1) + b"\nfifth\n")
    assert child.returncode == 2
    assert b"line 4 of standard input: the body has more than" in said
    assert b"2 lines were sent before" in said
    assert len(json.loads(printed)) == 2
    with app.queue("q").consumer() as consumer:
        assert [message.body for message in consumer.claim(limit=10)] == [b"first", b"third"]


def test_blank_lines_are_skipped_and_counted(app, url):
    done = run("send", "q", "--lines", input="first\n\r\n \t\n  second \n\n", url=url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2 sent\n", "reliq: 3 blank lines skipped\n")
    only = run("send", "q", "--lines", "--json", input="\n", url=url)
    assert (only.returncode, json.loads(only.stdout), only.stderr) == (0, [], "reliq: 1 blank line skipped\n")
    with app.queue("q").consumer() as consumer:
        assert [message.body for message in consumer.claim(limit=10)] == [b"first", b"  second "]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_a_body_and_a_line_of_just_the_limit_are_sent(app, url, end):
    whole = run("send", "q", input="x" * LIMIT, url=url)
    line = run("send", "q", "--lines", "--json", input="x" * LIMIT + end, url=url)
    assert (whole.returncode, line.returncode) == (0, 0)
    with app.queue("q").consumer() as consumer:
        messages = consumer.claim(limit=10)
    assert {message.id for message in messages} == {whole.stdout.strip(), *json.loads(line.stdout)}
    assert {len(message.body) for message in messages} == {LIMIT}


def test_no_lines_are_no_messages(url):
    done = run("send", "q", "--lines", "--json", input="", url=url)
    assert (done.returncode, json.loads(done.stdout)) == (0, [])


def test_a_body_beside_lines_is_refused(url):
    done = run("send", "q", "body", "--lines", input="", url=url)
    assert done.returncode == 2
    assert "either a body or --lines" in done.stderr


def test_the_limit_is_an_option_a_variable_and_at_most_64_mib(app, url, monkeypatch):
    assert run("send", "q", "--max-body", "2MiB", input="x" * (LIMIT + 1), url=url).returncode == 0
    done = run("send", "q", "--max-body", "65MiB", input="x", url=url)
    assert (done.returncode, "--max-body is '65MiB': it must be from 1 byte to 64 MiB" in done.stderr) == (2, True)
    monkeypatch.setenv("RELIQ_MAX_BODY", "3")
    done = run("send", "q", "four", url=url)
    assert (done.returncode, "the body has 4 bytes, the limit is 3 (max_body)" in done.stderr) == (2, True)
    assert app.queue("q").stats().ready == 1
