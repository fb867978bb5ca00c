"""Promote: make delayed messages ready when they are due, in steps too short to delay other clients."""

from collections.abc import Sequence

from reliq import ops
from reliq.model.keys import QueueKeys
from reliq.ops import Steps
from reliq_monitor.queue_scan import Survey, flags

DUTY = "promote"
BATCH = 100  #: messages per script call
CALLS = 4  #: script calls per round trip, for a queue with many due messages


def promote_due(survey: Survey, ahead: float) -> Steps[tuple[int, float | None]]:
    """Promote due messages, one batch per queue and some more after a full batch.

    Return how many were promoted, and the seconds until the next is due: 0.0 = now, None = none within `ahead` seconds.
    """
    attempts = survey.attempts
    waits: list[int] = []

    def look(some: Sequence[QueueKeys]) -> Steps[list[bool]]:
        groups = survey.groups(some)
        answers = yield [ops.due(group, ahead) for group in groups]
        waits.extend(soonest for soonest, *_ in answers)
        return flags(groups, [places for _, *places in answers])

    def move(some: Sequence[QueueKeys]) -> Steps[list[tuple[int, int]]]:
        answers: list[tuple[int, int]] = yield [ops.promote(keys, BATCH) for keys in some]
        return answers

    def move_more(some: Sequence[QueueKeys]) -> Steps[list[tuple[int, int]]]:
        answers = yield [ops.promote(keys, BATCH) for keys in some for _ in range(CALLS)]
        return [
            (sum(count for count, _ in answers[start : start + CALLS]), answers[start + CALLS - 1][1])
            for start in range(0, len(answers), CALLS)
        ]

    delayed = yield from survey.having(DUTY, lambda keys: keys.delayed, survey.queues)
    looked = yield from attempts.together(DUTY, delayed, look)
    moved = yield from attempts.together(DUTY, [keys for keys, due in looked if due], move, "move")
    busy = [keys for keys, (count, _) in moved if count == BATCH]
    moved += yield from attempts.together(DUTY, busy, move_more, "move more")
    waits += [soonest for _, (_, soonest) in moved]
    later = [soonest for soonest in waits if soonest >= 0]
    return sum(count for _, (count, _) in moved), min(later) / 1000 if later else None
