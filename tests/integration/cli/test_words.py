"""The words of the command line: a noun and a verb; the former words go on working; a shell completes them."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import threading
from types import SimpleNamespace

import pytest

import reliq
from reliq.cli import main, messages, top
from reliq.cli.columns import columns
from reliq.cli.words import FORMER, NOUNS
from reliq.contract.settings import BY_NAME
from reliq.runtime import startup
from tests.support.commands import run
from tools.site.reference import command_line

PARSER = main._parser()
COMMANDS = [name.removeprefix("reliq ") for name, *_ in command_line.commands()]
#: These run until they are stopped, or print what no program reads.
WITHOUT_JSON = {"worker run", "monitor", "dev", "demo", "new", "api", "completion", "spark pipeline"}


def below(words):
    """The parser of a command."""
    parser = PARSER
    for word in words.split():
        (action,) = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
        parser = action.choices[word]
    return parser


@pytest.mark.parametrize(("present", "former"), FORMER.items())
def test_a_former_word_is_the_same_command_and_is_not_shown(present, former):
    assert below(former) is below(present)
    lines = PARSER.format_help().split("commands:")[1].splitlines()
    assert former not in [line.split()[0] for line in lines if line.startswith("    ")]


def test_commands_about_a_thing_begin_with_its_noun():
    alone = {"monitor", "dev", "demo", "new", "doctor", "top", "chaos", "bench", "size", "api", "sqs", "completion"}
    nouns = {name.split()[0] for name in COMMANDS} - alone
    assert nouns == {*NOUNS, "spark"}


@pytest.mark.parametrize("more", [[], ["--processes", "2"]])
def test_a_worker_needs_no_verb(more):
    short, full = (PARSER.parse_args([*words, *more, "shop:app"]) for words in (["worker"], ["worker", "run"]))
    assert short == full
    assert short.app == "shop:app"
    assert "`reliq worker MODULE:APP` is short for" in below("worker").format_help()


def test_the_help_of_a_policy_names_every_setting():
    text = " ".join(below("queue config").format_help().split())
    assert f"names: {', '.join(BY_NAME)} options:" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["sned", "orders"], "reliq: error: there is no command 'sned': did you mean 'send'?"),
        (["queue", "paus"], "reliq queue: error: there is no command 'paus': did you mean 'pause'?"),
        (["xyzzy"], "reliq: error: there is no command 'xyzzy': `reliq --help` lists them"),
    ],
)
def test_a_mistyped_command_names_the_nearest(arguments, says):
    done = run(*arguments)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, says)


@pytest.mark.parametrize("command", sorted({*COMMANDS} - WITHOUT_JSON))
def test_every_command_that_ends_by_itself_has_json(command):
    assert "--json" in below(command).format_help()


SHOWN = {
    "queue stats": (
        "queue ready processing delayed dead waiting oldest_ready_age consumers paused counters prepared parked "
        "limited_by breaker overdue max_length high low members schedules next_tick tick_overdue exact unseen"
    ),
    "queue audit": "queue enqueued gone here missing orphans",
    "queue partitions orders": "count before moving partitions",
    "queue config orders": (
        "max_length max_bytes max_deliveries dead_max_age dead_max_count dead_to durability rate burst concurrency "
        "key_rate key_concurrency fair weights track history keep_output partitions paused"
    ),
    "dead list orders": "letters next",
    "delayed list orders": "messages next",
    "topic list": "bindings alternate unroutable",
    "schedule list": (
        "name queue when tz paused ended next_tick last_tick last_run_at last_id lateness fired missed start end "
        "jitter catch_up catch_up_limit"
    ),
    "top --interval 0.1": "queues workers",
}


@pytest.mark.parametrize("command", SHOWN)
def test_the_keys_of_json_are_these(app, command):
    app.queue("orders").send("x")
    app.schedules.add("daily", "0 7 * * *", "orders")
    shown = json.loads(run(*command.split(), "--json", url=app.url).stdout)
    assert list(shown[0] if isinstance(shown, list) else shown) == SHOWN[command].split()


@pytest.fixture
def signals():
    """The process has the handlers of signals that it had, and has seen none."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    startup._Start.requested = startup._Start.interrupted = False


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_statistics_can_be_watched(app, monkeypatch, number, status):
    pauses = iter([lambda: None, lambda: os.kill(os.getpid(), number)])
    monkeypatch.setattr(messages, "time", SimpleNamespace(sleep=lambda _: next(pauses)()))
    app.queue("orders").send("x")
    done = run("queue", "stats", "--watch", "0.1", url=app.url)
    assert (done.returncode, done.stdout.count("orders"), done.stderr) == (status, 2, "")


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
@pytest.mark.parametrize("command", [("queue", "stats", "--watch"), ("top",)])
def test_a_watch_ends_at_once_while_redis_hangs(app, monkeypatch, command, number, status):
    def hang(*_, **__):
        os.kill(os.getpid(), number)
        threading.Event().wait(5)
        raise reliq.RedisUnavailable("Redis does not answer")

    monkeypatch.setattr(messages, "read_readable", hang)
    monkeypatch.setattr(top, "read_readable", hang)
    app.queue("orders").send("x")
    done = run(*command, url=app.url)
    assert (done.returncode, done.stderr) == (status, "")


