"""What an error says, in one line, out of the text that the history of a message keeps."""

import traceback

import pytest

import reliq
from reliq.cli.options import error_line
from reliq.model.element import Failure
from reliq.model.error_text import classed_gist, gist
from reliq.model.handlers import Handlers
from reliq.model.message import Message
from reliq.model.outgoing import NewMessage
from reliq.worker.outcome import after_error

HANDLERS = Handlers()
HANDLER = HANDLERS.add("q", lambda message: None, retry=None, retry_on=BaseException, dead_on=(), time_limit=None)


def caught(error):
    def fail():
        raise error

    with pytest.raises(type(error)) as found:
        fail()
    return found.value


def raised(error, cause=None):
    """The failure that a worker writes into the history for an error that was raised."""
    error.__cause__ = cause and caught(cause)
    move = after_error(HANDLER, Message.decode("q", NewMessage("x").element(1)), caught(error), "worker")
    return Message.decode("q", move.again).errors[-1]


class Local(Exception):
    pass


def noted():
    error = ValueError("no such order")
    error.add_note("it was order 7")
    return error


QUOTED = "Traceback (most recent call last):\n  File 'a', line 1\nKeyError: 'inner'\n"
ERRORS = {
    "one line": (ValueError("no such order"), "no such order"),
    "several lines": (ValueError("no such order\nhint: look\nbye"), "no such order"),
    "begins with an empty line": (ValueError("\n\n  no such order\nbye"), "no such order"),
    "no text": (ValueError(), ""),
    "a note": (noted(), "no such order"),
    "a class of a function": (Local("no such order\nbye"), "no such order"),
    "a group": (ExceptionGroup("many", [ValueError("a"), KeyError("b")]), "many (2 sub-exceptions)"),
    "quotes a traceback": (ValueError("the tool failed:\n" + QUOTED), "the tool failed:"),
    "on purpose": (reliq.Dead("no such order\nhint: look"), "no such order"),
    "a retry on purpose": (reliq.Retry("come back\nlater"), "come back"),
    "long": (ValueError("no such order\n" + "x" * 9000 + "\nbye"), "no such order"),
}


@pytest.mark.parametrize(("error", "said"), ERRORS.values(), ids=ERRORS)
def test_the_first_line_of_an_error_is_shown(error, said):
    assert gist(raised(error)) == said


@pytest.mark.parametrize(("error", "said"), ERRORS.values(), ids=ERRORS)
def test_the_first_line_of_the_latest_of_several_errors_is_shown(error, said):
    assert gist(raised(error, cause=ValueError("before"))) == said


def test_an_error_that_was_never_raised_has_no_traceback():
    error = reliq.TimeLimitExceeded("the handler ran too long")
    move = after_error(HANDLER, Message.decode("q", NewMessage("x").element(1)), error, "worker")
    (failure,) = Message.decode("q", move.again).errors
    assert (gist(failure), classed_gist(failure)) == (
        "the handler ran too long",
        "reliq.errors.TimeLimitExceeded: the handler ran too long",
    )


def test_a_text_that_a_consumer_has_given_is_shown_as_it_is():
    failure = Failure(0, "worker", "Retry", "the service is away\nsince noon")
    assert (gist(failure), classed_gist(failure)) == ("the service is away", "the service is away")


def test_a_traceback_without_its_class_shows_its_last_line():
    failure = Failure(0, "worker", "builtins.KeyError", QUOTED)
    assert gist(failure) == "KeyError: 'inner'"


def test_a_class_of_a_script_is_known_although_tracebacks_leave_its_module_out():
    text = "".join(traceback.format_exception(ValueError("no\nbye"))).replace("ValueError", "Mine")
    frames = "Traceback (most recent call last):\n  File 'a', line 1\n"
    assert gist(Failure(0, "worker", "__main__.Mine", frames + text)) == "no"


def test_a_long_error_keeps_its_first_and_its_last_line():
    failure = raised(ValueError("no such order\n" + "x" * 9000 + "\nbye"))
    assert len(failure.text.encode()) <= 4096
    assert failure.text.startswith("Traceback")
    assert "ValueError: no such order\n" in failure.text
    assert failure.text.endswith("bye\n")


def test_what_is_kept_of_the_errors_in_between_is_what_they_say_first():
    message = Message.decode("q", NewMessage("x").element(1))
    for number in range(4):
        failure = raised(ValueError(f"try {number}\nhint: look"))
        message = Message.decode("q", message.failed(failure))
    assert [one.text for one in message.errors[1:-1]] == ["ValueError: try 1", "ValueError: try 2"]
    assert [gist(one) for one in message.errors] == ["try 0", "try 1", "try 2", "try 3"]


def test_a_traceback_that_fits_is_kept_as_it_is():
    failure = raised(ValueError("no such order\n" + "x" * 2500 + "\nbye"))
    assert " ... " not in failure.text


def test_a_list_of_errors_says_what_a_body_lacks_and_where_a_line_was_cut():
    said = "the body does not fit Order, at $.customer.addresses[0]: Object missing required field `number`"
    failure = Failure(at=0, worker="w", error_class="reliq.errors.InvalidBody", text=said)
    assert error_line(failure) == f"reliq.errors.InvalidBody: {said}"
    shown = error_line(Failure(at=0, worker="w", error_class="ValueError", text="Größe 订单 ☕ C:\\new\x1b[31m\u202e"))
    assert shown == "ValueError: Größe 订单 ☕ C:\\new\\x1b[31m\\u202e"
    long = error_line(Failure(at=0, worker="w", error_class="ValueError", text="x" * 9000))
    assert (len(long), long[:14], "x ... x" in long) == (199, "ValueError: xx", True)
