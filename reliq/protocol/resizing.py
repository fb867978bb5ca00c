"""Changing the number of partitions of a queue, under load.

The change is stored first, in the first partition: from then on producers offer a message with a key to the home that
its key had before, then to the new one. `apply_layout` tells each partition of which keys it is the home, the losses
before the gains. A former home refuses a message, and says whether it still has others of the ordering key. If it has,
the new home lets the message wait in line until a monitor finds that the former home has none any more: so the messages
of a key stay in order, and one at a time. What comes back to a former home later, such as a delayed message or a
redriven dead letter, waits there in line until a monitor takes it to its home (`send_strays`). Each step may be
repeated, by any monitor.
"""

import itertools
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from reliq import ops
from reliq.contract.counters import COUNTERS
from reliq.errors import ChangeUnderWay, InvalidSetting, ReliqError
from reliq.model.keys import SEVERAL, QueueKeys, is_partition, logical_name, partition_queue
from reliq.model.partitions import Layout, bitmap, buckets_of, home_by_bucket, layout_text, read_layout
from reliq.ops import Steps
from reliq.ops.topology import Slots, address_of, cluster_slots
from reliq.protocol.features import COUNTED, EARLY

_TRIES = 10
_STRAYS = 100  #: messages that one call looks for
#: Counters of places in the lists of a partition, which go with it.
_OF_PLACES = frozenset(one.name for one in COUNTERS if one.of_places)


def change(queue: str, count: int, sharded: bool) -> Steps[Layout]:
    """Store another number of partitions; raises ChangeUnderWay until an earlier change has ended."""
    keys = QueueKeys(queue)
    slots = (yield cluster_slots(("", 0))) if sharded else None
    for _ in range(_TRIES):
        layout: Layout = yield ops.layout(keys)
        if layout.count == count:
            return layout
        if layout.moving:
            raise ChangeUnderWay(
                f"partitions is {count}: the change of queue {queue!r} from {layout.before} to {layout.count} is still "
                f"under way; wait until `reliq queue partitions {queue}` shows its end"
            )
        names = _new_names(queue, layout, count, slots)
        changed = layout.resized(count, names)
        partitions = [partition_queue(queue, name) for name in names]
        if partitions:  # a monitor finishes a change of partitions of which it knows
            yield [ops.announce(name) for name in partitions]
        yield from _drop_counters([QueueKeys(name) for name in partitions])
        if (yield from replace(queue, layout, changed)):
            return changed
    raise InvalidSetting(f"partitions is {count}: the policy of queue {queue!r} changes all the time; try again")


def _new_names(queue: str, layout: Layout, count: int, slots: Slots | None) -> list[str]:
    """Return the names of partitions that do not exist yet, placed evenly on the nodes of a cluster."""
    there = layout.every(queue)
    names: list[str] = []
    for number in range(len(there), count):
        name = str(number) if slots is None else _placed(queue, number, there, slots)
        names.append(name)
        there.append(partition_queue(queue, name))
    return names


def _placed(queue: str, number: int, there: list[str], slots: Slots) -> str:
    """Return a name in a slot of the node that has the fewest of these partitions for its share of the slots."""
    nodes = [slots.node_of(QueueKeys(one).messages) for one in there]
    emptiest = min(slots.nodes, key=lambda node: ((nodes.count(node) + 1) / slots.share(node), node))
    for letters in _letters():
        name = f"{number}{letters}"
        if slots.node_of(QueueKeys(partition_queue(queue, name)).messages) == emptiest:
            return name
    raise InvalidSetting(f"no name for a partition of {queue!r} lies on {address_of(emptiest)}")


def _letters() -> Iterator[str]:
    for length in range(5):
        yield from map("".join, itertools.product(string.ascii_lowercase, repeat=length))


def apply_layout(queue: str, layout: Layout) -> Steps[bool]:
    """Tell each partition of which keys it is the home: those that lose keys before those that gain some.

    Otherwise a message that is due could come to the new home of its key, and wait there, before one that the former
    home still takes. Until both have been told, neither takes messages of the key.

    During a change a partition also learns which keys are new to it: it asks before it starts their messages. Return
    whether all have been told. One that knows a later layout keeps that. If the queue itself does not know that one,
    its node was restarted from an older state: its layout becomes the latest. A partition that is away keeps no other
    from being told; then raises its error.
    """
    told, away = yield from apply_to_reachable(queue, layout)
    for error in away.values():
        raise error
    return told


def apply_to_reachable(queue: str, layout: Layout) -> Steps[tuple[bool, dict[str, ReliqError]]]:
    """Do as `apply_layout`, but return the errors of those that are away, beside whether all have been told."""
    every, owned, former = layout.every(queue), buckets_of(layout.count), home_by_bucket(layout.before)
    places = range(len(every))
    away: dict[str, ReliqError] = {}
    for place in places if layout.count > layout.before else reversed(places):
        retired = place >= layout.count
        buckets = () if retired else owned[place]
        arriving = bitmap(one for one in buckets if former[one] != place) if layout.moving else ""
        homes = ops.OwnedBuckets(bitmap(buckets), layout.version, arriving)
        try:
            if place >= layout.before and layout.moving:
                yield from _copy_early(queue, layout, QueueKeys(every[place]))
            later = yield ops.take_in(QueueKeys(every[place]), homes, retired)
        except ReliqError as error:
            away[every[place]] = error
            continue
        if later:
            latest = msgspec.structs.replace(layout, version=later + 1)
            if (yield from replace(queue, layout, latest)):
                yield from apply_to_reachable(queue, latest)
            return False, {}
    try:
        stored = yield ops.layout(QueueKeys(queue))
    except ReliqError as error:
        return False, {queue: error, **away}
    if stored.version < layout.version:  # a restart from an older state has undone the change meanwhile
        yield from apply_to_reachable(queue, stored)
        return False, away
    return not away, away


