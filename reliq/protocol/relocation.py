"""Taking messages to the home of their key, where no other message of their partition holds them back.

A monitor enqueues such a message in the home of its key, and then removes it where it waited. What belongs to the
message is copied before (`Carried`). Any monitor may repeat each step, and a slow one may be late with each: the home
remembers what has entered. Who removes such a message for another reason, as a purge does, has the home refuse it
first: so either it is removed, or it has come home.
"""

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

from reliq import ops
from reliq.model.element import name_of, new_reference, with_reference
from reliq.model.keys import QueueKeys
from reliq.model.message import Message
from reliq.model.partitions import Layout, bucket_of_digest, home_by_bucket
from reliq.ops import Steps, Stray
from reliq.ops.coming import REMEMBERED, Coming
from reliq.protocol.features import CARRIED, Carried
from reliq.protocol.homes import room
from reliq.protocol.producer import ProducerPool, enqueue_with_bodies
from reliq.runtime.pieces import grouped

_STRAYS = 100  #: messages that a monitor takes home in one call


class Sent(NamedTuple):
    moved: int
    start: bytes  #: where to go on; empty: all were looked at


def send_strays(
    layout: Layout, keys: QueueKeys, pool: ProducerPool, start: bytes = b"", until: float = math.inf
) -> Steps[Sent]:
    """Bring on messages that wait in a home for no other message of it.

    Those with their home elsewhere are taken there. Those that wait until the former home of their key has no message
    of it become ready. `start`: where the call before has stopped, which it does after `until`, by time.monotonic().
    """
    total = 0
    while True:
        start, found = yield ops.strays(keys, start, _STRAYS)
        moved = yield from _send(layout, keys, pool, found)
        total += moved
        if start and found and not moved:  # their homes are full, for example
            start = found[-1].behind_line
        if not start or time.monotonic() >= until:
            return Sent(total, start)


def _send(layout: Layout, keys: QueueKeys, pool: ProducerPool, strays: Sequence[Stray]) -> Steps[int]:
    """Bring these on; return how many do not wait here any more."""
    moved = 0
    for home, some in _by_home(keys.logical, layout, strays).items():
        away = [one for one in some if one.goes_home]
        if away and home == keys.queue:
            moved += yield from _keep(layout, keys, away)
        elif away and (brought := (yield from _bring(keys, QueueKeys(home), away, pool, layout))):
            moved += yield ops.send_home(keys, brought)
        moved += yield from _release(keys.logical, layout, keys, [one.group for one in some if not one.goes_home])
    return moved


def _keep(layout: Layout, keys: QueueKeys, strays: Sequence[Stray]) -> Steps[int]:
    """Let messages stay whose home is here again; those that have come to an earlier one, or are refused, leave."""
    others = [QueueKeys(name) for name in layout.every(keys.logical) if name != keys.queue]
    come, staying, refused, moved = list[Stray](), list[Stray](), list[tuple[str, Stray]](), 0
    for one in strays:
        marks = (yield [ops.come_under(_mark(home, one)) for home in others]) if others else ()
        first = next(filter(None, marks), None)
        if first is None:
            staying.append(one)
        elif counter := ops.refused_for(first):
            refused.append((counter, one))
        else:
            come.append(one)
    for counter, some in grouped(refused).items():
        moved += yield ops.withdraw(keys, some, counter)
    moved += (yield ops.send_home(keys, come)) if come else 0
    return moved + ((yield ops.stay(keys, staying, layout.version)) if staying else 0)


class Withdrawn(NamedTuple):
    removed: int
    come: list[str]  #: the homes of those that had come there before


def withdraw(keys: QueueKeys, strays: Sequence[Stray], counter: str) -> Steps[Withdrawn]:
    """Remove messages that wait to be taken home, unless they have come there; `counter` counts what is removed."""
    layout = yield ops.layout(QueueKeys(keys.logical))
    removed, come = 0, list[str]()
    for home, some in _by_home(keys.logical, layout, strays).items():
        answers = yield [op for one in some for op in ops.refuse(_mark(QueueKeys(home), one), counter)]
        refused = grouped(zip(answers[1::2], some, strict=True))  # by the counter of who was first
        if there := refused.pop("", []):
            come.append(home)
            yield ops.send_home(keys, there)
        for refusal, those in refused.items():
            gone = yield ops.withdraw(keys, those, refusal, keys.new_call())
            removed += gone if refusal == counter else 0
    return Withdrawn(removed, come)


