"""Mistakes on the command line: one line that says what is wrong and what to do, never a traceback of reliq."""

import contextlib
import json
import os
import subprocess
import sys

import pytest

from reliq import ops
from reliq.cli import main
from reliq.model.keys import QueueKeys
from tests.support.workers import ROOT

PATHS = os.pathsep.join(map(str, (ROOT, ROOT / "monitor", ROOT / "api")))


@pytest.mark.parametrize(
    ("arguments", "says", "status"),
    [
        (["worker", ""], "is not MODULE:APP", 2),
        (["worker", ":app"], "is not MODULE:APP", 2),
        (["worker", "shop.py:app"], "is not MODULE:APP", 2),
        (["worker", "./shop"], "is not MODULE:APP", 2),
        (["worker", ".shop"], "is not MODULE:APP", 2),
        (["worker", "no_such_module"], "there is no module 'no_such_module', neither in", 2),
        (["worker", "json.no_such_module:app"], "there is no module 'json.no_such_module'", 2),
        (["worker", "shop", "--processes", "0"], "processes is 0", 2),
        (["monitor", "--interval", "0"], "interval is 0", 2),
        (["monitor", "--interval", "nan"], "interval is nan", 2),
        (["top", "--once", "--interval=-1"], "interval is -1", 2),
        (["dev", "--port", "99999"], "port is 99999", 2),
        (["dev", "--port", "17301", "--api-port", "17301"], "--port and --api-port are both 17301", 2),
        (["monitor", "--metrics-port", "99999"], "metrics-port is 99999: it must be a whole number from 0", 2),
        (["worker", "no_such_module", "--metrics-port", "99999"], "metrics-port is 99999", 2),
        (["sqs", "--no-auth", "--metrics-port=-1"], "metrics-port is -1", 2),
        (["dev", "--data", "/proc/no-such-folder"], "cannot be created", 1),
        (["demo", "--files=-1"], "files is -1", 2),
        (["queue", "stats", "--url", ""], "the Redis URL is empty: give one, such as redis://localhost", 2),
        (["worker", "shop", "--url", " "], "the Redis URL is empty", 2),
        (["api", "--port", "99999"], "port is 99999", 2),
        (["api", "--grace", "nan"], "grace is nan", 2),
        (["api", "--no-auth", "--host", "0.0.0.0"], "host is '0.0.0.0'", 2),
        (["stats", "--url", "file:/dev/zero"], "larger than", 2),
    ],
)
def test_a_mistake_is_one_clear_line(url, monkeypatch, capsys, arguments, says, status):
    monkeypatch.setenv("RELIQ_URL", url)
    assert main.main(arguments) == status
    printed = capsys.readouterr().err
    assert says in printed
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("stats", "--\x1b[31m"),
        ("pause", "q", "\x1b[31m"),
        ("\x1b[31m",),
        ("api", "--port", "\x1b[31m"),
        ("stats", "\x1b[31m"),
        ("keys", "revoke", "\x1b[31m"),
    ],
)
def test_what_was_typed_is_said_without_its_escape_sequences(url, monkeypatch, capsys, arguments):
    monkeypatch.setenv("RELIQ_URL", url)
    with contextlib.suppress(SystemExit):
        main.main(arguments)
    printed = "".join(capsys.readouterr())
    assert "\x1b" not in printed
    assert "\\x1b[31m" in printed


