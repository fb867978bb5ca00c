"""Ops for schedules: read and write them, find those that are due, send their messages."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, cast

import msgspec

from reliq.features.schedules import signatures
from reliq.features.schedules.model import Definition, Run, State
from reliq.model.keys import SCHEDULES, QueueKeys
from reliq.ops.browse import as_names
from reliq.ops.request import Op, Packed, Record, milliseconds, optional_text, scripted

encode = msgspec.json.encode


class Firing(IntEnum):
    """What became of a schedule that was to be sent."""

    SENT = 1
    CHANGED = 0  #: its state is another one: another monitor has sent it, or it was changed
    EARLY = -1
    FULL = -2  #: the queue is; it is tried again after a second


@dataclass(frozen=True)
class Fire:
    """A schedule with the messages of its due ticks, as elements with those bodies that are apart, and what follows."""

    name: str
    expected: bytes  #: its state as it was read
    state: State
    due: int  #: ms
    run: Run
    messages: Sequence[tuple[bytes, bytes]]

    @cached_property
    def packed(self) -> Packed:
        """The arguments of the script, encoded: at the time of the tick they are only sent."""
        schedule = signatures.fire_schedule(
            name=self.name.encode(),
            expected=self.expected,
            state=encode(self.state),
            next_due=b"" if self.state.wakes is None else b"%d" % self.state.wakes,
            due=b"%d" % self.due,
            run=encode(self.run),
            missed=b"%d" % self.run.missed,
            count=b"%d" % len(self.messages),
            messages=(signatures.fire_message(element=element, body=body) for element, body in self.messages),
        )
        parts = cast("tuple[bytes, ...]", schedule)
        return Packed(len(parts), (b"".join([b"$%d\r\n%b\r\n" % (len(part), part) for part in parts]),))


def fire(keys: QueueKeys, fires: Sequence[Fire]) -> Op[tuple[int, list[Firing]]]:
    """Send the messages of due schedules; the reply is the server's time in ms, and what became of each.

    Repeatable: a state that was replaced is not replaced again.
    """
    every = [one.packed for one in fires]
    packed = Packed(sum(one.count for one in every), (b"".join([piece for one in every for piece in one.pieces]),))
    call = signatures.fire(keys, schedules=[(packed,)])
    return scripted(call, lambda reply: (reply[0], [Firing(code) for code in reply[1:]]))


@dataclass(frozen=True, slots=True)
class Written:
    """A schedule to be written. `expected`: its state as it was read, empty if there is none."""

    name: str
    expected: bytes
    state: State
    definition: Definition | None = None  #: None: it stays as it is
    look_at: int | None = None  #: ms at which a monitor ends a move that is not over by then

    @property
    def wakes(self) -> int | None:
        """The ms at which a monitor must look at the schedule."""
        return self.look_at if self.state.source else self.state.wakes


def schedule_put(keys: QueueKeys, schedules: Sequence[Written]) -> Op[list[int]]:
    """Write schedules; the reply is for each whether its state was the expected one."""
    call = signatures.schedule_put(keys, changes=map(_change, schedules))
    return scripted(call)


def _change(one: Written) -> Record:
    return signatures.schedule_put_change(
        name=one.name,
        expected=one.expected,
        definition=b"" if one.definition is None else encode(one.definition),
        state=encode(one.state),
        due="" if one.wakes is None else one.wakes,
    )


class Removal(IntEnum):
    """What became of a schedule that was to be removed."""

    REMOVED = 1
    NONE = 0  #: there was none
    CHANGED = -1  #: its state is not the expected one: it stays


def schedule_remove(keys: QueueKeys, name: str, call: str | None = None, expected: bytes | None = None) -> Op[Removal]:
    """Delete a schedule of a queue. `call`: of `new_call`. `expected`: its state as it was read; None = whatever it is.

    Repeatable with a `call`, which has the answer of the first; without one, the answer is NONE then.
    """
    removing = signatures.schedule_remove(keys, name=name, expected="*" if expected is None else expected, call=call)
    return scripted(removing, Removal)


def queues_of_schedules(names: Sequence[str]) -> Op[list[str | None]]:
    """Read which queue has each of these schedules."""
    return Op(("HMGET", SCHEDULES, *names), lambda reply: [optional_text(one) for one in reply])


def schedule_names() -> Op[Mapping[str, str]]:
    """Read the queue of every schedule, by name."""
    return Op(("HGETALL", SCHEDULES), _read_index)


def _read_index(reply: list[bytes]) -> dict[str, str]:
    return {name.decode(): queue.decode() for name, queue in zip(reply[::2], reply[1::2], strict=True)}


class Owned(IntEnum):
    """Whose a schedule is, after its queue was to be noted."""

    NOTED = 1
    ALREADY = 2  #: noted before, maybe by this call, whose answer was lost
    OTHER = 0  #: of another queue than expected: nothing was noted


def index_schedules(changes: Iterable[tuple[str, str, str]]) -> Op[list[Owned]]:
    """Change the index of schedules: each by its name, its queue as it was read, and its new one; empty: no queue."""
    records = [signatures.schedule_index_change(name=name, expected=old, queue=queue) for name, old, queue in changes]
    call = signatures.schedule_index(owners=SCHEDULES, changes=records)
    return scripted(call, lambda reply: [Owned(one) for one in reply])


def unindex_schedules(queue: str, names: Sequence[str]) -> Op[list[Owned]]:
    """Forget whose these schedules are, as far as they still are those of the queue."""
    return index_schedules([(name, queue, "") for name in names])


@dataclass(frozen=True, slots=True)
class Stored:
    """A schedule as it is stored: its state is needed as it is, to be replaced."""

    definition: Definition
    state: State
    raw_state: bytes


def stored_schedules(keys: QueueKeys, names: Sequence[str]) -> list[Op[list[bytes | None]]]:
    """Read the definitions and the states of schedules, for `read_stored`."""
    return [Op(("HMGET", keys.schedules, *names)), Op(("HMGET", keys.schedule_states, *names))]


def read_stored(definition: bytes | None, state: bytes | None) -> Stored | None:
    """Return a schedule; None if there is none. Raises ValueError for what reliq did not write."""
    if definition is None or state is None:
        return None
    return Stored(_definition(definition), _state(state), state)


def moving_schedules(keys: QueueKeys) -> Op[list[str]]:
    """Read the names of the schedules that are on their way to this queue, or lie there on their way to another one."""
    return Op(("HGETALL", keys.schedule_states), _read_moving)


def _read_moving(reply: list[bytes]) -> list[str]:
    moving: list[str] = []
    for name, state in zip(reply[::2], reply[1::2], strict=True):
        with suppress(msgspec.MsgspecError):
            if _state(state).source:
                moving.append(name.decode())
    return moving


def latest_runs(keys: QueueKeys, names: Sequence[str]) -> Op[list[Run | None]]:
    """Read the latest run of each schedule."""
    return Op(("HMGET", keys.runs, *names), lambda reply: [_read_run(one) for one in reply])


def _read_run(found: bytes | None) -> Run | None:
    if found is None:
        return None
    at, _, run = found.partition(b" ")
    return msgspec.structs.replace(_run(run), at=int(at))


#: Of what several homes of a queue answer, the first of these counts.
FATES = ("ready", "processing", "delayed", "parked", "dead", "unknown", "gone")
FOUND = frozenset(FATES) - {"unknown", "gone"}


def fates(keys: QueueKeys, identities: Sequence[str], consumers: Iterable[str], most: int) -> Op[list[str]]:
    """Read where messages are, one of FATES for each id; of each list, the `most` newest messages are read."""
    call = signatures.fates(keys, lists=map(keys.processing, consumers), most=most, ids=identities)
    return scripted(call, as_names)


def schedule_ran(keys: QueueKeys, name: str, run: Run) -> Op[int]:
    """Record a run that was started by hand, if the schedule is still there; the reply is whether it is."""
    text = b"%d %s" % (run.at, encode(msgspec.structs.replace(run, at=0)))
    return scripted(signatures.schedule_ran(keys, name=name, run=text))


_definition = msgspec.json.Decoder(Definition).decode
_state = msgspec.json.Decoder(State).decode
_run = msgspec.json.Decoder(Run).decode


@dataclass(frozen=True, slots=True)
class Ticks:
    """The schedules of a queue that are due, and the next ones: name and due, in ms."""

    due: list[tuple[str, int]]
    soon: list[tuple[str, int]]


def ticks(
    queues: Sequence[QueueKeys], ahead: float, most_due: int, most_soon: int, seen: Sequence[int]
) -> Op[tuple[int, list[Ticks]]]:
    """Read which schedules are due now and within `ahead` seconds; of the latter those later than `seen`, by queue."""
    call = signatures.ticks(
        ticks=[keys.ticks for keys in queues],
        ahead=milliseconds(ahead),
        most_due=most_due,
        most_soon=most_soon,
        seen=seen,
    )
    return scripted(call, _read_ticks)


def _read_ticks(reply: list[Any]) -> tuple[int, list[Ticks]]:
    now, *found = reply
    return now, [Ticks(_pairs(due), _pairs(soon)) for due, soon in found]


def _pairs(reply: list[bytes]) -> list[tuple[str, int]]:
    return [(name.decode(), int(float(score))) for name, score in zip(reply[::2], reply[1::2], strict=True)]


def postpone(keys: QueueKeys, name: str, until: int) -> Op[int]:
    """Look at a schedule again at `until`, ms."""
    return Op(("ZADD", keys.ticks, "XX", until, name))
