"""The command line: workers as real processes, all other commands in this one."""

import json
import os
import signal
import subprocess
import sys

import pytest

import reliq
from reliq.cli import main
from reliq.embedded import EmbeddedRedis
from tests.support.commands import give_up_soon, run
from tests.support.workers import ROOT, eventually, process

APP = """
import os, time
import reliq
app = reliq.Reliq()

@app.handler("q", retry=reliq.fixed(0, limit=1))
def work(message):
    if message.body == b"kill":
        os.kill(os.getpid(), 9)
    if message.body == b"slow":
        time.sleep(60)
    if message.body == b"bad":
        raise ValueError("no such order")
"""


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "shop.py").write_text(APP)
    return tmp_path


def test_a_worker_handles_and_ends_with_0_on_sigterm(app, shop):
    app.queue("q").send_many(["x"] * 100)
    with process("worker", "shop", folder=shop, RELIQ_URL=app.url) as child:
        eventually(lambda: app.queue("q").stats().counters.get("acked") == 100)
        child.send_signal(signal.SIGTERM)
        assert child.wait(20) == 0
    assert app.queue("q").stats().consumers == 0


def test_the_parent_returns_what_a_dead_child_held_and_starts_another(app, shop):
    """The lease is an hour: only the parent can have returned it."""
    queue = app.queue("q")
    queue.configure(max_deliveries=2)
    arguments = ("worker", "shop:app", "--processes", "2", "--lease", "1h", "--no-monitor")
    with process(*arguments, folder=shop, RELIQ_URL=app.url) as parent:
        eventually(lambda: queue.stats().consumers == 2)
        poison = queue.send("kill")
        letter = eventually(lambda: queue.dead.get(poison), timeout=60)
        assert (letter.reason, letter.deliveries) == ("max_deliveries", 2)
        eventually(lambda: queue.stats().consumers == 2)
        queue.send_many(["x"] * 10)
        eventually(lambda: queue.stats().counters.get("acked") == 10)
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(30) == 0
    assert queue.stats().consumers == 0


def test_a_program_that_a_handler_of_a_child_runs_finds_the_end_of_its_input(app, tmp_path):
    """The child itself waits at a pipe from its parent, which a program would wait for, too."""
    text = APP.replace('message.body == b"slow"', 'os.system("cat")')
    (tmp_path / "shop.py").write_text(text)
    app.queue("q").send("x")
    with process("worker", "shop", "--processes", "2", folder=tmp_path, RELIQ_URL=app.url):
        eventually(lambda: app.queue("q").stats().counters.get("acked") == 1)


def test_children_of_a_killed_parent_end_by_themselves(app, shop):
    with process("worker", "shop", "--processes", "2", folder=shop, RELIQ_URL=app.url) as parent:
        eventually(lambda: app.queue("q").stats().consumers == 2)
        parent.kill()
        eventually(lambda: app.queue("q").stats().consumers == 0, timeout=30)


def test_a_second_signal_hands_back_at_once(app, shop):
    queue = app.queue("q")
    queue.send("slow")
    with process("worker", "shop", folder=shop, RELIQ_URL=app.url) as child:
        eventually(lambda: queue.stats().processing == 1)
        child.send_signal(signal.SIGTERM)
        eventually(lambda: b"stopping" in child.stderr.readline())
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0
    assert (queue.stats().ready, queue.stats().processing) == (1, 0)


@pytest.mark.parametrize(
    ("text", "target", "says"),
    [
        ("import does_not_exist", "shop", "ModuleNotFoundError: No module named 'does_not_exist'"),
        ("1 / 0", "shop", "ZeroDivisionError"),
        ("", "shop:app", "has no attribute 'app'"),
        ("app = 3", "shop", "has a int, not a reliq.Reliq"),
        ("import reliq\napp = reliq.Reliq()", "shop", "no handlers"),
        (APP + "app.handler('q')(repr)", "shop", "has two handlers"),
    ],
)  # fmt: skip
def test_a_module_that_does_not_work_is_shown_and_ends_with_2(app, tmp_path, text, target, says):
    (tmp_path / "shop.py").write_text(text)
    for processes in ("1", "2"):
        with process("worker", target, "--processes", processes, folder=tmp_path, RELIQ_URL=app.url) as child:
            _, printed = child.communicate(timeout=30)
        assert says in printed.decode()
        assert child.returncode == 2