@pytest.mark.parametrize("arguments", [("dev",), ("size", "--messages-per-second", "1")])
def test_a_command_with_a_redis_of_its_own_takes_no_other_one(url, capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        main.main([*arguments, "--url", url])
    assert ended.value.code == 2
    assert "there is no option '--url'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["max_length", "max_bytes", "max_deliveries", "dead_max_age", "dead_max_count"])
def test_a_policy_that_another_program_spoilt_is_named_and_can_be_reset(app, capsys, name):
    app.queue("q").configure(max_length=1)
    app.store.call(ops.command("HSET", QueueKeys("q").config, name, "abc"))
    assert main.main(["config", "q", "--url", app.url]) == 2
    assert f"the queue's {name} in Redis is 'abc'" in capsys.readouterr().err
    assert main.main(["config", "q", f"{name}=", "--url", app.url]) == 0


@pytest.mark.parametrize("given", ['{"gold": 4, "free": 1}', "gold:4,free:1"])
def test_weights_are_written_as_their_error_says(app, capsys, given):
    assert main.main(["queue", "config", "q", "--json", f"weights={given}", "--url", app.url]) == 0
    assert json.loads(capsys.readouterr().out)["weights"] == {"gold": 4, "free": 1}


@pytest.mark.parametrize("given", ["{gold: 4}", '["gold"]', "gold"])
def test_weights_that_are_none_are_refused(app, capsys, given):
    assert main.main(["queue", "config", "q", f"weights={given}", "--url", app.url]) == 2
    assert 'give at most 1000 weights by key, such as {"gold": 4} or "gold:4"' in capsys.readouterr().err


def test_bytes_have_units_everywhere(app, capsys):
    assert main.main(["queue", "config", "q", "--json", "max_bytes=5MiB", "--url", app.url]) == 0
    assert json.loads(capsys.readouterr().out)["max_bytes"] == 5 * 1024 * 1024
    app.queue("q").configure(max_bytes="8 MiB")
    assert app.queue("q").config().max_bytes == 8 * 1024 * 1024


def test_a_key_id_that_is_no_text_is_unknown(url, capsys):
    assert main.main(["keys", "revoke", "\udcff", "--url", url]) == 1
    assert "there is no key" in capsys.readouterr().out


def test_the_traceback_of_a_module_begins_in_the_module(url, tmp_path, monkeypatch, capsys):
    (tmp_path / "breaks.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main.main(["worker", "breaks", "--url", url]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Traceback")
    assert "breaks.py" in lines[1]
    assert "cannot import 'breaks'" in lines[-1]


@pytest.mark.parametrize("command", ["worker shop", "monitor", "queue stats", "api", "doctor", "top", "key list"])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("localhost:6379", "with an unknown scheme: use redis://"),
        ("redis://:hidden@localhost:99999/0", "a host or a port is not valid"),
        ("env:NO_SUCH_VARIABLE", "there is no such environment variable"),
    ],
)
def test_a_wrong_url_of_the_environment_is_one_line(tmp_path, monkeypatch, capsys, command, given, says):
    (tmp_path / "shop.py").write_text("import reliq\n\napp = reliq.Reliq()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.setenv("RELIQ_URL", given)
    assert main.main(command.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("reliq: RELIQ_URL: ")
    assert says in line
    assert "hidden" not in line


@pytest.mark.parametrize(
    ("command", "package", "says"),
    [
        (("api",), "fastapi", "[api]"),
        (("monitor", "--metrics-port", "0"), "prometheus_client", "[monitor]"),
        (("schedule", "add", "s", "* * * * *", "q"), "cronsim", "[schedules]"),
        (("sqs",), "botocore", "[sqs]"),
        (("sqs", "key", "create", "shop", "--scope", "send", "--queue", "*"), "cryptography", "[sqs]"),
        (("sqs", "key", "list"), "cryptography", "[sqs]"),
        (("sqs", "key", "revoke", "RQIA"), "cryptography", "[sqs]"),
    ],
)
def test_a_missing_extra_is_named(url, tmp_path, command, package, says):
    (tmp_path / f"{package}.py").write_text(f"raise ModuleNotFoundError('No module {package}', name={package!r})\n")
    done = subprocess.run(
        [sys.executable, "-m", "reliq", *command, "--url", url], capture_output=True, text=True, timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), PATHS))},
    )  # fmt: skip
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_monitor_of_a_redis_that_refuses_it_ends(url):
    done = subprocess.run(
        [sys.executable, "-m", "reliq", "monitor", "--url", url.rpartition("/")[0] + "/9999"], capture_output=True,
        text=True, timeout=30, check=False, env={**os.environ, "PYTHONPATH": PATHS},
    )  # fmt: skip
    assert done.returncode == 1
    assert "does not have the database" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_worker_whose_module_lacks_an_extra_says_so_without_a_traceback(url, tmp_path, monkeypatch, capsys):
    (tmp_path / "lacking.py").write_text("import reliq.contrib.taskiq\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "reliq.contrib.taskiq", raising=False)
    monkeypatch.setitem(sys.modules, "taskiq", None)
    assert main.main(["worker", "lacking", "--url", url]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("reliq: reliq.contrib.taskiq needs the package taskiq: pip install ")
    assert len(printed.splitlines()) == 1


def test_a_reader_that_is_gone_is_no_error(app, url):
    app.queue("q").send("x")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "reliq", "stats", "--url", url], stdout=writer, stderr=subprocess.PIPE, timeout=60,
        check=False, env={**os.environ, "PYTHONPATH": PATHS},
    )  # fmt: skip
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_without_a_character_gets_its_escape(app):
    app.subscribe("q", "order.\u20ac")
    done = subprocess.run(
        [sys.executable, "-m", "reliq", "topics", "list", "--url", app.url], capture_output=True, timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": PATHS, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"order.\\u20ac" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--queues", "order"], "--queues: no handler of 'order', only of mails, orders"),
        (["--except", "mail"], "--except: no handler of 'mail', only of mails, orders"),
        (["--except", "mails,orders"], "--queues (all) --except 'mails,orders' leaves no queue to work on"),
        (["--queues", ""], "--queues '' --except (none) leaves no queue to work on"),
        (["--queues", "mails", "--except", "mails"], "leaves no queue to work on"),
    ],
)
def test_a_worker_for_queues_that_the_application_does_not_handle(url, tmp_path, monkeypatch, capsys, arguments, says):
    (tmp_path / "two_queues.py").write_text(
        "import reliq\napp = reliq.Reliq()\nfor name in ('orders', 'mails'):\n    app.handler(name)(print)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert main.main(["worker", "two_queues", *arguments, "--url", url]) == 2
    assert says in capsys.readouterr().err
    sys.modules.pop("two_queues")


def test_a_purge_of_dead_letters_says_which_ones_it_would_remove(app, capsys):
    app.queue("q").configure(max_length=10)
    for ids, named in (
        ([], "dead letters of q"),
        (["a"], "the dead letter a of q"),
        (["a", "b"], "the dead letters a, b of q"),
    ):
        assert main.main(["dead", "purge", "q", *ids, *([] if ids else ["--all"]), "--url", app.url]) == 2
        assert f"this would remove {named} for good: confirm with --yes" in capsys.readouterr().err


def test_one_message_that_was_removed_is_counted_in_the_singular(app, capsys):
    app.queue("q").send("x")
    assert main.main(["purge", "q", "--yes", "--url", app.url]) == 0
    assert capsys.readouterr().out == "1 message removed\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["dead", "redrive", "q", "a", "--all"],
        ["dead", "purge", "q", "a", "--all", "--yes"],
        ["delayed", "run", "q", "a", "--all"],
    ],
)
def test_ids_beside_all_are_refused(app, capsys, arguments):
    app.queue("q").configure(max_length=10)
    assert main.main([*arguments, "--url", app.url]) == 2
    assert capsys.readouterr().err == "reliq: the id 'a' and --all are given: give ids, or --all\n"


