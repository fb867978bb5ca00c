"""Characters that turn the text beside them around, or are not seen, are shown as escapes in logs and on terminals."""

import json
import logging

import pytest

from reliq.runtime.logging import JsonLines, Lines, printable, printable_json

HIDDEN = [
    "\u202e", "\u202a", "\u2066", "\u2069", "\u061c", "\u200f", "\u200b", "\ufeff", "\u2028", "\x1b", "\x9b", "\x00",
    "\xad", "\U000e0041", "\udc80",
]  # fmt: skip


@pytest.mark.parametrize("hidden", HIDDEN, ids=ascii)
def test_a_hidden_character_is_an_escape(hidden):
    escape = hidden.encode("unicode_escape").decode()
    assert printable(f"exe{hidden}gpj.\tx\n") == f"exe{escape}gpj.\\tx\\n"
    assert printable(f"exe{hidden}gpj.\tx\n", lines=True) == f"exe{escape}gpj.\tx\n"


@pytest.mark.parametrize("seen", ["abc \\ ä €", "שלום", "你好", "\xa0", "\u3000", "🙂"])
def test_letters_of_every_script_stay(seen):
    assert printable(seen) == seen


@pytest.mark.parametrize("hidden", HIDDEN, ids=ascii)
def test_in_json_it_is_an_escape_of_json(hidden):
    text = printable_json({"Größe": f"订单{hidden}"})
    assert text.startswith('{"Größe": "订单')
    assert hidden not in text
    assert json.loads(text) == {"Größe": f"订单{hidden}"}


@pytest.mark.parametrize("hidden", HIDDEN, ids=ascii)
def test_no_line_of_a_log_has_a_hidden_character(hidden):
    record = logging.LogRecord("reliq", logging.ERROR, "", 0, "failed error=%s", (f"a{hidden}b",), None)
    for formatter in (Lines(), JsonLines()):
        assert hidden not in formatter.format(record)
    if hidden != "\udc80":  # cannot be encoded
        assert json.loads(JsonLines().format(record))["error"] == f"a{hidden}b"
