"""Manners of the command line: a mistyped queue is unknown, an empty list says so, and a Redis that is down is said at
once on a terminal."""

import json
import os
import pty
import socket
import subprocess
import sys

import pytest

from reliq.cli import main
from tests.support.commands import give_up_soon
from tests.support.workers import ROOT

PATHS = os.pathsep.join(map(str, (ROOT, ROOT / "monitor", ROOT / "api")))


def on_a_terminal(*arguments, typed=b"", output=None):
    """Run a command with a terminal as its standard error, and as its input and output if something is typed.

    `output`: a file for its standard output. Return the exit status, and what it printed on the terminal.
    """
    terminal, end = pty.openpty()
    os.write(terminal, typed)
    status = subprocess.run(
        [sys.executable, "-m", "reliq", *arguments], check=False, timeout=60,
        stdin=end if typed else subprocess.DEVNULL, stdout=output or (end if typed else subprocess.DEVNULL), stderr=end,
        env={**os.environ, "PYTHONPATH": PATHS},
    ).returncode  # fmt: skip
    os.close(end)
    printed = os.read(terminal, 10_000).decode()
    os.close(terminal)
    return status, printed


@pytest.mark.parametrize(
    "command",
    [
        ("stats", "ordrs"), ("audit", "ordrs"), ("audit", "ordrs", "--repair"), ("partitions", "ordrs"),
        ("find", "x", "--queue", "ordrs"), ("queue", "delete", "ordrs", "--yes"), ("schedule", "list", "ordrs"),
        ("pause", "ordrs"), ("resume", "ordrs"), ("purge", "ordrs", "--yes"),
        ("cancel", "ordrs", "x"), ("message", "signal", "ordrs", "x", "go"), ("message", "output", "ordrs", "x"),
        ("message", "search", "ordrs", "x"), ("parked", "list", "ordrs"),
        ("breaker", "ordrs", "open"), ("config", "ordrs"), ("dead", "list", "ordrs"), ("dead", "show", "ordrs", "x"),
        ("dead", "redrive", "ordrs"), ("dead", "purge", "ordrs", "--all", "--yes"), ("delayed", "list", "ordrs"),
        ("delayed", "run", "ordrs", "--all"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_mistyped_queue_is_unknown_and_is_not_made(app, capsys, command):
    app.queue("orders").send("x")
    assert main.main([*command, "--url", app.url]) == 1
    printed = capsys.readouterr()
    assert printed.err == "reliq: there is no queue 'ordrs': did you mean 'orders'?\n"
    assert printed.out == ""
    assert app.queues() == ["orders"]


@pytest.mark.parametrize("command", ["stats", "audit"])
def test_the_known_queues_are_shown_beside_an_unknown_one(app, capsys, command):
    app.queue("orders").send("x")
    assert main.main([command, "ordrs", "orders", "--url", app.url]) == 1
    printed = capsys.readouterr()
    assert "orders" in printed.out
    assert "ordrs" not in printed.out
    assert "there is no queue 'ordrs'" in printed.err


def test_an_audit_of_an_unknown_queue_is_not_balanced_for_programs_either(app, capsys):
    app.queue("orders").send("x")
    assert main.main(["audit", "ordrs", "orders", "--json", "--url", app.url]) == 1
    printed = capsys.readouterr()
    assert [book["queue"] for book in json.loads(printed.out)] == ["orders"]
    assert "there is no queue 'ordrs'" in printed.err


def test_a_queue_that_is_like_no_other_has_no_suggestion(app, capsys):
    app.queue("orders").send("x")
    assert main.main(["pause", "zzz", "--url", app.url]) == 1
    assert capsys.readouterr().err == "reliq: there is no queue 'zzz'\n"


def test_there_are_no_claims_of_an_unknown_queue(app, capsys):
    assert main.main(["spark", "claims", "--queue", "ordrs", "--url", app.url]) == 1
    assert capsys.readouterr() == ("", "reliq: there is no queue 'ordrs'\n")


@pytest.mark.parametrize("verb", ["purge", "redrive"])
def test_a_dead_letter_that_there_is_not_is_named(app, capsys, verb):
    app.queue("orders").send("x")
    more = ("--yes",) if verb == "purge" else ()
    assert main.main(["dead", verb, "orders", "nope", *more, "--url", app.url]) == 1
    assert capsys.readouterr().err.endswith("reliq: queue orders has no dead letter nope\n")


@pytest.mark.parametrize("limit", ["0", "-1", "99999999999999999999"])
def test_an_impossible_number_of_flows_is_refused(app, capsys, limit):
    assert main.main(["flow", "list", f"--limit={limit}", "--url", app.url]) == 2
    assert f"limit is {limit}" in capsys.readouterr().err


def test_a_queue_may_get_its_policy_before_its_first_message(app, capsys):
    assert main.main(["config", "orders", "max_length=10", "--url", app.url]) == 0
    assert main.main(["pause", "orders", "--url", app.url]) == 0


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("dead", "list", "orders"), "orders has no dead letters\n"),
        (("dead", "list", "orders", "--reason", "expired"), "orders has no such dead letters\n"),
        (("delayed", "list", "orders"), "orders has no delayed messages\n"),
        (("delayed", "list", "orders", "--failed"), "orders has no messages that wait for a retry\n"),
        (("keys", "list"), "there are no API keys: `reliq key create` makes one\n"),
    ],
)
def test_an_empty_list_says_so_and_a_pipe_gets_nothing(app, capsys, command, says):
    app.queue("orders").send("x")
    assert main.main([*command, "--url", app.url]) == 0
    assert capsys.readouterr() == ("", says)