@pytest.mark.parametrize("words", [["dead", "redrive", "q"], ["dead", "purge", "q", "--yes"], ["delayed", "run", "q"]])
@pytest.mark.parametrize("which", [["--error-class", "ValueError"], ["--header", "a=b"]])
def test_filters_beside_all_are_refused(app, capsys, words, which):
    app.queue("q").configure(max_length=10)
    assert main.main([*words, *which, "--all", "--url", app.url]) == 2
    assert capsys.readouterr().err == f"reliq: {which[0]} and --all are given: give filters, or --all\n"


def test_a_letter_that_a_filter_leaves_out_is_not_said_to_be_missing(app, capsys):
    app.queue("q").configure(max_length=10)
    assert main.main(["dead", "redrive", "q", "a", "--reason", "expired", "--url", app.url]) == 1
    assert capsys.readouterr().err == "reliq: queue q has no such dead letter a\n"


def test_places_to_search_are_named_as_they_are_typed(url, capsys):
    with pytest.raises(SystemExit):
        main.main(["message", "search", "q", "x", "--in", "processing", "--url", url])
    assert "(choose from 'ready', 'delayed', 'dead')" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["topic", "unbind", "q", "a.*", "b"], "q was not bound to a.*, b"),
        (["topic", "unbind", "q", ""], "q was not bound to ''"),
        (["schedule", "remove", "nightly"], "there was no schedule 'nightly'"),
    ],
)
def test_what_is_not_there_is_named(url, capsys, arguments, says):
    assert main.main([*arguments, "--url", url]) == 1
    assert says in capsys.readouterr().out


