"""Each command of `reliq` that a page, a message or a docstring names exists, with the options given there."""

import argparse
import re
from pathlib import Path

import pytest

from reliq.cli.main import _parser
from reliq.cli.words import present
from tests.unit.test_documents import ROOT, documents

_INLINE = re.compile(r"`reliq ([^`]+)`")
_BLOCK = re.compile(r"^ *```(?:sh|console)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^ *(?:\$ )?reliq (.+)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"[A-Z.]+|\.\.\.|NOUN|…")
_SOURCES = ("reliq", "api", "monitor", "examples", "deploy", "tools")


def places() -> list[Path]:
    """Return what has words for people: pages, programs, templates, alerts."""
    kinds = (".py", ".html", ".yml", ".yaml", ".lua")
    sources = [file for folder in _SOURCES for file in (ROOT / folder).rglob("*") if file.suffix in kinds]
    return [*documents(), *sources]


def unknown(words: list[str], parser: argparse.ArgumentParser) -> str:
    """Return the first word that is no command and the first option that its command does not take; empty if none."""
    words = present(words)
    while words and (nouns := _commands(parser)):
        if words[0].startswith("-") or _PLACEHOLDER.fullmatch(words[0]):
            break
        if words[0] not in nouns:
            return words[0]
        parser, words = nouns[words[0]], words[1:]
    options = parser._option_string_actions
    return next((one for one in words if re.match(r"--[a-z]", one) and one.partition("=")[0] not in options), "")


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next((one.choices for one in parser._actions if isinstance(one, argparse._SubParsersAction)), {})


def named(text: str) -> list[list[str]]:
    """Return the words of each command in a text, without what stands behind a pipe, a comment or another command."""
    found = [*_INLINE.findall(text), *(line for block in _BLOCK.findall(text) for line in _LINE.findall(block))]
    ended = (re.split(r"\s#|[|;&<>()]|\$\(", one)[0] for one in found)
    return [re.sub(r"[,'\"\\\[\]]", " ", one).split() for one in ended if one.strip()]


def test_each_command_that_is_named_exists():
    parser, wrong, count = _parser(), {}, 0
    for place in places():
        for words in named(place.read_text(encoding="utf-8")):
            count += 1
            if one := unknown(words, parser):
                wrong[f"{place.relative_to(ROOT)}: reliq {' '.join(words)}"] = one
    assert wrong == {}
    assert count > 300


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("`reliq queue purge --all`", "--all"),
        ("```console\n$ reliq mesage send\n```", "mesage"),
        ("`reliq worker shop:app`", ""),
    ],
)
def test_a_command_that_does_not_exist_is_found(text, says):
    (words,) = named(text)
    assert unknown(words, _parser()) == says