def test_without_queues_stats_says_so(url, capsys):
    assert main.main(["stats", "--url", url]) == 0
    said = "there are no queues: the first message makes one, `reliq message send QUEUE BODY`\n"
    assert capsys.readouterr() == ("", said)


def test_without_a_command_all_commands_are_shown(capsys):
    assert main.main([]) == 2
    assert "dead letters: list, show, redrive, purge" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("stats",), ("send", "q", "x"), ("top", "--once")])
def test_on_a_terminal_a_redis_that_is_down_is_said_at_once(command):
    status, printed = on_a_terminal(*command, "--url", "redis://127.0.0.1:1/0")
    assert status == 1
    assert "Redis at redis://127.0.0.1:1/0 cannot be reached" in printed
    assert "`reliq dev` starts one" in printed
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize("terminal", [True, False])
def test_a_call_is_repeated_for_a_script_and_not_on_a_terminal(monkeypatch, capsys, terminal):
    tries = []

    def refuse(self, address):
        tries.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    give_up_soon(monkeypatch)
    assert main.main(["stats", "--url", "redis://127.0.0.1:1/0"]) == 1
    assert (len(tries) == 1) is terminal


@pytest.mark.parametrize("password", ["a/b", "a@b", "a#b", "a%b", "a:b", "a?b", "a/@#%:?b"])
def test_a_password_with_special_characters_is_never_printed(app, capsys, password):
    host = app.url.removeprefix("redis://")
    status = main.main(["stats", "--url", f"redis://user:{password}@{host}"])
    printed = "".join(capsys.readouterr())
    assert status in (1, 2)  # 1: it was read, and the server refused it
    assert password not in printed
    if status == 2:
        assert "write / as %2F, ? as %3F, # as %23, @ as %40, : as %3A and % as %25" in printed


def test_the_end_of_input_is_no_confirmation(app):
    app.queue("orders").send("x")
    status, printed = on_a_terminal("queue", "purge", "orders", "--url", app.url, typed=b"\x04")
    assert status == 1
    assert printed.splitlines()[-2:] == [
        "This will remove all ready, delayed, parked and prepared messages of orders. Type yes to go on: ",
        "nothing was done",
    ]
    assert app.queue("orders").stats().ready == 1


def test_a_body_that_is_typed_is_asked_for(app):
    status, printed = on_a_terminal("message", "send", "orders", "--url", app.url, typed=b"hello\n\x04")
    assert status == 0
    assert "reliq: type the body; Ctrl-D on a line of its own ends it" in printed.splitlines()
    assert app.queue("orders").stats().ready == 1


def test_a_question_does_not_go_into_a_pipe(app, tmp_path):
    app.queue("orders").send("x")
    with (tmp_path / "out").open("w+b") as piped:
        status, printed = on_a_terminal(
            "queue", "purge", "orders", "--json", "--url", app.url, typed=b"yes\n", output=piped
        )
        piped.seek(0)
        assert (status, piped.read()) == (0, b'{"removed": 1}\n')
    assert "Type yes to go on: " in printed


def dead_letters(app, *bodies):
    queue = app.queue("orders")
    queue.send_many(bodies)
    with queue.consumer() as consumer:
        for message in consumer.claim(len(bodies)):
            consumer.dead(message, "broken")
    return queue


@pytest.mark.parametrize("every", [(), ("--all",), ("--rate", "100"), ("--error-text", "")])
def test_a_redrive_of_all_dead_letters_asks_on_a_terminal(app, every):
    queue = dead_letters(app, "a", "b")
    arguments = ("dead", "redrive", "orders", *every, "--url", app.url)
    status, printed = on_a_terminal(*arguments, typed=b"no\n")
    assert status == 1
    assert "This will put all dead letters of orders (2) back into the queue. Type yes to go on: " in printed
    assert printed.endswith("nothing was done\r\n")
    assert queue.stats().dead == 2
    status, printed = on_a_terminal(*arguments, typed=b"yes\n")
    assert (status, printed.endswith("2 redriven\r\n")) == (0, True)


@pytest.mark.parametrize("some", ["--yes", "--limit=2", "--error-class=broken", "--dry-run", "--older-than=0s"])
def test_a_redrive_of_some_dead_letters_does_not_ask(app, some):
    dead_letters(app, "a", "b")
    status, printed = on_a_terminal("dead", "redrive", "orders", some, "--url", app.url, typed=b"\x04")
    assert (status, "Type yes" in printed) == (0, False)


def test_a_redrive_of_no_dead_letters_does_not_ask(app):
    app.queue("orders").send("x")
    status, printed = on_a_terminal("dead", "redrive", "orders", "--url", app.url, typed=b"\x04")
    assert (status, printed.splitlines()[-1]) == (0, "0 redriven")


def test_a_redrive_says_what_is_wrong_before_it_asks(app):
    dead_letters(app, "a")
    status, printed = on_a_terminal("dead", "redrive", "orders", "--rate=-1", "--url", app.url, typed=b"yes\n")
    assert (status, "Type yes" in printed) == (2, False)
    assert "rate, in messages a second, is -1.0" in printed


def test_a_redrive_by_a_script_does_not_ask(app, capsys):
    dead_letters(app, "a", "b")
    assert main.main(["dead", "redrive", "orders", "--url", app.url]) == 0
    assert capsys.readouterr().out == "2 redriven\n"