def _mark(home: QueueKeys, one: Stray) -> str:
    """Return the key that exists in a home once a message has entered it, or is refused there."""
    return home.dedup(_dedup_key(one))


def _dedup_key(one: Stray) -> str:
    return f"@stray {name_of(one.element).hex()}"


def _release(queue: str, layout: Layout, keys: QueueKeys, groups: list[str]) -> Steps[int]:
    """Let lines begin whose keys have no message in their former home any more."""
    free = []
    for group in dict.fromkeys(groups):
        *former, home = layout.homes(queue, bucket_of_digest(group))
        # The line of a former home has waited for the home before that, which the end of that change found empty.
        if not former or home != keys.queue or not any((yield ops.has_key(QueueKeys(former[0]), group))):
            free.append(group)
    return (yield ops.release_lines(keys, free, layout.version)) if free else 0


def _by_home(queue: str, layout: Layout, strays: Sequence[Stray]) -> dict[str, list[Stray]]:
    names, homes = layout.names(queue), home_by_bucket(layout.count)
    return grouped((names[homes[bucket_of_digest(one.group)]], one) for one in strays)


def _bring(
    keys: QueueKeys, home: QueueKeys, strays: Sequence[Stray], pool: ProducerPool, layout: Layout
) -> Steps[list[Stray]]:
    """Enqueue messages in their home; those that are there since an earlier try do not enter again.

    During a change they wait there in line: the former home may have others of the key. Return those that are there:
    the home may be full, or have room for the first ones only.
    """
    entries, bodies, brought, coming = [], [], [], []
    for one in strays[: (yield from room(home))]:
        message, element = Message.decode(keys.queue, one.element), one.element
        if message.reference:
            (body,) = yield ops.stored_bodies(keys, [message.reference])
            if body is None and (yield ops.in_line(keys, one.line)) is None:
                continue  # it was taken away meanwhile
            if body is not None:  # with a reference of its own: a repeated call deletes the body that it has stored
                reference = new_reference(len(body))
                element = with_reference(element, reference)
                bodies.append(ops.StoredBody(reference, body))
        entries.append(ops.Entry(message.id, element, 0.0, _dedup_key(one), REMEMBERED, held=layout.moving))
        coming.append(Coming(message.id, _mark(home, one)))
        brought.append(one)
    if not brought:
        return []
    for kept in (NOTES, *CARRIED):
        yield from kept.take(keys, home, coming)
    with pool.session() as session:
        enqueue = ops.enqueue(home, (), entries, session.producer, session.sequence, version=layout.version)
        _, answer = yield from enqueue_with_bodies([home], bodies, session, enqueue)
    if answer.status in ("ok", "repeated"):
        refused = {at: counter for at, first in answer.first_ids.items() if (counter := ops.refused_for(first))}
        for at, counter in refused.items():
            yield ops.withdraw(keys, [brought[at]], counter)
        brought = [one for at, one in enumerate(brought) if at not in refused]
        if calls := [op for kept in CARRIED for op in kept.have_come(home, coming)]:
            yield calls
        return brought
    fewer = brought[: len(brought) // 2] if answer.status == "full" else []
    return (yield from _bring(keys, home, fewer, pool, layout)) if fewer else []


def _carry_notes(keys: QueueKeys, home: QueueKeys, coming: Sequence[Coming]) -> Steps[None]:
    """Copy what handlers have reported about messages, and that they were cancelled."""
    notes = yield [op for one in coming for op in ops.notes_of(keys, one.id)]
    puts = [
        ops.put_notes(home, one, reported, cancelled)
        for one, reported, cancelled in zip(coming, notes[::2], notes[1::2], strict=True)
        if reported or cancelled
    ]
    if puts:
        yield puts


NOTES = Carried(_carry_notes)
