"""The parser of the command line, made once: to make it takes 24 ms of a core, as long as most commands take to run."""

import functools
import os
from argparse import ArgumentParser
from collections.abc import Sequence

from reliq.cli import main

_make = main._parser


def share() -> None:
    """Let the commands of this process have one parser, and make it; parsing does not change it."""
    main._parser = _shared
    _shared()


def _shared(words: Sequence[str] | None = None) -> ArgumentParser:
    """Variables of the environment are defaults in a parser: others need another one. A URL is read by the command."""
    read = sorted(one for one in os.environ.items() if one[0].startswith("RELIQ_") and one[0] != "RELIQ_URL")
    return _made(tuple(read))


@functools.cache
def _made(variables: tuple[tuple[str, str], ...]) -> ArgumentParser:
    return _make()
