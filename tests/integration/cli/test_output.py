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
