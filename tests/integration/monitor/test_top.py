"""reliq top: what matters, in the width of the terminal."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from reliq.cli.top import Look, _show, frame, short, wrapped
from reliq.model.stats import Stats
from reliq.model.worker import Consuming, Process, WorkerProcess


def reading(queue="orders", ready=0, counters=None, **others):
    values = {
        "processing": 0,
        "delayed": 0,
        "dead": 0,
        "waiting": 0,
        "oldest_ready_age": 0.0,
        "consumers": 0,
        "paused": False,
        **others,
    }
    here = ready + values["processing"] + values["delayed"] + values["dead"]
    return Stats(queue, ready, counters={"enqueued": here} if counters is None else counters, **values)


def lines(*readings, before=(), elapsed=2.0, height=24, where="redis://localhost:6379/0"):
    looks = Look(before, 100.0, len(before)), Look(readings, 100.0 + elapsed, len(readings))
    return frame(*looks, where, height)


def row(line):
    return line.split()


def test_a_queue_is_a_row():
    one = reading(ready=12, processing=3, delayed=4, dead=5, oldest_ready_age=7.25, consumers=2)
    summary, _, head, orders = lines(one)
    assert row(head) == ["queue", "ready", "proc", "delayed", "dead", "oldest", "in/s", "out/s", "cons"]
    assert row(orders) == ["orders", "12", "3", "4", "5", "7.2s", "12", "0", "2"]
    assert summary == "1 queue  12 ready  5 dead  12/s in  0/s out  redis://localhost:6379/0"


def test_rates_are_between_two_looks():
    before = reading(ready=200, counters={"enqueued": 300, "acked": 90, "dead_lettered": 10})
    now = reading(ready=300, dead=1, counters={"enqueued": 500, "acked": 180, "dead_lettered": 20})
    *_, orders = lines(now, before=[before], elapsed=2.0)
    assert row(orders)[6:8] == ["100", "50"]


def test_queues_that_hold_most_come_first():
    names = [
        row(line)[0]
        for line in lines(
            reading("idle"), reading("full", ready=9), reading("dead", dead=3), reading("busy", processing=4)
        )[3:]
    ]
    assert names == ["full", "busy", "dead", "idle"]


def test_paused_queues_and_books_that_do_not_balance_are_marked():
    text = lines(reading("calm", paused=True), reading("torn", ready=2, counters={"enqueued": 5}))
    assert "calm‖" in text[4]
    assert "torn!" in text[3]
    assert "3 MISSING" in text[0]


@pytest.mark.parametrize("number", [0, 1, 999, 99_999, 12_345_678, 9_999_999_999])
@pytest.mark.parametrize("name", ["q", "n" * 23, "n" * 128])
def test_no_line_is_longer_than_80(number, name):
    one = reading(
        name,
        ready=number,
        processing=number,
        delayed=number,
        dead=number,
        oldest_ready_age=float(number),
        consumers=9999,
        paused=True,
        counters={},
    )
    for line in lines(one, where="redis://a-rather-long-host-name.example.internal:6379/0"):
        assert len(line) <= 80
        assert not re.search(r"\d\d{12}", line)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_a_name_for_which_the_terminal_has_no_room_has_lines_of_its_own_and_is_not_cut(width):
    long, short = reading("n" * 100, ready=7, paused=True), reading("orders", ready=5)
    looks = Look([], 100.0, 0), Look([long, short], 102.0, 2)
    _, _, head, *name, first, second = frame(*looks, "redis://h", 24, width)
    assert all(len(line) <= width for line in (head, *name, first, second))
    assert ("".join(name) or first.split()[0]) == "n" * 100 + "‖"
    assert bool(name) == (width < 200)
    assert "orders" in second
    if width >= 80:
        assert head.index("ready") + len("ready") == first.index(" 7 ") + 2 == second.index(" 5 ") + 2


WORKER = Process("a-host-with-a-rather-long-name.example.internal", 4242, "worker shop:app", 1, "0.1.0")


@pytest.mark.parametrize("width", [60, 80])
def test_in_a_narrow_terminal_nothing_is_cut_that_must_be_copied(width):
    torn = reading("orders", ready=99_999, dead=99_999, counters={"enqueued": 10_000_000})
    names = [f"a-queue-of-tenant-{number:03}" for number in range(5)]
    worker = WorkerProcess("c2d2765314945697b9f2f", WORKER, [Consuming(name, "c", process=WORKER) for name in names])
    away = "the messages of orders@partition.2c cannot be read: node 10.0.0.2:6379 does not answer"
    now = Look([torn], 102.0, 12_345, missing=[away], workers=[worker])
    text = frame(Look([], 100.0, 0), now, "redis://h", 24, width)
    assert all(len(line) <= width for line in text)
    (head,) = [line for line in text if line.startswith("queue ")]
    assert head.split() == ["queue", "ready", "proc", "delayed", "dead", "oldest", "in/s", "out/s", "cons"]
    whole = " ".join(line.strip() for line in text)
    assert "MISSING: reliq queue audit" in whole
    assert away in whole
    words = whole.split()
    assert "c2d27653" in words  # what `reliq worker pause` takes
    assert WORKER.host in words
    assert str(WORKER.pid) in words
    assert {name for name in names if name not in {word.strip(",") for word in words}} == set()


def test_an_error_is_shown_whole_in_a_narrow_terminal(capsys):
    said = "reliq top: Redis at redis://a-rather-long-host-name.example.internal:6379/0 cannot be reached"
    _show(wrapped(said, 60), 60)
    printed = re.sub(r"\x1b\[\S*?[A-Z]", "", capsys.readouterr().out)
    assert " ".join(line.strip() for line in printed.split("\r\n")).strip() == said


def test_more_queues_than_lines_are_counted():
    text = lines(*(reading(f"q{number}") for number in range(30)), height=10)
    assert len(text) == 10
    assert text[-1] == "... and 24 more queues"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.25, "0.2"),
        (9.5, "9.5"),
        (42.4, "42"),
        (99_999, "99999"),
        (100_000, "100k"),
        (1_500_000, "1.5M"),
        (3e9, "3.0G"),
        (5e12, "5T"),
    ],
)
def test_numbers_are_short(number, text):
    assert short(number) == text


def command(url, *options):
    return [sys.executable, "-m", "reliq", "top", "--url", url, "--interval", "0.2", *options]


def test_into_a_pipe_it_prints_one_frame(app, url):
    app.queue("orders").send_many(["x"] * 3)
    app.queue("q" * 128).send("x")
    done = subprocess.run(command(url), capture_output=True, text=True, timeout=30, check=True)
    assert row(done.stdout.splitlines()[3])[:2] == ["orders", "3"]
    assert "\x1b" not in done.stdout
    assert "q" * 128 in done.stdout


def until(terminal, text):
    seen, end = "", time.monotonic() + 20
    while text not in seen:
        assert select.select([terminal], [], [], end - time.monotonic())[0], f"{text!r} did not come: {seen!r}"
        seen += os.read(terminal, 65536).decode()


def test_on_a_terminal_it_goes_on_until_it_is_ended_and_leaves_the_terminal_as_it_was(app, url):
    app.queue("orders").send_many(["x"] * 3)
    terminal, inside = pty.openpty()
    running = subprocess.Popen(
        command(url), stdout=inside, stderr=inside, env={**os.environ, "COLUMNS": "80", "LINES": "24"}
    )
    os.close(inside)
    until(terminal, "orders")
    app.queue("mails").send_many(["x"] * 77)
    until(terminal, "77")
    running.send_signal(signal.SIGINT)
    until(terminal, "\x1b[?1049l")
    assert running.wait(timeout=10) == 130
    os.close(terminal)
