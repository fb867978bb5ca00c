"""Flows: messages of which some wait until others have ended."""

import copy
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple, cast, get_args

import msgspec

from reliq import forks
from reliq.contract.keywords import MessageOptions, PublishOptions
from reliq.errors import InvalidMessage, InvalidSetting
from reliq.model.outgoing import NewMessage, check_option_names

MOST_BEHIND = 1000  #: messages that may wait for one: its ack releases all of them
MOST_MEMBERS = 100_000

FLOW, NUMBER = "flow", "flow-member"  #: headers of a member: the id of its flow, and its number there

OnFailure = Literal["fail", "skip", "run"]
RULES: tuple[OnFailure, ...] = get_args(OnFailure)

ACKED, DEAD, REVIVED, DROPPED = "acked", "dead", "revived", "cancelled"
_STATES = {ACKED: "handled", "purged": "cancelled", "discarded": "deleted"}


class Node(msgspec.Struct, array_like=True, frozen=True):
    """A member, as the record of its flow has it."""

    queue: str
    id: str
    after: tuple[int, ...] = ()  #: numbers of the members that it waits for
    on_failure: OnFailure = "fail"


encode_node = msgspec.json.Encoder().encode
decode_node = msgspec.json.Decoder(Node).decode


def number_of(text: str) -> int | None:
    """Return the number of a member; None if the text, which any sender may have put into the header, is no number."""
    return int(text) if text.isdecimal() and len(text) <= len(str(MOST_MEMBERS)) else None


def beginning_of(queue: str, identity: str) -> bytes:
    """Return how the record of its flow begins to tell of a member; headers alone do not show that one is."""
    return msgspec.json.encode((queue, identity)).removesuffix(b"]") + b","


class FlowMessage(NamedTuple):
    """A message of a flow; others name it in `after`."""

    queue: str
    id: str


class AskResults(NamedTuple):
    """What a handler asks for: the results of the messages that its own has waited for."""

    kind: Any = None  #: the type of each; None: JSON as it was stored. Failed members give None


_REFUSED = ("dedup_key", "window", "replace", "debounce", "at_most")


def options_of(options: PublishOptions) -> MessageOptions:
    """Return the options of a message; raises InvalidSetting for those that flows do not take."""
    given = {name: value for name, value in options.items() if name not in _REFUSED or value}
    for name in _REFUSED:
        _check_not_refused(name, given.get(name))
    taken = cast(MessageOptions, given)
    check_option_names(taken, PublishOptions)
    return taken


def _check_not_refused(name: str, value: object) -> None:
    if value is not None:
        raise InvalidSetting(
            f"a message of a flow has no {name}: flows do not take {', '.join(_REFUSED)}, "
            "as others would wait for a message that is not sent"
        )


class Stage(StrEnum):
    """Where a flow is between its call and the end of its block, as an error says it."""

    NEW = "is not open yet"
    OPEN = "is already open"
    ENDING = "is being sent"
    SENT = "is already sent"
    GIVEN_UP = "was given up, and nothing of it was sent"


class Plan:
    """The messages of a flow, before they are sent."""

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)
        self.producer = secrets.token_hex(8)
        self.sent: Sequence[Node] = ()  #: of a flow that an earlier run of the handler has sent
        self._stage, self._mark = Stage.NEW, forks.mark()
        self.nodes: list[Node] = []
        self.messages: list[NewMessage] = []  #: by number
        self.behind: list[list[tuple[int, int]]] = []  #: by number: who waits for the member, and at which place
        self._numbers: dict[FlowMessage, int] = {}

    def begin(self) -> None:
        """Open the block; raises InvalidSetting the second time."""
        if self._stage is not Stage.NEW:
            raise InvalidSetting(f"flow {self.id} {self._stage}: open a new one with app.flow()")
        self._stage, self._mark = Stage.OPEN, forks.mark()

    def check_open(self) -> None:
        """Raise InvalidSetting outside of the block and in a forked child, where a message would never be sent."""
        if self._mark != forks.mark():
            raise InvalidSetting(f"flow {self.id} belongs to the process that forked this one: open a new one here")
        if self._stage is not Stage.OPEN:
            raise InvalidSetting(
                f"flow {self.id} {self._stage}: call its send in the block of `with app.flow() as flow` "
                "(in asyncio `async with`)"
            )

    @contextmanager
    def ending(self, *, given_up: bool) -> Iterator[bool]:
        """End the block; yield whether to send the flow in this context: a forked child leaves that to its parent."""
        self._stage = Stage.ENDING
        try:
            yield not given_up and bool(self.nodes) and not self.sent and self._mark == forks.mark()
        except BaseException:
            given_up = True
            raise
        finally:
            self._stage = Stage.GIVEN_UP if given_up else Stage.SENT

    def add(self, queue: str, message: NewMessage, after: object, on_failure: OnFailure) -> FlowMessage:
        """Add a message; raises InvalidSetting and InvalidMessage.

        What it waits for was added before, so there is no cycle.
        """
        number, before = len(self.nodes), self._numbers_of(after)
        one = FlowMessage(queue, self._sent_id(number, queue) if self.sent else message.id)
        if on_failure not in RULES:
            raise InvalidSetting(f"on_failure is {on_failure!r}: use one of {', '.join(RULES)}")
        _check_not_refused("dedup_key", message.dedup_key)
        if one in self._numbers or number == MOST_MEMBERS:
            why = f"has message {one.id} twice" if one in self._numbers else f"has more than {MOST_MEMBERS:,} messages"
            raise InvalidSetting(f"the flow {why}")
        for place, other in enumerate(before):
            if len(self.behind[other]) == MOST_BEHIND:
                raise InvalidSetting(f"more than {MOST_BEHIND:,} messages wait for one: put another one between them")
            self.behind[other].append((number, place))
        message = copy.copy(message)
        message.headers = {**message.headers, FLOW: self.id, NUMBER: str(number)}
        message.waits = True  # also one behind no others: until all are there
        self.nodes.append(Node(queue, one.id, tuple(before), on_failure))
        self.messages.append(message)
        self.behind.append([])
        self._numbers[one] = number
        return one

    def _sent_id(self, number: int, queue: str) -> str:
        """Return the id of a message that an earlier run of the handler has sent; raises InvalidSetting."""
        former = self.sent[number].queue if number < len(self.sent) else ""
        if former != queue:
            raise InvalidSetting(
                f"an earlier run of this handler has sent flow {self.id}, whose message {number} is "
                f"{f'of queue {former!r}' if former else 'not there'}: let each run send the same messages, or give "
                "the flow another name"
            )
        return self.sent[number].id

    def _numbers_of(self, after: object) -> list[int]:
        some: object = [after] if isinstance(after, FlowMessage) else after
        if isinstance(some, str | bytes) or not isinstance(some, Iterable):
            raise InvalidMessage(f"after is {after!r}: give a list of what `send` of this flow returned")
        return [*dict.fromkeys(map(self._number_of, some))]

    def _number_of(self, one: object) -> int:
        number = self._numbers.get(one) if isinstance(one, FlowMessage) else None
        if number is None:
            raise InvalidMessage(f"after names {one!r}, which is not of this flow: give what its `send` returned")
        return number