@pytest.mark.parametrize("command", [["worker", "at_once"], ["monitor"]])
def test_a_wrong_reconnect_grace_names_its_variable_before_anything_starts(monkeypatch, capsys, command):
    monkeypatch.setenv("RELIQ_RECONNECT_GRACE", "abc")
    assert main.main([*command, "--url", "redis://127.0.0.1:1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("reliq: RELIQ_RECONNECT_GRACE is 'abc': write seconds")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["message", "signal", "q", "x", ""], "the name of a signal is ''"),
        (["message", "find", "x", "--queue", ""], "queue name ''"),
        (["queue", "stats", "q", ""], "queue name ''"),
        (["queue", "audit", ""], "queue name ''"),
        (["schedule", "list", ""], "queue name ''"),
        (["topic", "alternate", ""], "queue name ''"),
        (["spark", "claims", "--queue", ""], "queue name ''"),
    ],
)
def test_an_empty_name_is_a_wrong_argument(app, capsys, arguments, says):
    app.queue("q").send("x")
    assert main.main([*arguments, "--url", app.url]) == 2
    printed = capsys.readouterr()
    assert says in printed.err
    assert printed.out == ""


def test_an_alternate_queue_and_none_are_refused(url, capsys):
    assert main.main(["topic", "alternate", "q", "--off", "--url", url]) == 2
    assert "the queue 'q' and --off are given: give one of them" in capsys.readouterr().err


def test_a_wrong_url_is_said_before_the_application_is_imported(tmp_path, monkeypatch, capsys):
    (tmp_path / "at_once.py").write_text("import reliq\napp = reliq.Reliq()\napp.handler('q')(print)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RELIQ_URL", "redis://unused")
    assert main.main(["worker", "at_once", "--url", "http://redis"]) == 2
    assert "at_once" not in sys.modules
    printed = capsys.readouterr().err
    assert "with an unknown scheme: use redis://" in printed
    assert len(printed.splitlines()) == 1


@pytest.mark.parametrize(
    ("variable", "command"),
    [
        ("RELIQ_LOG_JSON", ["queue", "stats"]), ("RELIQ_LOG_TRACEBACKS", ["queue", "stats"]),
        ("RELIQ_OTEL", ["queue", "stats"]), ("RELIQ_ALLOW_EVICTION", ["queue", "stats"]), ("RELIQ_NO_AUTH", ["api"]),
        ("RELIQ_NO_AUTH", ["sqs"]),
    ],
)  # fmt: skip
def test_a_variable_that_is_neither_on_nor_off_is_one_line(url, monkeypatch, capsys, variable, command):
    monkeypatch.setenv(variable, "maybe")
    assert main.main([*command, "--url", url]) == 2
    assert capsys.readouterr().err == f"reliq: {variable} is 'maybe': set it to 1, or to 0\n"
