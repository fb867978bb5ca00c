"""Faulty versions of reliq, each of which the simulation must find."""

import contextlib
import functools
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import reliq.ops.request
from reliq.model.keys import QueueKeys
from reliq.ops import Sleep, Steps, Transaction, Watch
from reliq.ops.request import script_named
from reliq.protocol.consumer import ConsumerSteps
from reliq.runtime.moment import Moment
from reliq_monitor import reclaim
from reliq_monitor.liveness import Liveness
from tests.simulation import monitors, workers

_LUA = Path(reliq.ops.request.__file__).parents[1] / "lua"

Mutant = Callable[[], contextlib.AbstractContextManager[Any]]


@contextlib.contextmanager
def script(pattern: str, replacement: str) -> Iterator[None]:
    """Change every script that has this text."""
    with contextlib.ExitStack() as stack:
        changed = 0
        for path in _LUA.glob("*.lua"):
            one = script_named(path.stem)
            source = re.sub(pattern, replacement, one.source)
            if source != one.source:
                sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
                stack.enter_context(mock.patch.multiple(one, source=source, sha=sha))
                changed += 1
        assert changed, f"no script has {pattern!r}"
        yield


def _no_watch(original: Any) -> Any:
    """The steps of a reclaim without their WATCH: the reads alone, and no compensation."""

    def reclaimed(*arguments: Any, **options: Any) -> Any:
        steps = original(*arguments, **options)
        request = next(steps)
        try:
            while True:
                if isinstance(request, Watch) or (isinstance(request, Transaction) and not request.ops):
                    request = steps.send([] if isinstance(request, Watch) else None)
                else:
                    request = steps.send((yield request))
        except StopIteration as stop:
            return stop.value

    return reclaimed


def _acks_first(self: Any, message: Any) -> Any:
    self._acks.append(message.element)
    yield from self._settle(0)
    story = self._observer.stories[message.queue, message.id]
    run = self._observer.runs.starts(self._worker.process, self.consumer.consumer, message)
    yield Sleep(0.05)
    run.outcome = story.plan[0] if story.plan else "ack"


@contextlib.contextmanager
def _impatient() -> Iterator[None]:
    """Monitors judge leases 1.6 of their 2 seconds before they end."""
    end_of = Liveness._end_of

    def taken_back(keys: QueueKeys, consumer: str, *_: bool) -> Steps[reclaim.Reclaimed]:
        return reclaim.take_back(keys, consumer, known_dead=True)

    early = mock.patch.object(Liveness, "_end_of", lambda *arguments: end_of(*arguments) - 1600)
    known = mock.patch.object(monitors, "take_back", taken_back)
    with early, known:
        yield


#: Changes of scripts: a pattern, and what takes its place.
SCRIPTS = {
    "a send that is repeated enqueues twice": (r"return last and sequence <= .*? or false", "return false"),
    "acks in a row are not compared with the list": (r"(?s)\nif row > 0 and not .*?\nend\n", "\n"),
    "a delayed message is promoted early": (r"'%.0f', now \+ 1\)", "'%.0f', now + 1000)"),
    "keys are not respected": (r"if not group then return make_ready", "if true then return make_ready"),
    "a key is never released": (r"(local function release_key\(q, element\)\n)", r"\1  if true then return end\n"),
    "concurrency is not limited": (r"in_use = in_use \+ redis.call\('LLEN', .*?\]\)", "in_use = 0"),
    "a cancelled message stays in its list": (r"redis.call\('LSET', key, one\[2\], BLANK\)", ""),
    "a body stays when its message has gone": (r"if q.apart then delete_bodies\(q.bodies, \w+\) end", ""),
    "deduplication forgets": (r"if entry.key then redis.call\('SET', entry.key, .*? end", ""),
    "a tick is sent by each monitor": (r"if found\[place\] ~= argv\[start \+ EXPECTED\] or", "if"),
    "a batch does not count its messages": (r"(local function count_batch\(.*?\)\n)", r"\1  if true then return end\n"),
    "a commit forgets the delay": (r"if tonumber\(delay\) > 0 then", "if false then"),
    "a rollback commits": (r"if decision ~= 'committed' then", "if false then"),
    "a rate is fifty times as high": (r"return \{each = each,", "return {each = each / 50,"),
    "a retry is pushed without being removed": (r"if not element or redis.call\('LREM', .*? == 0", "if not element"),
}

MUTANTS: dict[str, Mutant] = {
    **{name: functools.partial(script, *change) for name, change in SCRIPTS.items()},
    "a lease is taken for over before its end": _impatient,
    "the monitor does not watch": lambda: mock.patch.object(reclaim, "reclaim", _no_watch(reclaim.reclaim)),
    "the worker acks before the handler runs": lambda: mock.patch.object(workers.Loop, "_perform", _acks_first),
    "a consumer never reads its list again": lambda: mock.patch.object(ConsumerSteps, "to_be_verified", new=False),
    "a message starts after the lease": lambda: mock.patch.object(Moment, "passed", return_value=False),
}
