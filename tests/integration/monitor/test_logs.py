"""Log lines: one an event, whatever is in the values."""

import json
import logging
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from reliq.runtime.logging import JsonLines, Lines, Paragraphs
from tests.support.workers import Child


def record(template, *arguments, error=None):
    return logging.LogRecord(
        "reliq.worker", logging.WARNING, "loop.py", 1, template, arguments, error and (type(error), error, None)
    )


def as_json(*arguments, **options):
    return json.loads(JsonLines().format(record(*arguments, **options)))


@pytest.mark.parametrize("nasty", ["a\nb", "a\r\nb", "a\x1b[31mb", "a\x00b", "a\u2028b", "a\x85b", "a\x0bb"])
@pytest.mark.parametrize("formatter", [Lines(), JsonLines()], ids=["text", "json"])
def test_no_value_makes_a_second_line(formatter, nasty):
    line = formatter.format(record("dead queue=%s", nasty))
    assert line.isprintable()
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize("formatter", [Lines(), JsonLines()], ids=["text", "json"])
def test_a_traceback_stays_in_its_line(formatter):
    try:
        raise ValueError("two\nlines")  # noqa: TRY301
    except ValueError as error:
        line = formatter.format(record("on_dead of queue=%s raised", "orders", error=error))
    assert "ValueError: two" in line
    assert len(line.splitlines()) == 1


def test_on_a_terminal_it_has_its_lines_and_none_of_them_begins_like_an_event():
    shown = Paragraphs().format(record("dead queue=%s exception=%s", "orders", "Traceback:\r\n  a\nKeyError: \x1b[31m"))
    first, *further = shown.split("\n")
    assert first.endswith("dead queue=orders exception=Traceback:")
    assert further == ["      a", "    KeyError: \\x1b[31m"]


@pytest.mark.parametrize("formatter", [Lines(), Paragraphs(), JsonLines()], ids=["text", "terminal", "json"])
@pytest.mark.parametrize(
    "url",
    [
        "redis://user:secret@host:6379/0",
        "rediss://:secret@host",
        "redis://:s@cret@host/1",
        "redis+sentinel://u:secret@a,b/m",
    ],
)
def test_no_password_is_written(formatter, url):
    for template, arguments in (("waiting for Redis: %s", (url,)), (f"at {url} now", ()), ("url=%s", (url,))):
        line = formatter.format(record(template, *arguments))
        assert "cret" not in line
        assert "host" in line or "a,b" in line


def test_text_lines_are_time_level_logger_message():
    line = Lines().format(record("dead queue=%s id=%s", "orders", "7"))
    assert line.split(" ", 2)[2] == "WARNING reliq.worker dead queue=orders id=7"


def test_json_has_the_named_values_as_fields_of_their_type():
    entry = as_json("time_limit queue=%s id=%s seconds=%g", "orders", "7", 1.5)
    assert (entry["queue"], entry["id"], entry["seconds"]) == ("orders", "7", 1.5)
    assert (entry["level"], entry["logger"]) == ("WARNING", "reliq.worker")
    assert entry["message"] == "time_limit queue=orders id=7 seconds=1.5"


def test_a_value_cannot_pass_itself_off_as_a_field():
    entry = as_json("dead queue=%s", "orders level=DEBUG id=1")
    assert (entry["level"], entry["queue"]) == ("WARNING", "orders level=DEBUG id=1")
    assert "id" not in entry


@pytest.mark.parametrize(
    ("template", "arguments", "expected"),
    [
        ("%s queue=%s", ("x", "orders"), {"queue": "orders"}),
        ("100%% of queue=%s", ("orders",), {"queue": "orders"}),
        ("n=%03d share=%.2f", (7, 0.5), {"n": 7, "share": 0.5}),
        ("a=%s b=%s", ({"a": 1},), {}),
        ("no values", (), {}),
    ],
)
def test_fields_are_read_from_the_template(template, arguments, expected):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.LogRecord, "getMessage", lambda self: "")
        entry = as_json(template, *arguments)
    assert {name: entry[name] for name in entry if name not in ("time", "level", "logger", "message")} == expected


def test_json_has_what_the_application_gave_as_extra():
    class Rude:
        def __str__(self):
            raise RuntimeError("no")

    cyclic: list[object] = []
    cyclic.append(cyclic)
    given = {
        "order": 7, "share": float("nan"), "at": datetime(2026, 1, 2, tzinfo=UTC), "rude": Rude(), "_logger": object(),
        "url": "redis://u:secret@host", "parts": [{1: "redis://u:secret@host"}], "cyclic": cyclic,
        "queue": "other", "level": "none", "time": "never", "logger": "mine",
    }  # fmt: skip
    one = record("dead queue=%s", "orders")
    vars(one).update(given)
    line = JsonLines().format(one)
    entry = json.loads(line, parse_constant=pytest.fail)
    assert (entry["order"], entry["share"], entry["at"]) == (7, "nan", "2026-01-02 00:00:00+00:00")
    assert (entry["queue"], entry["level"], entry["logger"]) == ("orders", "WARNING", "reliq.worker")
    assert entry["time"] != "never"
    assert "secret" not in line
    assert (entry["parts"][0].keys(), "_logger" in entry) == ({"1"}, False)
    assert ("Rude" in entry["rude"], entry["cyclic"]) == (True, "[[...]]")


def test_json_of_a_record_without_extra_has_nothing_else():
    assert as_json("stopped worker=%s", "w").keys() == {"time", "level", "logger", "message", "worker"}


def test_the_command_line_logs_json_when_asked_to(url):
    command = [sys.executable, "-m", "reliq", "monitor", "--log-json", "--url", url]
    running = Child(command, stderr=subprocess.PIPE, text=True)
    first = running.stderr.readline()
    running.terminate()
    with running:
        rest = running.stderr.read()
    assert json.loads(first)["message"] == "monitor started"
    assert all(json.loads(line) for line in rest.splitlines())