def test_an_impossible_time_between_two_looks_is_refused(app):
    assert run("stats", "--watch", "0", url=app.url).stderr == (
        "reliq: --watch is 0.0: it must be between 0.1 seconds and 1 hour\n"
    )


ROWS = [("queue", "ready", " notes"), ("a-queue-with-a-long-name", 1_000_000, " paused")]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, ["queue                              ready  notes", "a-queue-with-a-long-name         1000000  paused"]),
        (42, ["queue                      ready  notes", "a-queue-with-a-long-name 1000000  paused"]),
        (20, ["queue", "      ready  notes", "a-queue-with-a-long-name", "    1000000  paused"]),
    ],
)
def test_a_table_fits_the_terminal_and_nothing_is_cut(monkeypatch, width, shown):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    assert columns(ROWS, -30, 9) == shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_has_every_command(shell):
    script = run("completion", shell).stdout
    words = {word for command in COMMANDS for word in command.split()}
    assert {word for word in words if word not in script} == set()
    assert "limit-key" in script
    assert "stats --" not in script


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        (["reliq", "qu"], "queue"),
        (["reliq", "queue", "pa"], "pause partitions"),
        (["reliq", "queue", "breaker", "orders", "op"], "open"),
        (["reliq", "dead", "list", "orders", "--reason", "max_f"], "max_failures"),
        (["reliq", "message", "send", "orders", "--priority", ""], "high normal low"),
        (["reliq", "message", "send", "--limit"], "--limit-key"),
        (["reliq", "worker", "shop:app", "--pro"], "--processes"),
        (["reliq", "worker", "p"], "pause"),
    ],
)
def test_bash_completes(typed, completed):
    given = " ".join(f"'{word}'" for word in typed)
    asked = f"COMP_WORDS=({given}); COMP_CWORD={len(typed) - 1}; _reliq; echo ${{COMPREPLY[*]}}"
    script = run("completion", "bash").stdout + asked
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout.strip(), done.stderr) == (completed, "")


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("qu", "queue"),
        ("queue pa", "partitions pause"),
        ("message send dead --re", "--replace"),
        ("sqs key create --scope ", "manage receive send"),
        ("spark enqueue --input fol", "folder/"),
    ],
)
def test_fish_completes(typed, completed, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "reliq.fish").write_text(run("completion", "fish").stdout)
    asked = ["fish", "-c", f"source reliq.fish; complete -C 'reliq {typed}'"]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    offered = sorted(line.split("\t")[0] for line in done.stdout.splitlines())
    assert (offered, done.stderr) == (completed.split(), "")


def test_fish_offers_an_option_to_its_command_only():
    lines = [line for line in run("completion", "fish").stdout.splitlines() if " -l scope " in line]
    assert [(re.findall('__reliq_at "(.*?)"', line), "'send receive manage'" in line) for line in lines] == [
        (["key/create"], False),
        (["sqs/key/create"], True),
    ]
