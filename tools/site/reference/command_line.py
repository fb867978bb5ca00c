"""The command line: every command of the parser, with its arguments, as `--help` has them."""

import argparse
from collections.abc import Iterator

from reliq.cli.main import _parser

_HEAD = """# The command line

`reliq COMMAND --help` prints the same. `python -m reliq` is `reliq`. Exit status: 0 done, 1 failed, 2 wrong usage,
130 after Ctrl-C; a service that SIGTERM stops ends with 0. Every command that talks to Redis takes `--url`: a URL,
or `env:NAME` or `file:/path` where it is; default `RELIQ_URL`, else `redis://localhost:6379/0`.
"""


def page() -> str:
    """Return the page with all commands."""
    return _HEAD + "\n".join(_command(*one) for one in commands())


def commands() -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    """Yield each command that can be run: its name, its parser and its line of help."""
    yield from _below("reliq", _parser())


def _below(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for word, below in action.choices.items():
                if word not in helps:  # a former word
                    continue
                if any(isinstance(one, argparse._SubParsersAction) for one in below._actions):
                    yield from _below(f"{name} {word}", below)
                else:
                    yield f"{name} {word}", below, helps.get(word, "")


def _command(name: str, parser: argparse.ArgumentParser, help: str) -> str:
    rows = [
        f"| {_names(action)} | {_text(action, parser)} |"
        for action in parser._actions
        if action.dest not in ("help", "url") and action.help != argparse.SUPPRESS
    ]
    table = "\n".join(["", "| argument | |", "|---|---|", *rows, ""]) if rows else ""
    return f"\n## `{name}`\n\n{help[:1].upper()}{help[1:]}.\n{table}"


def _names(action: argparse.Action) -> str:
    shown = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    shown = shown if isinstance(shown, str) else " ".join(shown)
    if action.choices:
        shown = "{" + ",".join(map(str, action.choices)) + "}"
    if not action.option_strings:
        return f"`{shown}`"
    value = "" if action.nargs == 0 else f" {shown}"
    return ", ".join(f"`{option}{value}`" for option in action.option_strings)


def _text(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    required = " (required)" if action.option_strings and action.required else ""
    return (text + required).replace("|", r"\|").replace("<", "&lt;")
