"""What the log says of failing handlers: every kind of failure, and not more than the disk can hold."""

import logging

import pytest

from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.protocol.outcomes import buried, failure_now
from reliq.runtime.failures import LINES, WINDOW, FailureLog
from reliq.runtime.logging import JsonLines


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def failures(clock, caplog):
    caplog.set_level(logging.INFO)
    return FailureLog(clock)


def message(queue="orders"):
    return Message.decode(queue, NewMessage("secret body", id="7").element(now=1))


def fail(failures, error, of=None):
    failure = failure_now("worker", type(error).__qualname__, f"Traceback: line 3\n{error}")
    failures.failed(of or message(), failure, error, 5.0)


def fields(record):
    import json

    return json.loads(JsonLines().format(record))


def test_a_failure_has_queue_id_failures_next_try_class_and_text(failures, caplog):
    fail(failures, KeyError("oder"))
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    found = fields(record)
    expected = {"queue": "orders", "id": "7", "failures": 1, "retry_in_seconds": 5.0, "error_class": "KeyError"}
    assert {name: found[name] for name in expected} == expected
    assert (found["error"], "exception" in found) == ("'oder'", False)
    assert "secret body" not in record.getMessage()


def test_the_traceback_is_there_when_asked_for_and_at_debug(failures, caplog, monkeypatch):
    monkeypatch.setenv("RELIQ_LOG_TRACEBACKS", "1")
    fail(failures, KeyError("oder"))
    monkeypatch.delenv("RELIQ_LOG_TRACEBACKS")
    caplog.set_level(logging.DEBUG)
    fail(failures, KeyError("oder"))
    assert ["line 3" in fields(record)["exception"] for record in caplog.records] == [True, True]


def test_a_death_is_an_error_with_the_traceback_of_the_last_failure(failures, caplog):
    failure = failure_now("worker", "KeyError", "Traceback: line 3\nKeyError: 'oder'")
    failures.died("orders", buried(message(), failure, "max_failures").again)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    found = fields(record)
    assert (found["queue"], found["id"], found["reason"], found["failures"]) == ("orders", "7", "max_failures", 1)
    assert (found["error_class"], found["exception"]) == ("KeyError", "Traceback: line 3\nKeyError: 'oder'")


def test_a_death_says_what_its_error_says_first(failures, caplog):
    text = "Traceback (most recent call last):\n  File 'a', line 3\nKeyError: no such order\nhint: look\nbye"
    failures.died("orders", buried(message(), failure_now("worker", "KeyError", text), "max_failures").again)
    (record,) = caplog.records
    assert (fields(record)["error"], fields(record)["exception"]) == ("no such order", text)


def test_a_storm_writes_few_lines_and_says_how_many_were_left_out(failures, caplog, clock):
    for _ in range(10_000):
        fail(failures, KeyError("oder"))
    assert len(caplog.records) == LINES + 1
    assert "further lines of this kind are counted" in caplog.messages[-1]
    caplog.clear()
    clock.now += WINDOW
    failures.flush()
    (record,) = caplog.records
    assert fields(record)["left_out"] == 10_000 - LINES
    assert (fields(record)["queue"], fields(record)["error_class"]) == ("orders", "KeyError")


def test_a_storm_of_one_kind_hides_no_other(failures, caplog):
    for _ in range(1000):
        fail(failures, KeyError("oder"))
    caplog.clear()
    fail(failures, ValueError("no such order"))
    fail(failures, KeyError("oder"), of=message("bills"))
    assert [fields(record)["queue"] for record in caplog.records] == ["orders", "bills"]


def test_after_its_window_a_kind_is_written_again(failures, caplog, clock):
    for _ in range(100):
        fail(failures, KeyError("oder"))
    caplog.clear()
    clock.now += WINDOW
    fail(failures, KeyError("oder"))
    assert [fields(record).get("left_out") for record in caplog.records] == [100 - LINES, None]


def test_the_end_of_the_worker_says_what_was_left_out(failures, caplog):
    for _ in range(100):
        fail(failures, KeyError("oder"))
    caplog.clear()
    failures.flush(everything=True)
    assert [fields(record)["left_out"] for record in caplog.records] == [100 - LINES]
    failures.flush(everything=True)
    assert len(caplog.records) == 1


def test_ever_new_error_classes_take_neither_memory_nor_disk(failures, caplog):
    for number in range(5000):
        fail(failures, type(f"Error{number}", (Exception,), {})("x"))
    assert len(caplog.records) == 1000 + LINES + 1
    assert len(failures._windows) == 1001


def test_an_error_whose_text_cannot_be_read_is_logged(failures, caplog):
    class Rude(Exception):
        def __str__(self):
            raise RuntimeError("no")

    failures.failed(message(), failure_now("worker", "Rude", "Rude"), Rude(), 5.0)
    assert "error=<exception str() failed>" in caplog.text
