"""Promote: make delayed messages ready when they are due, in steps too short to delay other clients."""

import itertools
import math
import time
from collections.abc import Sequence

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.ops import Op, Steps
from reliq.runtime.pieces import pieces
from reliq_monitor.attempts import each
from reliq_monitor.duty import Duty
from reliq_monitor.known import SLOW_LOOK
from reliq_monitor.queue_scan import Survey

BATCH = 50  #: messages per script call
CALLS = 8  #: script calls per round trip, for a queue with many due messages

_EVERY = 0.04  #: seconds; a message known to be due before the next look is promoted when it is due
_PER_QUEUE = 0.0002  #: seconds added for each queue, so that a thousand of them do not keep a core busy
_LOOKS_A_TICK = 8  #: the most looks in that time, however many messages are about to be due


class Promotion(Duty[tuple[int, float | None]]):
    """Promotes due messages."""

    name = "promote"
    effect = "delayed messages and retries do not become ready"
    interval = _EVERY

    def __init__(self) -> None:
        self._pause = _EVERY

    def turn(self, survey: Survey) -> Steps[tuple[int, float | None]]:
        """Promote; return how many messages, and the seconds until the next is due (None: after the next turn)."""
        tick = _EVERY + _PER_QUEUE * len(survey.every_name)
        promoted, next_due = yield from promote_due(survey, tick)
        if promoted and next_due == 0.0:
            self._pause = 0.0
        else:
            self._pause = tick if next_due is None else min(tick, max(next_due, tick / _LOOKS_A_TICK))
        return promoted, next_due

    @property
    def pause(self) -> float:
        return self._pause


def promote_due(survey: Survey, ahead: float) -> Steps[tuple[int, float | None]]:
    """Promote due messages, one batch per queue and some more after a full batch.

    Return how many were promoted, and the seconds until the next is due: 0.0 = now, None = none within `ahead` seconds.
    """
    attempts = survey.attempts
    looked, waits = yield from _look(survey, ahead)
    due = [keys for keys, wait in looked if wait == 0]
    moved = yield from attempts.together(Promotion.name, due, each(_move), "move")
    busy = [keys for keys, (count, _) in moved if count == BATCH]
    moved += yield from attempts.together(Promotion.name, busy, _move_more, "move more")
    waits += [wait for _, wait in looked if wait > 0]
    waits += [soonest for _, (_, soonest) in moved if soonest >= 0]
    return sum(count for _, (count, _) in moved), min(waits) / 1000 if waits else None


def _look(survey: Survey, ahead: float) -> Steps[tuple[list[tuple[QueueKeys, int]], list[int]]]:
    """Ask when the next message is due of the queues of which no later moment is known.

    Return these queues with the ms, -1 = none within `ahead` seconds, and the ms that are known of others.
    """
    known = survey.known
    far = max(ahead, SLOW_LOOK) if known.is_notified else ahead
    delayed = yield from survey.having(Promotion.name, lambda keys: keys.delayed, survey.queues)
    began = time.monotonic()
    due_at = {keys: known.get(keys.delayed, "due") for keys in delayed}  # None without notices of changes
    unknown = [keys for keys, at in due_at.items() if at is None or at <= began]
    waits = [max(0, math.ceil((at - began) * 1000)) for at in due_at.values() if at is not None]

    def look(some: Sequence[QueueKeys]) -> Steps[list[int]]:
        answers = yield [ops.due(group, far) for group in survey.groups(some)]
        return list(itertools.chain.from_iterable(answers))

    looked = yield from survey.attempts.together(Promotion.name, unknown, look)
    for keys, wait in looked:
        known.note(keys.delayed, began + (wait / 1000 if wait >= 0 else far), "due")
    return looked, waits


def _move(keys: QueueKeys) -> Op[tuple[int, int]]:
    return ops.promote(keys, BATCH)


def _move_more(some: Sequence[QueueKeys]) -> Steps[list[tuple[int, int]]]:
    """Promote several batches of each queue; return how many messages were due, and the ms until the next is."""
    answers = yield [_move(keys) for keys in some for _ in range(CALLS)]
    return [(sum(count for count, _ in of_queue), of_queue[-1][1]) for of_queue in pieces(answers, CALLS)]
