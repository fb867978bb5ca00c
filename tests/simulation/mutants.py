"""Faulty versions of reliq, each of which the simulation must find."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any
from unittest import mock

import msgspec

from reliq import ops
from reliq.features.flows import telling
from reliq.features.flows.sending import Sending
from reliq.features.flows.steps import CARRIED as MEMBERS
from reliq.features.steps import model
from reliq.features.steps import ops as own
from reliq.features.steps import steps as durable
from reliq.features.steps.moving import CARRIED as RECORDS
from reliq.model.keys import QueueKeys
from reliq.model.partitions import Layout
from reliq.ops import Op, Serving, Sleep, Steps, Transaction, Watch
from reliq.protocol import features, relocation, resizing
from reliq.protocol.consumer import ConsumerSteps
from reliq.runtime.moment import Moment
from reliq.transport import calls
from reliq.worker.trials import ALONE, Trials
from reliq_monitor import partitions, reclaim
from reliq_monitor.clock_jumps import Deadlines
from tests.simulation import monitors, workers
from tests.simulation.changed import Mutant, script
from tests.simulation.costing import has_costs
from tests.simulation.flowing import has_flows
from tests.simulation.kernel import Kernel
from tests.simulation.partitioned import has_partitions
from tests.simulation.receiving import has_receivers
from tests.simulation.resting import has_durable


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
    shift_of = Deadlines._shift_of

    def taken_back(keys: QueueKeys, consumer: str, *_: bool) -> Steps[reclaim.Reclaimed]:
        return reclaim.take_back(keys, consumer, known_dead=True)

    early = mock.patch.object(Deadlines, "_shift_of", lambda *arguments: shift_of(*arguments) - 1600)
    known = mock.patch.object(monitors, "take_back", taken_back)
    with early, known:
        yield


_wait_for_messages = ConsumerSteps.wait


def _wait_long(self: ConsumerSteps, limit: int, timeout: float) -> Steps[Any]:
    return (yield from _wait_for_messages(self, limit, 3600.0))


@contextlib.contextmanager
def _waits_to_be_told() -> Iterator[None]:
    """Each wake-up is lost, and consumers do not look by themselves."""
    with mock.patch.object(Kernel, "loses_wake_ups", new=True), mock.patch.object(ConsumerSteps, "wait", _wait_long):
        yield


def _tries_alone(self: Trials, message: Any) -> int:
    """Do not look at what else is in trial in this process."""
    self._running[message.element] = ALONE
    return ALONE


#: Changes of scripts: a pattern, and what takes its place.
SCRIPTS = {
    "a send that is repeated enqueues twice": (r"return last and sequence <= .*? or false", "return false"),
    "acks in a row are not compared with the list": (r"(?s)\n  if row > 0 and not .*?\n  end\n", "\n"),
    "a delayed message is promoted early": (r"'%.0f', now \+ 1\)", "'%.0f', now + 1000)"),
    "keys are not respected": (r"if not group then return make_ready", "if true then return make_ready"),
    "a key is never released": (r"(local function release_key\(q, element\)\n)", r"\1  if true then return end\n"),
    "what a claim takes is not counted": (r"if held_before \+ #taken ~= known then .*? end\n", "\n"),
    "concurrency is limited for each consumer": (r"in_use = in_use - known \+ held_before", "in_use = held_before"),
    "a cancelled message stays in its list": (r"redis.call\('LSET', key, one\[2\], BLANK\)", ""),
    "a body stays when its message has gone": (r"if q.apart then delete_bodies\(q.bodies, \w+\) end", ""),
    "deduplication forgets": (r"(local function store_dedup\(.*?\)\n)", r"\1  if true then return end\n"),
    "a tick is sent by each monitor": (r"if found\[place\] ~= argv\[start \+ EXPECTED\] or", "if"),
    "a batch does not count its messages": (r"(local function count_batch\(.*?\)\n)", r"\1  if true then return end\n"),
    "a commit forgets the delay": (r"if tonumber\(delay\) > 0 then", "if false then"),
    "a rollback commits": (r"if decision ~= 'committed' then", "if false then"),
    "a rate is fifty times as high": (r"return \{each = each,", "return {each = each / 50,"),
    "a retry is pushed without being removed": (
        r"elseif element and redis.call\('LREM', .*? == 0 then",
        "elseif false then",
    ),
}


def _nothing(answer: Any) -> Callable[..., Steps[Any]]:
    """Return steps that ask nothing."""

    def steps(*_: Any) -> Steps[Any]:
        yield from ()
        return answer

    return steps


def _without_retired(serve: Callable[..., Op[Serving]]) -> Callable[..., Op[Serving]]:
    def serves(*arguments: Any) -> Op[Serving]:
        op = serve(*arguments)

        def read(reply: Any) -> Serving:
            served = op.read(reply)
            return dataclasses.replace(served, layout=msgspec.structs.replace(served.layout, retired=()))

        return msgspec.structs.replace(op, read=read)

    return serves


def _brings_all(bring: Any) -> Any:
    def brought(keys: QueueKeys, home: QueueKeys, strays: Any, *arguments: Any) -> Steps[Any]:
        yield from bring(keys, home, strays, *arguments)
        return strays

    return brought


def _given_up(queue: str, layout: Layout) -> Steps[bool]:
    return (yield from resizing.replace(queue, layout, layout.without_last())) if layout.retired else False


def _reversed(by_home: Any) -> Any:
    """Strays in the wrong order."""
    return lambda *arguments: {home: some[::-1] for home, some in by_home(*arguments).items()}


def _without_dedup_key(enqueue: Any) -> Any:
    def enqueued(home: QueueKeys, plain: Any, entries: Any, *arguments: Any, **options: Any) -> Any:
        if any((one.dedup_key or "").startswith("@stray") for one in entries):
            entries = [dataclasses.replace(one, dedup_key=None, window=0.0) for one in entries]
        return enqueue(home, plain, entries, *arguments, **options)

    return enqueued


#: Changes of scripts that only queues with partitions run.
PARTITION_SCRIPTS = {
    "a new home does not wait for the former one": (
        r"return true, has_key\(q, group\)",
        "return true, false",
    ),
    "what is due in a new home does not wait": (r" or not is_cyclic\(element\) and is_arriving\(.*?\)", ""),
    "limit keys do not wait for their former home": (
        r"if not q.homes or is_latest\(group\) or is_laned\(element\).* then return false end",
        "if not q.homes or is_latest(group) or is_laned(element) then return false end",
    ),
    "a former home keeps what comes back": (r" or is_stray\(first\) then", " then"),
    "a former home takes messages": (r"return has_bucket\(q.homes, 0, digest\)", "return true"),
    "the version of a layout is not checked": (
        r"(version|asked) (?:<|~=) version_of\(q.homes\)",
        r"\1 == nil",
    ),
}

PARTITION_MUTANTS: dict[str, Mutant] = {
    **{name: functools.partial(script, *change) for name, change in PARTITION_SCRIPTS.items()},
    "a change ends before its keys have moved": lambda: mock.patch.object(
        resizing, "_has_no_strays", _nothing(answer=True)
    ),
    "lines begin without a look at the former home": lambda: mock.patch.object(ops, "has_key", return_value=[]),
    "strays are taken home in the wrong order": lambda: mock.patch.object(
        relocation, "_by_home", _reversed(relocation._by_home)
    ),
    "strays are removed where their home was full": lambda: mock.patch.object(
        relocation, "_bring", _brings_all(relocation._bring)
    ),
    "a stray is brought twice": lambda: mock.patch.object(ops, "enqueue", _without_dedup_key(ops.enqueue)),
    "a given-up partition is not served": lambda: mock.patch.object(ops, "serve", _without_retired(ops.serve)),
    "a partition is given up with messages in it": lambda: mock.patch.object(partitions, "forget_retired", _given_up),
}

#: Changes of scripts that durable handlers run.
DURABLE_SCRIPTS = {
    "a message that rests frees its key": (r"elseif frees and [^\n]* then", "else"),
    "a message that frees its key keeps it": (r"elseif frees and [^\n]* then", "elseif false then"),
    "the latest frees its key": (r"elseif frees and [^\n]* then", "elseif frees then"),
    "the latest value of a signal counts": (r"if had then return .*? end\n", ""),
    "a repeated signal is another one": (r"if said then return said end\n", ""),
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


def _does_not_go_along(what: Any) -> contextlib.AbstractContextManager[Any]:
    """Messages that move to another partition leave this behind."""
    return mock.patch.object(relocation, "CARRIED", tuple(one for one in features.CARRIED if one is not what))


DURABLE_MUTANTS: dict[str, Mutant] = {
    **{name: functools.partial(script, *change) for name, change in DURABLE_SCRIPTS.items()},
    "a step at most once is not noted before": lambda: mock.patch.object(durable.Hand, "record", _without_beginning),
    "a record does not go along": functools.partial(_does_not_go_along, RECORDS),
    "a record is never read": lambda: mock.patch.object(model.Book, "read"),
    "a message that rests has failed": lambda: mock.patch.object(
        durable, "resting", lambda message: message.again(failures=message.failures + 1)
    ),
    "a message that rests has not begun": lambda: mock.patch.object(durable, "_going_on", lambda element: element),
    "a parked message stays when it is cancelled": lambda: mock.patch.object(
        own, "remove_parked", lambda keys, *_: ops.count(keys, "cancelled", 0)
    ),
}

#: Changes of scripts that flows run.
FLOW_SCRIPTS = {
    "a message does not wait for its flow": (
        r"(q.followed, WAITING .. id_of\(element\)\)\n +)if not record",
        r"\1if true",
    ),
    "what goes on passes by its key": (
        r"if element then enter\(q, element\) end -- a delayed",
        "if element then redis.call('LPUSH', q.messages, element) end -- a delayed",
    ),
    "what is told twice counts twice": (r"if not string.find\(known, mark, 1, true\) then", "if true then"),
    "a dead letter counts as gone": (r"elseif outcome ~= 'dead' then", "else"),
    "what is to be skipped waits on": (r"if rule == 's' then", "if false then"),
    "what is gone counts as handled": (
        r"if rule == 'r' then",
        "if outcome ~= 'dead' or rule == 'r' then",
    ),
    "an end in this home is not told": (r"let_all_go\(q, ended.here, ended.here, ended.again\)", ""),
    "a member that has left is not told": (r"report_flow\(q, ended.texts\)\n    let_all_go", "let_all_go"),
    "a part of a flow that was given up stays": (r"local element = ours and take\(.*?\n", "local element\n"),
    "a late request of a flow is carried out": (r"local late = carried_out\(.*?\)\n", "local late = false\n"),
    # That a redrive is not told shows only in the progress of its flow, which no plan reads: worker/test_flows.py.
}

_wait = Sending._wait


def _behind_others_only(self: Any, keys: QueueKeys, numbers: Sequence[int]) -> Steps[None]:
    yield from _wait(self, keys, [number for number in numbers if self._plan.nodes[number].after])


FLOW_MUTANTS: dict[str, Mutant] = {
    **{name: functools.partial(script, *change) for name, change in FLOW_SCRIPTS.items()},
    "those behind none do not wait": lambda: mock.patch.object(Sending, "_wait", _behind_others_only),
    "no monitor lets a flow begin": lambda: mock.patch.object(telling, "release", _nothing(None)),
    "a member's record does not go along": functools.partial(_does_not_go_along, MEMBERS),
    "the ends of members are not noted": lambda: mock.patch.object(telling, "_note_ends", _nothing(None)),
}

#: Changes of scripts that receivers run.
RECEIPT_SCRIPTS = {
    "a message in flight is visible too early": (
        r"received, '-inf', now, 'LIMIT'",
        "received, '-inf', now + 1000, 'LIMIT'",
    ),
    "a key goes on while a message of it is in flight": (r"if #stay > 0 then", "if #stay > 16 then"),
    "a former receipt deletes": (
        r"return record and string.sub\(record, #FIRST_TURN \+ 1, .*? == name",
        "return record",
    ),
    "what was in flight is the last in its line": (
        r"redis.call\('ZADD', q.waiting, 0, group .. turn .. element\)",
        "join_line(q, group, element, false)",
    ),
}

RECEIPT_MUTANTS: dict[str, Mutant] = {
    name: functools.partial(script, *change) for name, change in RECEIPT_SCRIPTS.items()
}

#: Changes of scripts that queues with a rate run, and charges.
COST_SCRIPTS = {
    "a cost counts as one": (r"return weighted and cost_of\(element\) or 1", "return 1"),
    "a charge comes on top of the cost": (r"or reserved\)", "or 0)"),
    "a charge that is repeated counts again": (r"\(redis.call\('GET', charged\) or reserved\)", "reserved"),
    "what was not spent stays spent": (
        r"return math.max\(now, \(full_at or 0\) \+ more \* bucket.each\)",
        "return full_at or 0",
    ),
    "a key is not charged": (r"if key_bucket and group ~= '' and more ~= 0 then", "if false then"),
    "a message takes what is not there": (
        r"if least and tokens_in\(bucket, full_at, now\) < least then",
        "if false then",
    ),
}

COST_MUTANTS: dict[str, Mutant] = {name: functools.partial(script, *change) for name, change in COST_SCRIPTS.items()}

#: Mutants that only some plans can show, with what says which.
OF_PLANS: tuple[tuple[dict[str, Mutant], Callable[[int], bool]], ...] = (
    (PARTITION_MUTANTS, has_partitions), (DURABLE_MUTANTS, has_durable), (FLOW_MUTANTS, has_flows),
    (COST_MUTANTS, has_costs), (RECEIPT_MUTANTS, has_receivers),
)  # fmt: skip

MUTANTS: dict[str, Mutant] = {
    **{name: mutant for table, _ in OF_PLANS for name, mutant in table.items()},
    **{name: functools.partial(script, *change) for name, change in SCRIPTS.items()},
    "a lease is taken for over before its end": _impatient,
    "redelivered messages run beside each other": lambda: mock.patch.object(Trials, "begin", _tries_alone),
    "a part of a transaction counts as nothing": lambda: mock.patch.object(calls, "carried_out", return_value=False),
    "the monitor does not watch": lambda: mock.patch.object(reclaim, "reclaim", _no_watch(reclaim.reclaim)),
    "the worker acks before the handler runs": lambda: mock.patch.object(workers.Loop, "_perform", _acks_first),
    "a consumer never reads its list again": lambda: mock.patch.object(ConsumerSteps, "to_be_verified", new=False),
    "who is not told never looks": _waits_to_be_told,
    "a message starts after the lease": lambda: mock.patch.object(Moment, "passed", return_value=False),
}
