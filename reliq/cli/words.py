"""The words of the command line: `reliq NOUN VERB`, and the former words, which go on working and are not shown."""

import argparse
from collections.abc import Sequence
from typing import Any

NOUNS = {
    "queue": "queues",
    "message": "messages",
    "worker": "workers",
    "dead": "dead letters",
    "delayed": "delayed messages",
    "parked": "messages that wait for a signal",
    "schedule": "messages at the times of cron expressions, or at intervals",
    "topic": "bindings of queues to routing keys",
    "batch": "batches of messages",
    "flow": "flows of messages that wait for each other",
    "key": "API keys",
}

#: What the help of a noun says after its verbs.
MORE = {"worker": "`reliq worker MODULE:APP` is short for `reliq worker run MODULE:APP`."}

#: Former words, by the present ones.
FORMER = {
    "queue stats": "stats",
    "queue config": "config",
    "queue pause": "pause",
    "queue resume": "resume",
    "queue breaker": "breaker",
    "queue purge": "purge",
    "queue partitions": "partitions",
    "queue audit": "audit",
    "message send": "send",
    "message publish": "publish",
    "message find": "find",
    "message cancel": "cancel",
    "worker list": "workers",
    "batch list": "batches",
    "topic": "topics",
    "key": "keys",
}


class Words:
    """The commands of a parser, as `add_parser` makes them: "NOUN VERB", or a word alone."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._commands: Any = parser.add_subparsers(title="commands", metavar="COMMAND")
        self._verbs: dict[str, Any] = {}

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser:
        """Add a command, also under its former word."""
        noun, _, verb = name.rpartition(" ")
        commands = self._verbs_of(noun) if noun else self._commands
        parser: argparse.ArgumentParser = commands.add_parser(verb, **options)
        self._keep_former(name, parser)
        return parser

    def _verbs_of(self, noun: str) -> Any:
        if noun not in self._verbs:
            what = NOUNS[noun]
            description = what[0].upper() + what[1:] + "."
            parser = self._commands.add_parser(noun, help=what, description=description, epilog=MORE.get(noun))
            self._verbs[noun] = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
            self._keep_former(noun, parser)
        return self._verbs[noun]

    def _keep_former(self, name: str, parser: argparse.ArgumentParser) -> None:
        if name in FORMER:
            self._commands.choices[FORMER[name]] = parser  # without a line in the help

    def name_verbs(self) -> None:
        """Name the verbs of each noun in the help, once all are there."""
        for line in self._commands._choices_actions:  # noqa: SLF001
            if line.dest in self._verbs:
                line.help = f"{line.help}: {', '.join(self._verbs[line.dest].choices)}"


def present(arguments: Sequence[str]) -> list[str]:
    """Return the arguments with the verb of `reliq worker MODULE:APP`, which needs none."""
    match list(arguments):
        case ["worker", first, *others] if first not in ("run", "list", "pause", "resume", "stop", "-h", "--help"):
            return ["worker", "run", first, *others]
        case words:
            return words