def test_the_monitor_returns_what_a_vanished_consumer_held(app):
    queue = app.queue("q")
    queue.send("x")
    consumer = queue.consumer(lease=1)
    consumer.claim()  # and never heard of again
    with process("monitor", "--interval", "0.1", RELIQ_URL=app.url) as child:
        eventually(lambda: queue.stats().ready == 1)
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0


@pytest.mark.parametrize(
    ("output", "status", "says"),
    [
        (">/dev/full", 1, "reliq: the command has ended, but what it printed is lost: No space left on device\n"),
        (">&-", 0, ""),
    ],
)
def test_an_output_that_cannot_be_written_is_told_in_a_line(url, app, output, status, says):
    command = f"{sys.executable} -m reliq message send q x {output}"
    env = {**os.environ, "RELIQ_URL": url}
    done = subprocess.run(["sh", "-c", command], env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (status, says)
    assert app.queue("q").stats().ready == 1


@pytest.mark.parametrize(
    ("command", "closed", "status"),
    [("purge q", "<&-", 2), ("top --once", ">&-", 0), ("send q y", "2>&-", 0), ("stats q", "<&- >&- 2>&-", 0)],
)
def test_a_command_runs_without_a_standard_stream(url, app, command, closed, status):
    """As a service manager or a cron job may start it."""
    app.queue("q").send("x")
    command = f"{sys.executable} -m reliq {command} {closed}"
    env = {**os.environ, "RELIQ_URL": url}
    done = subprocess.run(["sh", "-c", command], env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert "Traceback" not in done.stderr


def test_send_stats_pause_resume_cancel_purge(url):
    identity = run("send", "q", '{"order": 1}', "--header", "shop=eu", url=url).stdout.strip()
    assert len(identity) == 36
    later = json.loads(run("send", "q", "later", "--delay", "1h", "--json", url=url).stdout)["id"]
    assert run("send", "q", "--lines", input="a\nb\n", url=url).stdout == "2 sent\n"
    assert run("send", "q", input="from a pipe", url=url).returncode == 0
    (stats,) = json.loads(run("stats", "--json", url=url).stdout)
    assert (stats["queue"], stats["ready"], stats["delayed"]) == ("q", 4, 1)
    assert "q " in run("stats", "q", url=url).stdout
    assert json.loads(run("pause", "q", "--json", url=url).stdout) == {"paused": True}
    assert "paused" in run("stats", url=url).stdout
    assert run("resume", "q", url=url).returncode == 0
    assert run("cancel", "q", later, url=url).stdout == "cancelled\n"
    assert run("cancel", "q", later, url=url).returncode == 1
    assert "confirm with --yes" in run("purge", "q", url=url).stderr
    assert json.loads(run("purge", "q", "--yes", "--json", url=url).stdout) == {"removed": 4}


def test_dead_letters_listed_shown_redriven_purged(app, url):
    queue = app.queue("q")
    ids = queue.send_many([{"order": number} for number in range(3)])
    with queue.consumer() as consumer:
        for message in consumer.claim(limit=3):
            consumer.dead(message, f"order {message.json()['order']} is unknown")
    listed = run("dead", "list", "q", url=url).stdout
    assert all(identity in listed for identity in ids)
    assert "order 2 is unknown" in listed
    page = json.loads(run("dead", "list", "q", "--limit", "2", "--json", url=url).stdout)
    rest = json.loads(run("dead", "list", "q", "--after", page["next"], "--json", url=url).stdout)
    assert {letter["id"] for letter in page["letters"] + rest["letters"]} == set(ids)
    *_, more = run("dead", "list", "q", "--limit", "2", url=url).stdout.split()
    assert run("dead", "list", "q", more, "--json", url=url).stdout == json.dumps(rest) + "\n"
    shown = json.loads(run("dead", "show", "q", ids[0], url=url).stdout)
    assert (shown["body"], shown["reason"]) == ('{"order":0}', "rejected")
    assert run("dead", "show", "q", "nobody", url=url).returncode == 1
    assert "3 would be redriven" in run("dead", "redrive", "q", "--dry-run", url=url).stdout
    assert run("dead", "redrive", "q", ids[0], url=url).stdout == "1 redriven\n"
    assert "needs ids, a filter, or --all" in run("dead", "purge", "q", "--yes", url=url).stderr
    assert "2 dead letters removed" in run("dead", "purge", "q", "--all", "--yes", url=url).stdout
    assert (queue.stats().ready, queue.stats().dead) == (1, 0)


@pytest.mark.parametrize(
    ("arguments", "says", "status"),
    [
        (["send", "a b", "x"], "queue name 'a b'", 2),
        (["send", "q", "x", "--delay=-5"], "delay", 2),
        (["send", "q", "x", "--delay", "soon"], "soon", 2),
        (["send", "q", "x", "--header", "novalue"], "NAME=VALUE", 2),
        (["send", "q", "x" * 100, "--id", "a b"], "message id", 2),
        (["stats", "--url", "http://localhost"], "redis://", 2),
        (["stats", "--url", "redis://127.0.0.1:1/0"], "cannot be reached", 1),
        (["dead", "redrive", "q", "--stop-above", "0.1"], "needs a rate", 2),
    ],
)
def test_bad_input_is_one_clear_line(app, url, monkeypatch, capsys, arguments, says, status):
    monkeypatch.setenv("RELIQ_URL", url)
    give_up_soon(monkeypatch)
    app.queue("q").send("x")
    assert main.main(arguments) == status
    printed = capsys.readouterr().err
    assert says in printed
    assert "Traceback" not in printed


def test_help_names_every_command():
    printed = run("--help").stdout
    for command in ("worker", "monitor", "dev", "demo", "send", "stats", "dead", "pause", "resume", "purge", "cancel"):
        assert command in printed


def test_topics_bind_test_publish_unbind(url):
    assert run("topics", "bind", "mailer@welcome", "order.created.*", "user.#", url=url).stdout == "bound\n"
    assert run("topics", "bind", "audit@all", "#", url=url).returncode == 0
    assert run("topics", "bind", "audit@all", "#", url=url).stdout == "it was bound before\n"
    assert run("topics", "test", "order.created.eu", url=url).stdout == "audit@all\nmailer@welcome\n"
    sent = json.loads(run("publish", "order.created.eu", "hello", "--json", url=url).stdout)
    assert list(sent) == ["audit@all", "mailer@welcome"]
    listed = json.loads(run("topics", "list", "--json", url=url).stdout)
    assert {"queue": "mailer@welcome", "pattern": "user.#"} in listed["bindings"]
    assert run("topics", "unbind", "audit@all", "#", url=url).returncode == 0
    assert run("topics", "unbind", "audit@all", "#", url=url).returncode == 1
    assert run("topics", "test", "stock.low", url=url).returncode == 1
    assert run("topics", "alternate", "unrouted", url=url).returncode == 0
    assert run("topics", "test", "stock.low", url=url).stdout == "unrouted\n"
    assert run("topics", "alternate", "--off", url=url).returncode == 0
    assert run("publish", "stock.low", "x", "--mandatory", url=url).returncode == 1
    unroutable = run("publish", "stock.low", "x", url=url)
    assert (unroutable.returncode, unroutable.stdout) == (0, "")
    assert unroutable.stderr.startswith("reliq: no queue is bound to a pattern that matches")
    assert run("topics", "list", url=url).stdout.endswith("2 bindings; 1 message matched none of them\n")
    assert run("topics", "alternate", "rest", url=url).returncode == 0
    assert run("topics", "alternate", url=url).stdout == "messages that match no binding go to rest\n"
    assert run("publish", "stock.low", "x", "--key", "k", url=url).stdout.endswith("  rest\n")
    assert json.loads(run("topics", "alternate", "--off", "--json", url=url).stdout) == {"alternate": None}
    wrong = run("topics", "bind", "q", "order*", url=url)
    assert (wrong.returncode, "stand for whole words" in wrong.stderr) == (2, True)


@pytest.mark.parametrize("call", [("send", "x"), ("pause",), ("config",)])
def test_the_name_of_a_broadcasts_queue_is_refused(app, url, call):
    verb, *rest = call
    wrong = run(verb, "orders@broadcast.c" + 20 * "0", *rest, url=url)
    assert (wrong.returncode, "belongs to a broadcast" in wrong.stderr) == (2, True)
    assert app.queues(of_broadcasts=True) == []


def test_key_and_priority_from_the_command_line(url):
    for number in range(3):
        assert run("send", "q", str(number), "--key", "k", "--priority", "high", url=url).returncode == 0
    (stats,) = json.loads(run("stats", "--json", url=url).stdout)
    assert (stats["ready"], stats["waiting"]) == (3, 2)


def test_the_latest_wins_from_the_command_line(url):
    latest = ("--dedup-key", "k", "--replace", "--debounce", "1h", "--at-most", "2h")
    for number in range(3):
        assert run("send", "q", str(number), *latest, url=url).returncode == 0
    (listed,) = reliq.Reliq(url).queue("q").delayed.list()
    assert listed.body == b"2"
    (stats,) = json.loads(run("stats", "--json", url=url).stdout)
    assert (stats["delayed"], stats["counters"]["replaced"]) == (1, 2)


def test_options_of_the_latest_that_do_not_fit_are_refused(url):
    for options, text in (
        (("--replace",), "replace without a dedup_key"),
        (("--debounce", "5s", "--dedup-key", "k"), "debounce is '5s' without replace"),
        (("--lines", "--replace", "--dedup-key", "k"), "--replace is for one message"),
    ):
        ran = run("send", "q", *([] if "--lines" in options else ["x"]), *options, url=url)
        assert ran.returncode != 0
        assert text in ran.stderr
    assert json.loads(run("stats", "--json", url=url).stdout) == []


def test_a_worker_whose_module_subscribes_waits_for_redis(tmp_path):
    (tmp_path / "subscriber.py").write_text(APP + '\napp.subscribe("q", "order.#")\n')
    with EmbeddedRedis() as once:
        port = once.port
    away = reliq.Reliq(f"redis://127.0.0.1:{port}/0", send_timeout=0.1)
    with process("worker", "subscriber", folder=tmp_path, RELIQ_URL=away.url) as child:
        eventually(lambda: b"importing subscriber" in child.stderr.readline())
        with EmbeddedRedis(port=port):
            eventually(lambda: [tuple(one) for one in away.topics.list()] == [("q", "order.#")])
            assert away.publish("order.created", "x")
            eventually(lambda: away.queue("q").stats().counters.get("acked") == 1)
            away.close()


def test_limits_and_breaker_from_the_command_line(url):
    run("send", "q", "x", url=url)
    done = run("config", "q", "rate=10/s", "burst=5", "concurrency=20", url=url)
    assert {"rate             10/s", "burst            5", "concurrency      20"} <= set(done.stdout.splitlines())
    done = run("config", "q", "fair=true", "weights=gold:4,free:1", url=url)
    assert {"fair             true", "weights          gold:4,free:1"} <= set(done.stdout.splitlines())
    done = run("config", "q", "rate=10/parsec", url=url)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "rate is '10/parsec': write a number, a slash, and one of s, m or min, h, d" in done.stderr
    assert "is open for 1h" in run("breaker", "q", "open", url=url).stdout
    assert "limited by breaker" in run("stats", "q", url=url).stdout
    assert "it was open" in run("breaker", "q", "close", url=url).stdout
    assert "it was closed already" in run("breaker", "q", "close", url=url).stdout
