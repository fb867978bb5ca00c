"""Faulty versions of durable handlers, each of which the simulation must find."""

import functools
from collections.abc import Generator
from typing import Any
from unittest import mock

from reliq import ops
from reliq.features.output import steps as output
from reliq.features.steps import model
from reliq.features.steps import ops as own
from reliq.features.steps import steps as durable
from reliq.protocol import bringing
from tests.simulation.changed import Mutant, script

#: Changes of scripts: a pattern, and what takes its place.
SCRIPTS = {
    "a message that rests frees its key": (r"elseif frees and [^\n]* then", "else"),
    "a message that frees its key keeps it": (r"elseif frees and [^\n]* then", "elseif false then"),
    "the latest frees its key": (r"elseif frees and [^\n]* then", "elseif frees then"),
    "the latest value of a signal counts": (r"if had then return .*? end\n", ""),
    "a parked message does not hear its signal": (r"if waited == signal then", "if false then"),
    "a wait does not look for its signal": (r"if value then\n.*?\n.*?\nend", ""),
    "a wait ends too early": (r"take_timeouts\(waits, now,", "take_timeouts(waits, now + 1000,"),
    "a wait that has timed out is not noted": (r"write_signal\(q.followed, q.config, id, signal, 't'\)", ""),
    "a record stays when its message has left": (r"have_left = function\(q, elements\) all_leave.*? end,", ""),
    "the record of a dead letter stays when that is deleted": (r"are_discarded = function", "unused = function"),
    "a message that has ended takes signals": (r"if head == ENDED then return 'ended' end", ""),
    "a sleep is not recorded": (r"(entry = entry .. string.format.*?\n)write_entry.*?\n", r"\1"),
    "a failed step has failed for ever": (r"if entry and string.find\(entry, .*?\) then", "if false then"),
    "a message rests without being removed": (r"(local function part_from.*?\n).*?\n", r"\1"),
    "a run that was robbed emits": (
        r"(?m)^if [^\n]*return 'lost' end\n(local head = redis.call\('HGET', followed, head)",
        r"\1",
    ),
    "a repeated call emits twice": (r"if not token then return 'ok' end", "token = token or latest"),
    "a late call replaces a result": (r"if former and string.find\(former, .*? end\n", ""),
}


def _without_beginning(self: Any, entry: Any) -> Generator[Any, Any, None]:
    """Do not note the beginning of a step."""
    if entry.kind != "b":
        yield from _record(self, entry)


_record = durable.Hand.record

DURABLE_MUTANTS: dict[str, Mutant] = {
    **{name: functools.partial(script, *change) for name, change in SCRIPTS.items()},
    "a step at most once is not noted before": lambda: mock.patch.object(durable.Hand, "record", _without_beginning),
    "a record does not go along": lambda: mock.patch.object(bringing, "ALONG", (output.ALONG,)),
    "a record is never read": lambda: mock.patch.object(model.Book, "read"),
    "a message that rests has failed": lambda: mock.patch.object(
        durable, "resting", lambda message: message.again(failures=message.failures + 1)
    ),
    "a message that rests has not begun": lambda: mock.patch.object(durable, "_going_on", lambda element: element),
    "a parked message stays when it is cancelled": lambda: mock.patch.object(
        own, "remove_parked", lambda keys, *_: ops.count(keys, "cancelled", 0)
    ),
}
