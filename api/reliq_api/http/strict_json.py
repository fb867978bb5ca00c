"""Strict JSON, which every parser reads in the same way."""

import codecs
import json
import re
from collections.abc import Callable
from typing import Any

import msgspec

from reliq_api.http.problems import Problem

DEPTH_LARGEST = 64
_NESTED = (dict, list)
_UTF8_PART = 1024 * 1024
_NAME_ENDS = re.compile(rb'"[ \t\r\n]*:')
_BRACKETS = re.compile(rb'(?s)"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]')


def check_json_text(body: bytes) -> None:
    """Refuse text that is not UTF-8 or nested too deeply, before a parser recurses into it."""
    _check_utf8(body)
    if body.count(b"[") + body.count(b"{") <= DEPTH_LARGEST:
        return
    depth = 0
    for found in _BRACKETS.finditer(body):
        first = found[0][:1]
        if first in b"[{":
            depth += 1
            if depth > DEPTH_LARGEST:
                raise Problem("invalid_json", f"the body is nested deeper than {DEPTH_LARGEST} levels")
        elif first in b"]}":
            depth -= 1


def _check_utf8(body: bytes) -> None:
    """Refuse what is not UTF-8, in parts: the text of a large body would take up to four times its memory."""
    if body.isascii():
        return
    decoder = codecs.getincrementaldecoder("utf-8")()
    for start in range(0, len(body), _UTF8_PART):
        before = start - len(decoder.getstate()[0])
        part = body[start : start + _UTF8_PART]
        try:
            decoder.decode(part, final=start + _UTF8_PART >= len(body))
        except UnicodeDecodeError as error:
            raise Problem("invalid_json", f"the body is not UTF-8 (byte {before + error.start})") from None


def read_json(text: bytes, decode: Callable[[bytes], Any] = msgspec.json.decode) -> Any:
    """Return a JSON value as message.json() would. Raises Problem, or msgspec.ValidationError for too large a number.

    Stricter than Python's parser: no NaN, no lone surrogates, and no repeated names in an object, as parsers differ in
    which of the two they use. `decode`: of msgspec, for values of one type; ValidationError for others.
    """
    check_json_text(text)
    try:
        value = decode(text)
    except msgspec.ValidationError:
        raise
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise no_json(text, error) from None
    # Each name has one colon. If there are more colons, some are part of texts, or a name is repeated.
    colons = text.count(b":")
    if colons > 1 and colons != (names := _names(value)) and len(_NAME_ENDS.findall(text)) != names:
        json.loads(text, object_pairs_hook=_distinct)
    return value


def no_json(text: bytes, error: Exception) -> Problem:
    """Return the problem of a body that a parser refuses."""
    return Problem("invalid_json", f"the body is not JSON: {error}" if text.strip() else "the body is empty")


def _names(value: Any) -> int:
    """Count the names of all objects in a value."""
    count, inside = 0, [value]
    for one in inside:  # to which it adds
        if type(one) is dict:
            count += len(one)
            inside += one.values()
        elif type(one) is list:
            inside += [item for item in one if type(item) in _NESTED]
    return count


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise Problem("invalid_json", "an object has the same name twice")
