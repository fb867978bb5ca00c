"""The order of words on the command line: options stand before, between and behind arguments."""

import pytest

from reliq.cli import main

PARSER = main._parser()


@pytest.mark.parametrize(
    ("verb", "arguments", "options", "found"),
    [
        ("message send", ["q", '{"a": 1}'], ["--delay", "10s"], {"queue": "q", "body": '{"a": 1}', "delay": "10s"}),
        ("message send", ["q", "-5"], ["--delay=10s", "--json"], {"body": "-5", "delay": "10s", "json": True}),
        ("dead redrive", ["q", "a", "b"], ["--dry-run"], {"queue": "q", "id": ["a", "b"], "dry_run": True}),
        ("message cancel", ["q", "a"], ["--json"], {"queue": "q", "id": "a", "json": True}),
        ("queue config", ["q", "rate=5/s", "burst=2"], ["--json"], {"changes": ["rate=5/s", "burst=2"]}),
        ("schedule add", ["s", "30s", "q", "{}"], ["--jitter", "1s"], {"when": "30s", "body": "{}", "jitter": "1s"}),
        ("queue stats", ["a", "b"], ["--json"], {"queues": ["a", "b"], "json": True}),
        ("size", [], ["--handler", "-1s", "--messages-per-second", "5"], {"handler": "-1s"}),
    ],
)
def test_options_stand_anywhere(verb, arguments, options, found):
    for place in range(len(arguments) + 1):
        words = [*verb.split(), *arguments[:place], *options, *arguments[place:]]
        assert found.items() <= vars(PARSER.parse_args(words)).items(), words


def test_options_stand_in_several_places():
    words = ["message", "send", "--json", "q", "--delay", "1s", "x", "--header", "a=b", "--header=c=d"]
    found = PARSER.parse_args(words)
    assert (found.queue, found.body, found.delay, found.header) == ("q", "x", "1s", ["a=b", "c=d"])


def test_behind_two_dashes_there_are_no_options():
    found = PARSER.parse_args(["message", "send", "q", "--json", "--", "--delay"])
    assert (found.queue, found.body, found.json, found.delay) == ("q", "--delay", True, None)


def test_an_option_whose_value_may_be_missing_takes_no_argument_that_stands_before_it():
    found = PARSER.parse_args(["queue", "stats", "q", "--watch"])
    assert (found.queues, found.watch) == (["q"], 2.0)
    assert PARSER.parse_args(["queue", "stats", "q", "--watch", "--json"]).watch == 2.0
    assert PARSER.parse_args(["queue", "stats", "--watch", "5", "q"]).watch == 5.0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("queue pause q x", "'x' is one argument too many"),
        ("monitor x", "'x' is one argument too many"),
        ("message send q --dely 10s x", "there is no option '--dely': did you mean '--delay'?"),
        ("message send --delay", "argument --delay: expected one argument"),
        ("message send q --delay --json x", "argument --delay: expected one argument"),
        ("message send --json", "the following arguments are required: queue"),
    ],
)
def test_what_is_wrong_is_named_as_before(capsys, words, says):
    with pytest.raises(SystemExit):
        PARSER.parse_args(words.split())
    assert capsys.readouterr().err.splitlines()[-1].endswith(says)
