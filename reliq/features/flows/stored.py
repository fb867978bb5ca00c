"""What Redis stores of flows: texts in `followed`, and the fields of a flow's record.

A member is `FLOW NUMBER`, then the flows that its handler has opened (`FLOW!` has a dead message, `FLOW-` a cancelled
one), then the marks `h`, its handler has ended, and `r`, it was said to be dead. A line follows for each message behind
it: `PLACE ID`, and that one's home unless it is the same. FlowNews are `OUTCOME ID` and such a record.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from reliq.features.flows.model import Node, decode_node, number_of
from reliq.runtime.pieces import grouped

_MARKS = ("h", "r")


class Behind(NamedTuple):
    """A message that waits for another one. `home`: empty if it is in that one's home."""

    place: int
    id: str
    home: str

    @property
    def text(self) -> str:
        return f"{self.place} {self.id} {self.home}".rstrip() + "\n"

    @classmethod
    def read(cls, line: str) -> Self:
        place, identity, *home = line.split(" ")
        return cls(int(place), identity, home[0] if home else "")


class Noted(NamedTuple):
    """A member of a flow in its home, and who waits for it."""

    id: str
    member: str  #: its flow and its number
    behind: Sequence[Behind]

    @classmethod
    def read(cls, identity: str, record: bytes) -> Self:
        member, *lines = record.decode().split("\n")
        return cls(identity, member, behind=[Behind.read(line) for line in lines if line])

    @property
    def opened(self) -> list[str]:
        """The flows that it waits for, as its handler has opened them."""
        return [one.rstrip("!-") for one in self.member.split(" ")[2:] if one not in _MARKS]


class Happened(NamedTuple):
    """What has happened to one member, and who is to be told."""

    outcome: str
    id: str
    flow: str
    number: int
    behind: Sequence[Behind]

    @classmethod
    def read(cls, text: bytes) -> Self:
        outcome, identity, record = text.split(b" ", 2)
        noted = Noted.read(identity.decode(), record)
        flow, number, *_ = noted.member.split(" ")
        return cls(outcome.decode(), noted.id, flow, int(number), noted.behind)


class FlowNews(NamedTuple):
    """What has happened to members of flows in one home."""

    up_to: int
    any_flows: bool
    happened: Sequence[Happened]


class Ended(NamedTuple):
    """How far a flow is, and what its last messages, for which no other waits, have come to."""

    left: int = 0
    state: str = ""
    parent: str = ""  #: queue and id of the message whose handler has opened it, with a blank between; or empty
    rest: int = 0  #: last messages that have not ended
    dead: int = 0
    failed: int = 0  #: cancelled, deleted, or whatever else is no end as it should be

    @property
    def outcome(self) -> str:
        """What the message whose handler has opened the flow is told."""
        if self.state in ("abandoned", ""):  # the next run of the handler opens another one
            return "acked"
        if self.rest:
            return "open"
        return "cancelled" if self.failed else "dead" if self.dead else "acked"

    @classmethod
    def read(cls, reply: Sequence[Any]) -> Self:
        if not reply:
            return cls()
        left, state, parent, *counts = reply
        return cls(left, state.decode(), (parent or b"").decode(), *(int(one or 0) for one in counts))


def nodes_in(fields: Mapping[str, bytes]) -> tuple[list[Node], dict[int, str]]:
    """Return the members of a flow and what has become of them, from the fields of its record."""
    nodes: list[Node] = []
    while (node := fields.get(f"m{len(nodes)}")) is not None:
        nodes.append(decode_node(node))
    return nodes, {int(name[1:]): one.decode() for name, one in fields.items() if name[:1] == "e"}


def opened_in(fields: Mapping[str, bytes]) -> dict[int, list[str]]:
    """Return the flows that handlers of members have opened, by the numbers of these."""
    opened = ((number_of(number.decode()), name[1:]) for name, number in fields.items() if name[:1] == "c")
    return grouped((member, flow) for member, flow in opened if member is not None)
