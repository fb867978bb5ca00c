"""A queue's policy as a form: conversion to fields and back."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from reliq.contract import kinds
from reliq.contract.keywords import Config
from reliq.contract.settings import BY_NAME, SETTINGS, Setting
from reliq.errors import InvalidSetting


def groups() -> list[tuple[str, list[Setting]]]:
    """Return the settings by their groups, in the order of the contract."""
    return [(name, list(entries)) for name, entries in groupby(SETTINGS, key=lambda one: one.group)]


def written(config: Config) -> dict[str, str]:
    """Return the texts of the fields; empty for defaults."""
    return {one.name: _text(one, getattr(config, one.name)) for one in SETTINGS}


def _text(setting: Setting, value: Any) -> str:
    return "" if value == setting.default else setting.kind.text(value)


def changes(fields: Sequence[tuple[str, str]], before: Config) -> dict[str, Any]:
    """Return the changes of the form for `queue.configure`; raises InvalidSetting."""
    given, was = dict(fields), written(before)
    return {
        one.name: _value(one, given)
        for one in SETTINGS
        if one.name in given and given[one.name].strip() != was[one.name]
    }


def field_of(fault: str) -> str:
    """Return the field that an error is about, by the word at its start; empty if none is."""
    word = fault.partition(" ")[0]
    return word if word in BY_NAME else ""


def _value(setting: Setting, given: Mapping[str, str]) -> Any:
    text = given[setting.name].strip()
    if not text:
        return None
    if isinstance(setting.kind, kinds.Bytes):
        text = text.replace("_", "")
    if not isinstance(setting.kind, kinds.Whole):
        return setting.kind.check(text, setting.name)
    digits = text.replace("_", "")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        raise InvalidSetting(f"{setting.name} is {text!r}: give a whole number, or nothing")
    return int(digits)
