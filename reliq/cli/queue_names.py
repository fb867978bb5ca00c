"""Names of queues on the command line: lists of them, and what is said about an unknown one."""

import sys
from collections.abc import Collection, Iterable

from reliq.client.app import Reliq
from reliq.client.queue import Queue
from reliq.contract.nearest import nearest
from reliq.errors import InvalidSetting, ReliqError
from reliq.model.keys import check_grammar
from reliq.protocol.partial_reads import QUEUES
from reliq.runtime.looking import missing_now


class UnknownQueue(ReliqError):
    """A queue that a command is about does not exist: its name is probably mistyped."""


def names(text: str) -> list[str]:
    """Return the names of a comma-separated list."""
    return [name for name in (part.strip() for part in text.split(",")) if name]


def is_unknown(name: str, known: Collection[str]) -> bool:
    """Whether there is no such queue; without an answer from the node with the list of them, it may exist."""
    return name not in known and QUEUES not in (missing_now() or ())


def unknown(name: str, known: Iterable[str]) -> str:
    """Return the sentence about a queue that is not one of the known, with the nearest name."""
    near = nearest(name, known)
    return f"there is no queue {name!r}" + (f": did you mean {near!r}?" if near else "")


def known_names(names: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the names that are known; say on standard error which are not. Raises InvalidName for no valid name."""
    asked = list(dict.fromkeys(names))
    for name in asked:
        if is_unknown(check_grammar(name), known):
            print(f"reliq: {unknown(name, known)}", file=sys.stderr)
    return [name for name in asked if not is_unknown(name, known)]


def known_queue(app: Reliq, name: str) -> Queue:
    """Return a queue that exists; raises UnknownQueue for one without messages, policy, bindings or consumers ever."""
    queue = app.queue(name)
    found = app.queues(of_broadcasts=True)
    if is_unknown(name, found):
        raise UnknownQueue(unknown(name, found))
    return queue


def left_out(handled: Iterable[str], only: str | None, without: str | None) -> set[str]:
    """Return the queues of `handled` that --queues and --except leave out; raises InvalidSetting for unknown ones."""
    every = set(handled)
    for option, text in (("--queues", only), ("--except", without)):
        for name in names(text or ""):
            if name not in every:
                raise InvalidSetting(f"{option}: no handler of {name!r}, only of {', '.join(sorted(every))}")
    out = (every - set(names(only)) if only is not None else set()) | set(names(without or ""))
    if out == every:
        given = f"--queues {_given(only, '(all)')} --except {_given(without, '(none)')}"
        raise InvalidSetting(f"{given} leaves no queue to work on")
    return out


def _given(text: str | None, default: str) -> str:
    return default if text is None else repr(text)