def _copy_early(queue: str, layout: Layout, new: QueueKeys) -> Steps[None]:
    """Give a new partition the hold and the open breaker of the first one, and what that keeps for later messages."""
    first = QueueKeys(queue)
    if (yield ops.known_version(new)) < layout.version:
        now, held, breaker = yield [ops.server_time(), ops.held_until(first), ops.breaker_until(first)]
        if held > now:
            yield ops.hold(new, (held - now) / 1000)
        if breaker > now:
            yield ops.switch_breaker(new, (breaker - now) / 1000)
        for copy in EARLY:
            yield from copy(first, new)


def keys_elsewhere(keys: QueueKeys) -> Steps[int]:
    """Count the keys with messages in this partition that have their home in another one.

    Of keys whose messages only wait to be taken there, those of the first messages are counted.
    """
    _, waiting = yield ops.strays(keys, b"", _STRAYS)
    return (yield from _held_elsewhere(keys)) + len({one.group for one in waiting if one.goes_home})


def _held_elsewhere(keys: QueueKeys) -> Steps[int]:
    cursor, count = yield ops.held_keys(keys)
    while cursor != b"0":
        cursor, more = yield ops.held_keys(keys, cursor)
        count += more
    return int(count)


def _has_no_strays(keys: QueueKeys) -> Steps[bool]:
    """Return whether no message is in a former home of its key, and none waits for that."""
    if (yield from _held_elsewhere(keys)):
        return False
    start, waiting = yield ops.strays(keys, b"", 1)
    while start and not waiting:
        start, waiting = yield ops.strays(keys, start, 1)
    return not waiting


def try_to_finish(queue: str, layout: Layout) -> Steps[bool]:
    """End the change of a layout if no message is in a former home of its key; return whether it has ended."""
    for name in layout.every(queue):
        if not (yield from _has_no_strays(QueueKeys(name))):
            return False
    changed = layout.finished()
    if not (yield from replace(queue, layout, changed)):
        return False
    if changed.several:
        yield from apply_layout(queue, changed)
    return True


def forget_retired(queue: str, layout: Layout) -> Steps[bool]:
    """Forget the last retired partition if it is empty and no staged job may add to it; return whether it was.

    It stays while it keeps results, histories, output or deduplication keys. Its counters are added to those of the
    first partition; a reader of both checks whether the layout has changed meanwhile. What COUNTED has of it stays.
    """
    if layout.moving or not layout.retired:
        return False
    if any((yield [ops.exists(QueueKeys(queue).jobs), ops.exists(SEVERAL.jobs)])):
        return False
    keys = QueueKeys(layout.every(queue)[-1])
    consumers = yield ops.members(keys.consumers)
    counts = yield ops.stats(keys, consumers)
    if counts.ready + counts.processing + counts.delayed + counts.dead + counts.prepared + counts.parked:
        return False
    lasting = (keys.results, keys.earlier_results, keys.history, keys.outputs, keys.flows)
    if any((yield [ops.exists(one) for one in lasting])):
        return False
    now, until = yield [ops.server_time(), ops.dedup_until(keys)]
    if now < until:
        return False
    for one in COUNTED:
        yield from one.note(keys)
    added = {name: value for name, value in counts.counters.items() if name not in _OF_PLACES}
    if not (yield from replace(queue, layout, layout.without_last(), added)):
        return False
    yield from _drop_counters([keys])
    return True


def _drop_counters(forgotten: Sequence[QueueKeys]) -> Steps[None]:
    """Delete the counters of forgotten partitions: the first one has them. Those that take messages again keep theirs.

    A monitor that was killed has left them; a partition of the same name would count them again. With them goes the
    state of the limits: a breaker that was open then.
    """
    found = (yield [ops.read_hash(keys.counters) for keys in forgotten]) if forgotten else ()
    left = [ops.drop_counters(keys, counts) for keys, counts in zip(forgotten, found, strict=True) if counts]
    if left:
        yield left


def given_up(names: Iterable[str]) -> Steps[list[str]]:
    """Return which of these queues are partitions that were forgotten.

    No partition is forgotten while a staged job of its queue, or of several queues, is unfinished.
    """
    partitions = sorted(name for name in names if is_partition(name))
    gone = []
    for queue in sorted({logical_name(name) for name in partitions}):
        there = (yield ops.layout(QueueKeys(queue))).every(queue)
        gone += [name for name in partitions if logical_name(name) == queue and name not in there]
    return gone


def replace(queue: str, layout: Layout, changed: Layout, counts: Mapping[str, int] | None = None) -> Steps[bool]:
    """Store a layout in the place of another, unless that was changed meanwhile; with it, add to counters."""
    keys = QueueKeys(queue)
    text = yield ops.stored_layout(keys)
    if read_layout(text) != layout:
        return False
    alone = changed.count == 1 and not changed.moving and not changed.retired
    return bool((yield ops.replace_layout(keys, text, layout_text(changed), alone=alone, counts=counts)))
