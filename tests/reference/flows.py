"""What flows do: which of their messages wait for which, and what becomes of them when others end."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

#: What a member of a flow has become, for those that wait for it.
OPEN, HANDLED, DEAD_LETTER, LOST = "open", "handled", "dead letter", "lost"
#: What that does to one that waits: it waits on, goes on, leaves the queue, or becomes a dead letter.
STAYS, GOES_ON, IS_SKIPPED, IS_BURIED = "stays", "goes on", "is skipped", "is buried"
REASON = "predecessor"  #: of those that are buried

Place = tuple[str, str]  #: the queue and the id of a message
Fate = tuple[str, str, str]  #: the same, and what happens to it


def fate(rule: str, became: str) -> str:
    """Return what happens to a message with this `on_failure`, by what one became that it waits for."""
    if became == OPEN:
        return STAYS
    if became == HANDLED or rule == "run":
        return GOES_ON
    if rule == "skip":
        return IS_SKIPPED
    return IS_BURIED if became == LOST else STAYS  # a dead letter may be redriven


def may_go_on(rule: str, befores: Iterable[set[str]]) -> bool:
    """Whether a message may run; `befores`: of each that it waits for, all that it has ever been."""
    return all(any(fate(rule, became) == GOES_ON for became in ever) for ever in befores)


def together(ends: Iterable[str]) -> str:
    """Return what several have come to: they are open as long as one of them is, and fail with the worst."""
    found = {*ends}
    return next((one for one in (OPEN, LOST, DEAD_LETTER) if one in found), HANDLED)


@dataclass(slots=True)
class Member:
    """A message of a flow, by the numbers of those it waits for."""

    queue: str
    id: str
    after: tuple[int, ...] = ()
    rule: str = "fail"
    became: str = OPEN
    let_go: set[int] = field(default_factory=set)  #: those for which it waits no more; each counts once
    opened: list["Flow"] = field(default_factory=list)  #: by its handler: those behind it wait for these too

    @property
    def counts_as(self) -> str:
        """What it has become for those behind it."""
        return together(one.outcome for one in self.opened) if self.became == HANDLED else self.became

    @property
    def is_over(self) -> bool:
        """Whether it has ended; a dead letter may be redriven."""
        return self.counts_as in (HANDLED, LOST)

    @property
    def waits(self) -> bool:
        """Whether it may not run yet."""
        return not self.let_go.issuperset(self.after)


@dataclass(slots=True, eq=False)
class Flow:
    """Messages of several queues, of which some wait for others. `id`: as its record has it."""

    members: Sequence[Member]
    id: str = ""
    parent: Place | None = None  #: the message whose handler has opened it

    @property
    def outcome(self) -> str:
        """What it has come to: that of its last messages, for which no other waits."""
        inner = {before for one in self.members for before in one.after}
        return together(one.counts_as for number, one in enumerate(self.members) if number not in inner)

    @property
    def is_over(self) -> bool:
        """Whether all of it has ended."""
        return all(one.is_over for one in self.members)

    def judge(self, number: int, became: str) -> Iterator[Fate]:
        """Tell those that wait for a member what it has become; yield what happens to which of them."""
        for other in self.members:
            if number not in other.after or not other.waits or other.became != OPEN:
                continue
            end = fate(other.rule, became)
            if end != STAYS:
                other.let_go.update((number,) if end == GOES_ON else other.after)
            if end != STAYS and not other.waits:
                yield other.queue, other.id, end


class Flows:
    """All flows. What was handled lets others go at once; all other news a monitor tells."""

    def __init__(self) -> None:
        self.open: list[Flow] = []
        self._of: dict[Place, tuple[Flow, int]] = {}
        self._news: list[tuple[Flow, int, str]] = []

    def add(self, flow: Flow) -> None:
        """A flow is sent. Those behind its parent wait for it from now on."""
        self.open.append(flow)
        self._of |= {(one.queue, one.id): (flow, number) for number, one in enumerate(flow.members)}
        if flow.parent in self._of:
            outer, number = self._of[flow.parent]
            outer.members[number].opened.append(flow)

    def member(self, queue: str, identity: str) -> Member | None:
        """Return the member that a message is."""
        found = self._of.get((queue, identity))
        return found and found[0].members[found[1]]

    def waits(self, queue: str, identity: str) -> bool:
        """Whether a message waits for others of its flow."""
        member = self.member(queue, identity)
        return member is not None and member.waits

    def known(self, queue: str) -> list[str]:
        """Return the members of a queue that have not ended."""
        return [one for (name, one), (flow, at) in self._of.items() if name == queue and not flow.members[at].is_over]

    def stands_still(self, queue: str, identity: str) -> bool:
        """Whether a message waits for ever, as far as nobody redrives or deletes a dead letter."""
        flow, number = self._of.get((queue, identity), (Flow(()), 0))
        return any(
            before not in member.let_go
            and (flow.members[before].counts_as == DEAD_LETTER or self._stands_still(flow.members[before]))
            for member in flow.members[number : number + 1]
            for before in member.after
        )

    def _stands_still(self, member: Member) -> bool:
        inner = (one for flow in member.opened for one in flow.members if one.counts_as == OPEN)
        return self.stands_still(member.queue, member.id) or any(map(self._stands_still, inner))

    def became(self, queue: str, identity: str, what: str) -> list[Fate]:
        """A message was handled, is dead, was redriven (OPEN) or is gone; return who goes on in the same step."""
        if (queue, identity) not in self._of:
            return []
        flow, number = self._of[queue, identity]
        member = flow.members[number]
        member.became = what
        if member.counts_as == HANDLED:
            return [*self._judge(flow, number, HANDLED)]
        self._news.append((flow, number, member.counts_as))
        return []

    def lose(self, queue: str) -> None:
        """A queue is deleted."""
        for (name, identity), (flow, number) in list(self._of.items()):
            if name == queue and not flow.members[number].is_over:
                self.became(name, identity, LOST)

    def tell(self) -> Iterator[Fate]:
        """A monitor tells the news, in their order; yield what happens to whom, which may bring more."""
        while self._news:
            flow, number, what = self._news.pop(0)
            if what == LOST:
                flow.members[number].became = LOST  # for good, whatever the flows do that it has opened
            yield from self._judge(flow, number, what)
        self.open = [one for one in self.open if not one.is_over]

    def _judge(self, flow: Flow, number: int, what: str) -> Iterator[Fate]:
        yield from flow.judge(number, what)
        if flow.parent in self._of:
            outer, place = self._of[flow.parent]
            parent = outer.members[place]
            if parent.became == HANDLED:
                self._news.append((outer, place, parent.counts_as))
