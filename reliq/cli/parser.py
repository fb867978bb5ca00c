"""How the words of a command line are read, and what is said of those that are wrong."""

import argparse
import re
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from reliq.cli.words import present
from reliq.contract.nearest import nearest
from reliq.runtime import logging as logs


class Parser(argparse.ArgumentParser):
    """A parser whose options may stand between its arguments; also for the commands' parsers.

    Its error messages have no passwords of URLs and no escape sequences.
    """

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self._negative_number_matcher = re.compile(r"-\.?\d")  # "-1s" is a wrong value, not an option

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = present(sys.argv[1:] if args is None else args)
        if words and words[0].startswith("-") and words[0] not in self._option_string_actions:
            self.error(f"the options of a command stand after it: reliq COMMAND {words[0]}")
        return super().parse_args(words, namespace)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Refuse what a command does not know in its own name: argparse leaves that to the parser of all commands."""
        if self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        found, unknown = super().parse_known_args(self._options_first(args), namespace)
        if unknown := [one for one in unknown if one != "--"]:
            self.error(self._hint(unknown[0]))
        return found, unknown

    def _options_first(self, words: Sequence[str]) -> list[str]:
        """Put the options first: argparse gives all arguments before an option to what they can be, once for all."""
        options: list[str] = []
        arguments: list[str] = []
        ahead = deque(words)
        while ahead:
            word = ahead.popleft()
            if word == "--":
                arguments += ahead
                break
            if self._parse_optional(word) is None:
                arguments.append(word)
                continue
            options.append(word)
            if ahead and self._takes_value(word) and ahead[0] != "--" and self._parse_optional(ahead[0]) is None:
                options.append(ahead.popleft())
        return [*options, "--", *arguments] if arguments else options

    def _takes_value(self, word: str) -> bool:
        """Return whether the word after this option is its value."""
        known = self._option_string_actions
        meant = [word] if word in known else [one for one in known if one.startswith(word)]  # may be abbreviated
        return len(meant) == 1 and known[meant[0]].nargs != 0

    def _hint(self, unknown: str) -> str:
        if not unknown.startswith("-"):
            return f"{unknown!r} is one argument too many"
        name = unknown.partition("=")[0]
        return f"there is no option {unknown!r}: {self._meant(name, self._option_string_actions, 0.7)}"

    def _meant(self, word: str, known: Iterable[str], likeness: float = 0.6) -> str:
        near = nearest(word, known, likeness)
        return f"did you mean {near!r}?" if near else f"`{self.prog} --help` lists them"

    def error(self, message: str) -> NoReturn:
        super().error(logs.one_line(message))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Name the nearest word in place of all of them."""
        if not isinstance(action, argparse._SubParsersAction) or value in action.choices:  # noqa: SLF001
            super()._check_value(action, value)
            return
        raise argparse.ArgumentError(None, f"there is no command {value!r}: {self._meant(value, action.choices)}")
