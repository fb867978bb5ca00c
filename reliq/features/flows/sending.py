"""The steps that send a flow.

First its record, then the messages, which all wait; then who waits for whom; then the record says that the flow is
open; at last those that wait for no others are let go, by a monitor if the producer has ended. If it ends before the
flow is open, none of them has run, and a monitor gives the flow up.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from reliq.errors import InvalidSetting, OutcomeUnknown, QueueFull, ReliqError
from reliq.features.flows import ops as own
from reliq.features.flows.model import Plan
from reliq.features.flows.opened import ALIVE, Parent, hold, join
from reliq.features.flows.steps import AT_ONCE, drop, give_up, nodes_of, release
from reliq.features.flows.stored import Behind, Noted
from reliq.model.keys import QueueKeys
from reliq.model.outgoing import NewMessage
from reliq.model.partitions import bucket_of
from reliq.ops import Sleep, Steps, Together
from reliq.protocol.batch import Route
from reliq.protocol.durability import ANY, MEMORY, Terms, confirm
from reliq.protocol.home import AtLimit, Home, Moved
from reliq.protocol.homes import QueueHomes
from reliq.protocol.queue import QueueSteps
from reliq.protocol.sending import around_send, ready
from reliq.runtime.pieces import grouped, pieces

_TRIES = 200  #: how often a message is offered, while the homes of its queue change
_TURN = 1000  #: members after whose preparation other tasks of the process have their turn
_UNCONFIRMED = Terms(MEMORY)  #: each call: the flow is confirmed as a whole
_LINES = 20_000  #: messages that wait for those that one call notes


def find(plan: Plan, parent: Parent) -> Steps[None]:
    """Give a flow its id; of one that an earlier run of the handler has sent, its messages too.

    One that was sent in part is given up: the messages that wait are cancelled.
    """
    attempt = 0
    while True:
        plan.id = parent.flow_id(attempt)
        state = (yield own.flow_head(plan.id)).get("state", "")
        if state == "sending":
            yield own.flow_change(plan.id, "sending", "abandoned")
            state = (yield own.flow_head(plan.id)).get("state", "")
        if not state:
            return
        if state != "abandoned":
            plan.sent = yield from nodes_of(plan.id)
            return
        yield from join(plan.id)
        yield from give_up(plan.id, "abandoned")
        attempt += 1


def is_free(message: NewMessage, homes: QueueHomes) -> bool:
    """Whether any home of its queue may take a message: it has no key by which it belongs to one."""
    return bucket_of(message) is None and homes.layout.count > 1


class Sending:
    """One flow on its way to its queues."""

    def __init__(self, plan: Plan, queue: Callable[[str], QueueSteps], parent: Parent | None = None) -> None:
        self._plan = plan
        self._parent = parent  #: the message whose handler sends it
        self._queue = queue
        self._homes: dict[int, str] = {}  #: by number: the queue that is the member's home
        #: The number of the latest call that tells homes what to know. It begins with the server's ms: a flow that a
        #: handler sends again, as it was forgotten since, has the same id, and calls with lower numbers count as late.
        self._first = self._latest = 0
        self._noted_by: dict[str, int] = {}  #: by home: the number of the last of these that noted members
        self._entered = False  #: whether a message may be enqueued
        self._full: set[str] = set()  #: homes that have had no room
        self._unsure = False  #: whether a call that was refused may still be carried out

    def steps(self) -> Steps[None]:
        """Send it, with the middleware around each queue's messages. Where that fails, it is given up as a whole."""
        steps = self._send()
        pairs = zip(self._plan.nodes, self._plan.messages, strict=True)
        for name, some in grouped((node.queue, message) for node, message in pairs).items():
            queue = self._queue(name)
            yield from ready(queue.pool, ANY, some)
            steps = around_send(queue.pool, name, some, steps)
        yield from steps

    def _send(self) -> Steps[None]:
        plan, parent = self._plan, self._parent
        of = () if parent is None else (parent.text, parent.place)
        for first in range(0, len(plan.nodes), AT_ONCE):
            self._first = self._latest = yield own.flow_open(plan, first, first + AT_ONCE, *of)
            self._check(self._first)
        try:
            if parent is not None:
                yield from hold(plan, parent)
            for queue, numbers in self._by_queue().items():
                yield from self._choose(queue, numbers)
                yield from self._place(queue, numbers)
            yield from self._note(range(len(plan.nodes)))
        except ReliqError as error:
            yield from self._give_up(certain=isinstance(error, (QueueFull, InvalidSetting)) and not self._unsure)
            raise
        yield from self._open()
        with suppress(ReliqError):  # a monitor goes on
            yield from release(plan.id, plan.nodes)
        yield from self._confirm()

    def _open(self) -> Steps[None]:
        """Say that the flow is there: from now on it runs, whatever becomes of its producer."""
        try:
            state = yield own.flow_change(self._plan.id, "sending", "open")
        except OutcomeUnknown:  # if it is open, a monitor lets it begin; else one gives it up
            raise
        except ReliqError:
            yield from self._give_up()
            raise
        if not state:
            yield from self._give_up(certain=True)
            raise ReliqError(
                f"flow {self._plan.id}: Redis has lost its record while it was sent, as in a restart without a file or "
                "in a failover; none of its messages runs: send it again"
            )
        if state == "cancelled":
            raise ReliqError(f"flow {self._plan.id} was cancelled while it was sent")
        self._check(state in ("open", "ended"))  # if all of it was purged meanwhile, it has ended

    def _check(self, alive: object) -> None:
        if not alive:
            raise ReliqError(f"flow {self._plan.id} was given up while it was sent: its producer paused for too long")

    def _give_up(self, *, certain: bool = False) -> Steps[None]:
        """Cancel what is there, as far as Redis answers; monitors do the rest. Where nothing can come, forget the flow.

        `certain`: whether no call is on its way that may still be carried out.
        """
        flow = self._plan.id
        may_come = self._entered and not certain
        is_known = may_come or (self._parent is not None and self._latest > self._first)  # else it leaves no trace
        try:
            yield own.flow_change(flow, ALIVE, "abandoned")
            if self._parent is not None:
                yield from join(flow)
            yield from drop(flow, self._plan.nodes, forever=not may_come, step=self._next)
            yield own.flow_change(flow, "abandoned", "abandoned", dropped=True) if is_known else own.flow_forget(flow)
        except ReliqError:
            return

    # --- homes ---

    def _choose(self, queue: str, numbers: Sequence[int]) -> Steps[None]:
        """Choose the home of each member: that of its key, or any."""
        homes = self._queue(queue).homes
        for place, number in enumerate(numbers, 1):
            if not place % _TURN:
                yield Sleep(0.0)
            message = self._plan.messages[number]
            keys = yield from homes.home_of(message)
            self._homes[number] = self._with_room(homes) if is_free(message, homes) else keys.queue

    def _with_room(self, homes: QueueHomes) -> str:
        """Return the next home in turn, leaving out those that have been full."""
        some = homes.open_ones()
        return next((one for one in some if one not in self._full), some[0])

    def _by_queue(self) -> dict[str, list[int]]:
        return grouped((node.queue, number) for number, node in enumerate(self._plan.nodes))

    def _by_home(self, numbers: Sequence[int]) -> dict[str, list[int]]:
        return grouped((self._homes[number], number) for number in numbers)

    def _place(self, queue: str, numbers: Sequence[int]) -> Steps[None]:
        """Enqueue members in their homes; those that a home refuses once more, in another one.

        It refuses those that have become another one's, and those without a key if it is full.
        """
        homes = self._queue(queue).homes
        for _ in range(_TRIES):
            refused: list[int] = []
            for name, some in self._by_home(numbers).items():
                home = homes.named(name)
                for part in pieces(some, AT_ONCE):
                    yield from self._wait(home.keys, part)
                    refused += yield from self._enqueue(homes, home, part)
            if not refused:
                return
            numbers, former = refused, self._by_home(refused)
            yield from homes.read_again()
            yield from self._choose(queue, numbers)
            for name, some in former.items():
                yield from self._unwait(homes.named(name).keys, some)
        raise ReliqError(f"the partitions of queue {queue!r} change all the time: the flow is not sent")

    def _enqueue(self, homes: QueueHomes, home: Home, numbers: Sequence[int]) -> Steps[Sequence[int]]:
        """Enqueue members in a home; return those that it refuses. Raises QueueFull if no other may have room."""
        messages = [self._plan.messages[number] for number in numbers]
        before, self._entered = self._entered, True
        try:  # while homes change, a key may have messages elsewhere: that is asked when its message waits no longer
            yield from home.send(messages, _UNCONFIRMED, Route(homes.layout.version, free=True))
        except (Moved, AtLimit) as error:
            self._entered = before or bool(error.enqueued)
            if isinstance(error, AtLimit):
                yield from self._look_elsewhere(homes, home.keys.queue, messages[len(error.enqueued) :], error)
            return numbers[len(error.enqueued) :]
        except QueueFull:
            self._unsure = True
            raise
        return ()

    def _look_elsewhere(
        self, homes: QueueHomes, full: str, messages: Sequence[NewMessage], error: AtLimit
    ) -> Steps[None]:
        """Note that a home is full; raises QueueFull if others may not have these messages, or have no room either."""
        self._full.add(full)
        self._unsure = self._unsure or not error.final
        yield from homes.look_when_full()
        names = homes.layout.names(homes.queue)
        if self._unsure or not all(is_free(one, homes) for one in messages) or self._full.issuperset(names):
            reason = str(error).partition(";")[0]
            raise QueueFull(f"{reason}; nothing of flow {self._plan.id} was sent") from None

    def _confirm(self) -> Steps[None]:
        """Wait until each home has the durability of its queue; raises OutcomeUnknown if that is not certain."""
        homes = [self._queue(QueueKeys(name).logical).homes.named(name) for name in self._noted_by]
        durable = [home for home in homes if home.durability.waits]
        if not durable:
            return
        producer = f"flow-{self._plan.id}"
        answers = yield Together(
            [confirm(home.keys, home.durability, producer, self._noted_by[home.keys.queue]) for home in durable]
        )
        for answer in answers:
            if isinstance(answer, ReliqError):
                raise OutcomeUnknown(str(answer), tuple(node.id for node in self._plan.nodes))

    # --- what homes know ---

    def _wait(self, keys: QueueKeys, numbers: Sequence[int]) -> Steps[None]:
        """Note that the members are to wait, before they enter: those behind no others until the flow is open."""
        nodes = [self._plan.nodes[number] for number in numbers]
        waiting = [(node.id, len(node.after) or 1, node.on_failure) for node in nodes]
        self._check_ids((yield own.flow_wait(keys, self._plan.id, self._next(), waiting)))

    def _next(self) -> int:
        """Return the number of the next call: one that arrives behind it is late."""
        self._latest += 1
        return self._latest

    def _unwait(self, keys: QueueKeys, numbers: Sequence[int]) -> Steps[None]:
        ids = [self._plan.nodes[number].id for number in numbers]
        yield own.flow_drop(keys, self._plan.id, ids, step=self._next(), forever=True)

    def _note(self, numbers: Sequence[int]) -> Steps[None]:
        for name, some in self._by_home(numbers).items():
            for part in self._parts(some):
                noted, step = [self._noted(name, number) for number in part], self._next()
                self._check_ids((yield own.flow_note(QueueKeys(name), noted, self._plan.id, step)))
                self._noted_by[name] = step

    def _parts(self, numbers: Sequence[int]) -> Iterator[list[int]]:
        part: list[int] = []
        lines = 0
        for number in numbers:
            part.append(number)
            lines += len(self._plan.behind[number])
            if len(part) == AT_ONCE or lines >= _LINES:
                yield part
                part, lines = [], 0
        if part:
            yield part

    def _noted(self, home: str, number: int) -> Noted:
        plan = self._plan
        behind = []
        for other, place in plan.behind[number]:
            there = self._homes[other]
            behind.append(Behind(place, plan.nodes[other].id, "" if there == home else there))
        return Noted(plan.nodes[number].id, f"{plan.id} {number}", behind)

    def _check_ids(self, taken: Sequence[str]) -> None:
        if taken:
            raise InvalidSetting(f"message {taken[0]} is of another flow: send messages with ids of their own")
