"""The output of a message, as a command."""

import json

from reliq.cli import main


def test_output_is_printed_as_it_was_emitted(app, capsys):
    def say(*arguments):
        return main.main(["message", "output", "orders", *arguments, "--url", app.url]), *capsys.readouterr()

    queue = app.queue("orders")
    one = queue.send("x")
    assert say(one, "--no-follow") == (0, "", "")
    with queue.consumer() as consumer:
        (message,) = consumer.claim()
        message.emit("once ")
        consumer.release(message)
        (message,) = consumer.claim()
        message.emit("upon\x1b[0m\n")
        message.emit({"a": 1})
        consumer.ack(message)
    status, out, err = say(one)
    assert (status, out) == (0, 'once upon\\x1b[0m\n{"a": 1}\n')
    assert err == "\nreliq: run 2 of the handler begins\n"
    lines = [json.loads(line) for line in say(one, "--json")[1].splitlines()]
    assert [(line["run"], line["value"]) for line in lines] == [(1, "once "), (2, "upon\x1b[0m\n"), (2, {"a": 1})]
    assert say(one, "--after", lines[1]["id"])[1] == '{"a": 1}\n'


def test_a_message_that_emits_nothing_in_time_is_named(app, capsys):
    def say(*arguments):
        return main.main(["message", "output", "orders", "nope", *arguments, "--url", app.url]), *capsys.readouterr()

    assert say("--wait", "10ms") == (1, "", "reliq: there is no queue 'orders'\n")
    app.queue("orders").send("x")
    assert say("--wait", "10ms") == (1, "", "reliq: no output of message nope came within 0.01 s\n")
    assert say("--wait", "10ms", "--json")[0] == 1
    status, _, err = say("--wait", "-1")
    assert (status, "wait is '-1': it must be between 0 seconds and 366 days" in err) == (2, True)


def test_an_unknown_message_to_cancel_is_said_to_be_in_no_place(app, capsys):
    queue = app.queue("orders")
    queue.send("x")
    assert main.main(["message", "cancel", "orders", "nope", "--url", app.url]) == 1
    assert capsys.readouterr().out == "message nope is not in queue orders: it was handled, removed, or never sent\n"


def test_the_cost_of_a_message_is_given_as_a_flag(app, capsys):
    assert main.main(["message", "send", "orders", "x", "--cost", "5", "--url", app.url]) == 0
    with app.queue("orders").consumer() as consumer:
        (message,) = consumer.claim()
        assert message.cost == 5
        consumer.ack(message)
