"""What flows do: which of their messages wait for which, and what becomes of them when others end."""

from collections.abc import Iterable
from dataclasses import dataclass, field

#: What a member of a flow has become, for those that wait for it.
OPEN, HANDLED, DEAD_LETTER, LOST = "open", "handled", "dead letter", "lost"
#: What that does to one that waits: it waits on, goes on, leaves the queue, or becomes a dead letter.
STAYS, GOES_ON, IS_SKIPPED, IS_BURIED = "stays", "goes on", "is skipped", "is buried"
REASON = "predecessor"  #: of those that are buried


def fate(rule: str, became: str) -> str:
    """Return what happens to a message with this `on_failure`, by what one became that it waits for."""
    if became == OPEN:
        return STAYS
    if became == HANDLED or rule == "run":
        return GOES_ON
    if rule == "skip":
        return IS_SKIPPED
    return IS_BURIED if became == LOST else STAYS  # a dead letter may be redriven


@dataclass(slots=True)
class Member:
    """A message of a flow, by the numbers of those it waits for."""

    queue: str
    id: str
    after: tuple[int, ...] = ()
    rule: str = "fail"
    became: str = OPEN
    let_go: set[int] = field(default_factory=set)  #: those for which it waits no more; each counts once


@dataclass(slots=True)
class Flow:
    """Messages of several queues, of which some wait for others."""

    members: list[Member]

    def number_of(self, queue: str, identity: str) -> int | None:
        """Return the number of a member."""
        found = (at for at, one in enumerate(self.members) if (one.queue, one.id) == (queue, identity))
        return next(found, None)

    def waits(self, number: int) -> bool:
        """Whether a member may not run yet."""
        member = self.members[number]
        return not member.let_go.issuperset(member.after)

    def became(self, number: int, what: str) -> list[tuple[int, str]]:
        """A member was handled, is dead, was redriven (OPEN) or is gone; return what happens to which others."""
        self.members[number].became = what
        happens = []
        for other, member in enumerate(self.members):
            if number not in member.after or not self.waits(other):
                continue
            end = fate(member.rule, what)
            if end == GOES_ON:
                member.let_go.add(number)
            if end in (IS_SKIPPED, IS_BURIED) or (end == GOES_ON and not self.waits(other)):
                happens.append((other, end))
        return happens


def may_go_on(rule: str, befores: Iterable[set[str]]) -> bool:
    """Whether a message may run; `befores`: of each that it waits for, all that it has ever been."""
    return all(any(fate(rule, became) == GOES_ON for became in ever) for ever in befores)
