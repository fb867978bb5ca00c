"""Retention: trim dead letters by the queues' policies, and forget silent producers and streams."""

import math
import time
from collections.abc import Callable, Container, Sequence

from reliq import ops
from reliq.model.keys import SEVERAL, QueueKeys
from reliq.ops import Steps
from reliq.protocol.dead_letters import DeadLetterSteps
from reliq.protocol.features import PRODUCERS
from reliq.runtime.moment import earlier
from reliq_monitor.attempts import Keys, each
from reliq_monitor.duty import Duty
from reliq_monitor.queue_scan import Survey, pages

PRODUCER_REMEMBERED = 3600.0  #: seconds after its last call; far longer than a producer repeats a call
PRODUCERS_LOOK = 600.0  #: seconds until the producers of a queue are looked at again
_QUEUES = 1000  #: queues whose producers are looked at in a turn, or a part of very many queues
STREAM_REMEMBERED = 90 * 86_400.0  #: seconds after its last epoch
TRIMMED_AT_ONCE = 1000  #: dead letters per turn: other duties must not wait longer
_PAGE = 500
_EVERY = 10.0  #: seconds


Policy = list[bytes | None]


class DeadLetterTrimming(Duty[int]):
    """Removes dead letters beyond each queue's dead_max_age and dead_max_count; off unless configured."""

    name = "dead letters"
    effect = "dead letters beyond a queue's `dead_max_age` and `dead_max_count` are not removed"
    interval = _EVERY

    def __init__(self) -> None:
        self.unfinished = False  #: whether there may be more to remove now

    def turn(self, survey: Survey) -> Steps[int]:
        """Remove TRIMMED_AT_ONCE at most; return how many."""
        removed, self.unfinished = 0, False
        for page in pages((yield from survey.having(self.name, lambda keys: keys.config, survey.queues))):
            for keys, policy in (yield from self._policies(survey, page)):
                if removed >= TRIMMED_AT_ONCE:
                    self.unfinished = True
                    return removed
                trimmed, unfinished = yield from survey.attempts.of_queue(
                    self.name, keys, _trim(keys, policy, TRIMMED_AT_ONCE - removed), (0, False)
                )
                removed, self.unfinished = removed + trimmed, self.unfinished or unfinished
        return removed

    def _policies(self, survey: Survey, queues: Sequence[QueueKeys]) -> Steps[list[tuple[QueueKeys, Policy]]]:
        """Return the policies of the queues that have one."""
        known = [(keys, survey.known.get(keys.config, self.name)) for keys in queues]
        unread = [keys for keys, policy in known if policy is None]
        for keys, policy in (yield from survey.attempts.together(self.name, unread, each(ops.retention))):
            survey.known.note(keys.config, policy, self.name)
            known.append((keys, policy))
        return [(keys, policy) for keys, policy in known if policy is not None and policy != [None, None]]

    @property
    def pause(self) -> float:
        return 0.0 if self.unfinished else super().pause


def _trim(keys: QueueKeys, policy: Sequence[bytes | None], at_most: int) -> Steps[tuple[int, bool]]:
    max_age, max_count = ops.read_retention(policy)
    removed = yield from DeadLetterSteps(keys).trim(max_age, max_count, at_most)
    return removed, removed >= at_most


class SilentProducers(Duty[int]):
    """Removes the sequences of producers that have been silent for longer than calls are repeated."""

    name = "producers"
    effect = "records of silent producers are not removed"
    interval = _EVERY

    def __init__(self) -> None:
        self._looked_at: dict[str, float] = {}  #: by queue, by time.monotonic()

    def keep(self, queues: Container[str]) -> None:
        """Forget when other queues were looked at."""
        self._looked_at = {queue: at for queue, at in self._looked_at.items() if queue in queues}

    def turn(self, survey: Survey) -> Steps[int]:
        """Remove them in a part of the queues; return how many."""
        now = time.monotonic()
        before = now - PRODUCERS_LOOK
        waiting = [keys for keys in survey.queues if self._looked_at.get(keys.queue, -math.inf) <= before]
        some = waiting[: max(_QUEUES, math.ceil(len(survey.queues) * 2 * _EVERY / PRODUCERS_LOOK))]
        forgotten = yield from _forget_silent(survey, self.name, some, lambda keys: keys.producers, PRODUCER_REMEMBERED)
        failing = {queue for duty, queue in survey.attempts.failing if duty == self.name}
        self._looked_at.update((keys.queue, now) for keys in some if keys.queue not in failing)
        return forgotten


class SilentStreams(Duty[int]):
    """Removes the epochs of streams that have been silent for longer than stopped streams are kept."""

    name = "streams"
    effect = "records of stopped streams are not removed"
    interval = _EVERY
    common = SEVERAL.place

    def turn(self, survey: Survey) -> Steps[int]:
        """Remove them; return how many."""
        return (yield from _forget_silent(survey, self.name, survey.homes, lambda home: home.epochs, STREAM_REMEMBERED))


def _forget_silent(
    survey: Survey, duty: str, homes: Sequence[Keys], hash_of: Callable[[Keys], str], remembered: float
) -> Steps[int]:
    """Remove hash fields with values, a number and the ms of its last use, that are too old."""
    forgotten = 0

    def first_pages(some: Sequence[Keys]) -> Steps[list[tuple[int, int]]]:
        return (yield from _forget_in([hash_of(home) for home in some], [0] * len(some), remembered))

    def further_pages(home: Keys, cursor: int) -> Steps[int]:
        removed = 0
        while cursor:
            [(count, cursor)] = yield from _forget_in([hash_of(home)], [cursor], remembered)
            removed += count
        return removed

    for page in pages((yield from survey.having(duty, hash_of, homes))):
        for home, (count, cursor) in (yield from survey.attempts.together(duty, page, first_pages)):
            forgotten += count
            if cursor:
                forgotten += yield from survey.attempts.of_queue(duty, home, further_pages(home, cursor), 0)
    return forgotten


def _forget_in(hashes: Sequence[str], cursors: Sequence[int], remembered: float) -> Steps[list[tuple[int, int]]]:
    """Process one page of each hash; return how many fields were removed, and the next cursor, 0 at the end."""
    now, *replies = yield [
        ops.server_time(),
        *(ops.scan_hash(key, cursor, _PAGE) for key, cursor in zip(hashes, cursors, strict=True)),
    ]
    oldest = earlier(now) - remembered * 1000
    found = []
    for key, (cursor, pairs) in zip(hashes, replies, strict=True):
        old = {name for name, value in pairs if int(value.split()[1]) < oldest}
        for still in PRODUCERS if old else ():
            old.difference_update((yield from still(old)))
        count = (yield ops.remove_fields(key, list(old))) if old else 0
        found.append((count, cursor))
    return found
