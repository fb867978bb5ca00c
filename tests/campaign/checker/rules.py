"""The promises, one function each: given the evidence, yield the message ids, or texts, that break the promise."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from tests.campaign.checker.reading import Claim, Evidence, Fault, Run, Settle, Story

CLOCKS = 0.005  #: seconds by which the clocks of two measurements may differ

Rule = Callable[[Evidence], Iterator[str]]


def accepted(evidence: Evidence) -> set[str]:
    """The messages that are in the queue, or were: all answered ones, and of the unknown ones those that were seen."""
    there = {element.identity for element in evidence.elements}
    return {
        one.identity for one in evidence.stories.values() if one.sent is not None or one.claims or one.identity in there
    }


def _finished(story: Story) -> bool:
    return any(run.then in ("ok", "rejected") for run in story.runs)


def _cancelled(story: Story) -> bool:
    """Whether it was cancelled; asked for and then nowhere is cancelled, too: the answer that said so was lost."""
    return story.cancelled is not None or (story.cancel_asked and not story.runs)


def missing(evidence: Evidence) -> Iterator[Story]:
    """Yield the messages that were answered, were neither handled nor cancelled, and are nowhere."""
    there = {element.identity for element in evidence.elements}
    for story in evidence.stories.values():
        if story.sent is not None and not (_finished(story) or _cancelled(story) or story.identity in there):
            yield story


def lost(evidence: Evidence) -> Iterator[str]:
    """A message whose send was answered is handled or is somewhere."""
    for story in missing(evidence):
        if evidence.promised.get("sends_are_safe") or not evidence.rewound(story.sent or 0.0):
            yield story.identity


def unexpected(evidence: Evidence) -> Iterator[str]:
    """What runs was sent, and what was refused does not run."""
    for story in evidence.stories.values():
        unknown = story.identity in evidence.unknown_ids or story.name in evidence.unknown_names
        if story.sent is None and not unknown:
            yield story.identity
        elif story.name in evidence.failed_names and story.runs:
            yield f"{story.identity} ({story.name} was refused)"
    yield from evidence.misnamed
    for element in evidence.elements:
        if element.identity not in evidence.stories:
            yield f"{element.identity} in {element.place}"


def _done(story: Story) -> list[Settle]:
    return [one for one in story.settles if one.code == "d" and one.final]


def resurrected(evidence: Evidence) -> Iterator[str]:
    """No delivery begins after an ack that was answered "done"."""
    for story in evidence.stories.values():
        for ack in _done(story):
            for claim in story.claims:
                if ack.at is not None and claim.since > ack.at and not evidence.rewound(ack.at, claim.at):
                    yield story.identity


def acked_twice(evidence: Evidence) -> Iterator[str]:
    """There is one copy of a message, so one ack alone removes it."""
    for story in evidence.stories.values():
        for first, second in pairwise(sorted(_done(story))):
            if first.at is not None and second.at is not None and not evidence.rewound(first.at, second.at):
                yield story.identity


def claim_of(story: Story, run: Run) -> Claim | None:
    """Return the claim by which the process of a run had the message."""
    own = [one for one in story.claims if one.process == run.process and one.at <= run.start]
    return max(own, default=None)


def faults_behind(evidence: Evidence, first: tuple[Story, Run], second: tuple[Story, Run]) -> Iterator[Fault]:
    """Yield the faults that explain why a second run began while the first counted.

    They hit the first one's process between its claim and the second start, or the second one's between its claim and
    its start: a claim that Redis has forgotten, or that has run out, is still run by the process that holds it.
    """
    (_, run), (_, following) = first, second
    yield from evidence.faults_of(run.process, _claimed(*first), following.start)
    yield from evidence.faults_of(following.process, _claimed(*second), following.start)


def _claimed(story: Story, run: Run) -> float:
    claim = claim_of(story, run)
    return run.start if claim is None else claim.since


def duplicates(evidence: Evidence) -> Iterator[tuple[Story, Fault | None]]:
    """Yield each duplicate run that no call asked for, with the fault that explains it."""
    for story in evidence.stories.values():
        for first, second in pairwise(sorted(story.runs)):
            if first.then != "retried":
                yield story, next(faults_behind(evidence, (story, first), (story, second)), None)


def late_starts(evidence: Evidence) -> Iterator[str]:
    """Yield the runs that began in a process after a pause in which another consumer had the message.

    A process looks at its lease before each start; what is left is a pause between that look and the handler.
    """
    for story in evidence.stories.values():
        for run in story.runs if len(story.claims) > 1 else ():
            claim = claim_of(story, run)
            others = [one for one in story.claims if one.process != run.process]
            if claim and any(claim.at < one.since and one.at < run.start for one in others):
                yield story.identity


def duplicated(evidence: Evidence) -> Iterator[str]:
    """Each duplicate run has its fault; where the row promises none, there is none."""
    for story, fault in duplicates(evidence):
        if fault is None or evidence.promised["duplicates"] == "none":
            yield story.identity


def two_places(evidence: Evidence) -> Iterator[str]:
    """Each message is in exactly one place, and in none once it is acked."""
    copies = Counter(element.identity for element in evidence.elements)
    yield from (identity for identity, count in copies.items() if count > 1)
    for element in evidence.elements:
        story = evidence.stories.get(element.identity)
        for ack in _done(story) if story else ():
            if ack.to != "dead" and ack.at is not None and not evidence.rewound(ack.at):
                yield f"{element.identity} was acked, and is {element.place}"


def stuck(evidence: Evidence) -> Iterator[str]:
    """At the end, when all faults are over and workers had time, only dead letters are left."""
    yield from (f"{one.identity} in {one.place}" for one in evidence.elements if one.place != "dead")
    for name in ("bodies", "active"):
        held = len(evidence.hash(name))
        kept = sum(element.place != "dead" or name == "bodies" for element in evidence.elements)
        if held > kept:
            yield f"{held} entries of {name} for {kept} messages"


def early(evidence: Evidence) -> Iterator[str]:
    """No message is given out before it is due."""
    for story in evidence.stories.values():
        if story.delay and story.claims and min(one.at for one in story.claims) < story.asked + story.delay - CLOCKS:
            yield story.identity
        for settle in story.settles:
            if settle.delay and settle.code == "d":
                later = [claim.at for claim in story.claims if claim.since > (settle.at or 0)]
                if later and min(later) < settle.asked + settle.delay - CLOCKS:
                    yield story.identity


def cancelled_ran(evidence: Evidence) -> Iterator[str]:
    """What was cancelled never runs."""
    for story in evidence.stories.values():
        if story.cancelled is not None and story.runs and not evidence.rewound(story.cancelled):
            yield story.identity


def disordered(evidence: Evidence) -> Iterator[str]:
    """The messages of a key start in the order in which they were sent, one at a time."""
    of_key: dict[str, list[tuple[Run, Story]]] = defaultdict(list)
    for story in evidence.stories.values():
        if story.key:
            of_key[story.key] += [(run, story) for run in story.runs]
    for key, runs in of_key.items():
        runs.sort(key=lambda one: one[0])
        for (run, story), (following, other) in pairwise(runs):
            if story is other:
                continue
            back, together = other.turn < story.turn, run.end is None or run.end > following.start
            if (back or together) and not any(faults_behind(evidence, (story, run), (other, following))):
                yield f"{key}: {other.name} began {'after' if back else 'during'} {story.name}"


def dead_letters(evidence: Evidence) -> Iterator[str]:
    """Dead are exactly the messages whose handler said so or killed its process, with that reason."""
    reasons = {"reject": "rejected", "die": "max_deliveries"}
    dead = {element.identity: element.reason for element in evidence.elements if element.place == "dead"}
    for identity, reason in dead.items():
        story = evidence.stories.get(identity)
        if story is None or reasons.get(story.do) != reason:
            yield f"{identity} is dead: {reason}"
    for story in evidence.stories.values():
        meant = story.do in reasons and story.sent is not None
        if meant and story.identity not in dead and not evidence.rewound(story.sent or 0.0):
            yield f"{story.identity} is not dead"


def deduplicated_twice(evidence: Evidence) -> Iterator[str]:
    """One message stands for a deduplication key."""
    for key, ids in evidence.deduplicated.items():
        if len(ids) > 1 and not any(fault.rewound is not None for fault in evidence.faults):
            yield f"{key}: {sorted(ids)}"


def robbed(evidence: Evidence) -> Iterator[str]:
    """A live worker keeps its lease: only a fault takes a message from it."""
    for story in evidence.stories.values():
        for settle in story.settles:
            if settle.code == "l" and settle.at is not None:
                own = [one.since for one in story.claims if one.process == settle.process and one.at <= settle.asked]
                if not any(evidence.faults_of(settle.process, min(own, default=settle.asked), settle.at)):
                    yield story.identity


def settled_late(evidence: Evidence) -> Iterator[str]:
    """Who has lost a message to another consumer cannot settle it any more."""
    for story in evidence.stories.values():
        for settle in story.settles if len(story.claims) > 1 else ():
            own = [one.at for one in story.claims if one.process == settle.process and one.at <= settle.asked]
            if settle.code == "d" and own:
                others = [one for one in story.claims if one.process != settle.process and one.since > max(own)]
                if any(one.at < settle.asked for one in others) and not evidence.rewound(settle.asked):
                    yield story.identity


def counters(evidence: Evidence) -> Iterator[str]:
    """The counters of the queue are the sums of the history."""
    counted = {name: int(value) for name, value in evidence.hash("counters").items() if value.lstrip("-").isdigit()}
    known = accepted(evidence)
    dead = sum(one.place == "dead" for one in evidence.elements)
    left = sum(one.place != "dead" for one in evidence.elements)
    there = {one.identity for one in evidence.elements}
    cancelled = sum(_cancelled(evidence.stories[one]) and one not in there for one in known)
    expected = {"enqueued": len(known), "dead_lettered": dead, "cancelled": cancelled}
    if any(fault.rewound is not None for fault in evidence.faults):  # the history has what Redis has forgotten
        expected = {}
    for name, value in expected.items():
        if counted.get(name, 0) != value:
            yield f"{name} is {counted.get(name, 0)}, the history has {value}"
    gone = sum(counted.get(name, 0) for name in ("acked", "cancelled"))
    if counted.get("enqueued", 0) != gone + dead + left:
        yield f"enqueued {counted.get('enqueued', 0)}, acked and cancelled {gone}, dead {dead}, left {left}"


RULES: dict[str, Rule] = {
    "lost": lost,
    "unexpected": unexpected,
    "resurrected": resurrected,
    "acked twice": acked_twice,
    "duplicated": duplicated,
    "two places": two_places,
    "stuck": stuck,
    "early": early,
    "cancelled ran": cancelled_ran,
    "disordered": disordered,
    "dead letters": dead_letters,
    "deduplicated twice": deduplicated_twice,
    "robbed": robbed,
    "settled late": settled_late,
    "counters": counters,
}