@dataclass(frozen=True, slots=True)
class FlowMember:
    """A message of a flow. `state`: waiting, open (in the queue, to be handled), or how it ended."""

    number: int
    queue: str
    id: str
    state: str
    after: tuple[int, ...]
    on_failure: OnFailure
    flows: tuple[str, ...] = ()  #: ids of those that its handler has opened; behind it others wait for these too

    def summary(self) -> dict[str, Any]:
        """Return it as a dict for JSON."""
        return {
            "number": self.number, "queue": self.queue, "id": self.id, "state": self.state, "after": [*self.after],
            "on_failure": self.on_failure, "flows": [*self.flows],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """How far a flow is. `size`: its messages; `open`: those that have not ended; `opened_at`: ms since the epoch."""

    id: str
    state: str  #: sending, open, ended, cancelled or abandoned
    opened_at: int  #: ms since the epoch, the Redis server's clock
    size: int
    open: int  #: messages that have not ended
    members: Sequence[FlowMember] = field(default=(), repr=False)

    def summary(self) -> dict[str, Any]:
        """Return id, state, times (ms) and counts as a dict for JSON."""
        return {
            "id": self.id, "state": self.state, "opened_at": self.opened_at, "size": self.size, "open": self.open,
        }  # fmt: skip

    def graph(self) -> dict[str, Any]:
        """Return the same with `members`, the summaries of all."""
        return {**self.summary(), "members": [one.summary() for one in self.members]}

    def layers(self) -> list[list[FlowMember]]:
        """Return the members by the number of steps before them."""
        depths: list[int] = []
        layers: list[list[FlowMember]] = []
        for one in self.members:
            depth = max((depths[number] + 1 for number in one.after), default=0)
            depths.append(depth)
            layers.extend([] for _ in range(depth + 1 - len(layers)))
            layers[depth].append(one)
        return layers


def members_of(
    nodes: Sequence[Node], outcomes: Mapping[int, str], opened: Mapping[int, Sequence[str]]
) -> Iterator[FlowMember]:
    """Yield the members of a flow with their states."""
    for number, node in enumerate(nodes):
        outcome = outcomes.get(number, "")
        state = _STATES.get(outcome, outcome)
        if outcome in ("", REVIVED):
            held = any(_holds(outcomes.get(one, ""), node.on_failure) for one in node.after)
            state = "waiting" if held else "open"
        flows = tuple(opened.get(number, ()))
        yield FlowMember(number, node.queue, node.id, state, node.after, node.on_failure, flows)


def _holds(outcome: str, rule: OnFailure) -> bool:
    """Whether one that became this lets a message wait that has this rule."""
    return outcome in ("", REVIVED) or (outcome == DEAD and rule == "fail")


class FlowCalls:
    """What a message has for handlers of flows."""

    __slots__ = ()

    def results(self, kind: Any = None) -> Any:
        """Return the results of the messages in `after`, in that order, as a list; await it in async handlers.

        Empty for a message of no flow. Their handlers need `result=`. One that failed, or returned nothing, gives None.
        `kind`: the type of each, as in `reliq.Results[kind]`; a result missing or of another type is an InvalidBody.
        """
        return self._holder().act(self, AskResults(kind))  # type: ignore[attr-defined]
