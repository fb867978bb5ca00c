"""Rules about flows: no message runs before those it waits for, and each is judged by what these have become."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from reliq.features.flows.model import ACKED
from reliq.features.flows.model import DEAD as DIED
from reliq.model.keys import FLOWS, QueueKeys, flow_record
from tests.reference.flows import DEAD_LETTER, HANDLED, IS_BURIED, IS_SKIPPED, LOST, fate, may_go_on
from tests.simulation.stories import DEAD, DELAYED, PARKED, PROCESSING, READY, Message, Place, Story, Violation
from tests.simulation.world import World

_DELETES = frozenset(("delete_received", "delete_flying"))  #: the scripts by which receivers delete

#: A message, the numbers of those it waits for, and its rule.
Node = tuple[Message, tuple[int, ...], str]


@dataclass
class Graph:
    """A flow, as its producer knows it."""

    id: str
    members: Sequence[Node]
    process: Any
    sent: bool = False  #: its producer was told that it is sent
    refused: bool = False  #: its producer was told that nothing of it is sent
    given_up: bool = False  #: it was cancelled, or its producer was told that it is not sent
    ever: list[set[str]] = field(default_factory=list)  #: what each member has ever become
    buried: set[int] = field(default_factory=set)  #: those that wait for nothing any more: a redrive runs them


class Graphs:
    """All flows."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._graphs: list[Graph] = []
        self._of: dict[Message, tuple[Graph, int]] = {}
        self._moved: list[Message] = []  #: members that the latest step has moved

    def begins(self, identity: str, members: Sequence[Node], process: Any) -> Graph:
        """A flow is being sent."""
        graph = Graph(identity, members, process, ever=[set() for _ in members])
        self._graphs.append(graph)
        self._of |= {message: (graph, number) for number, (message, _, _) in enumerate(members)}
        return graph

    # --- steps ---

    def next_step(self) -> None:
        self._moved.clear()

    def moved(
        self, process: Any, causes: Sequence[str], message: Message, story: Story, old: Place | None, new: Place | None
    ) -> None:
        """A message was moved, or waits for its flow no more."""
        dropped = new is None and (
            "flow_drop" in causes or (old is not None and old.state == DELAYED and "promote" in causes)
        )
        if message not in self._of:
            if dropped:
                raise Violation(f"{message[1]} is dropped as the member of a flow, and is of none")
            if new is not None and new.waits_for_flow:
                raise Violation(f"{message[1]} waits for a flow, and is of none")
            return
        graph, number = self._of[message]
        self._moved.append(message)
        if new is not None and new.state == DEAD:
            graph.ever[number].add(DEAD_LETTER)
            if "flow_bury" in causes:
                self._is_judged(graph, number, IS_BURIED)
                graph.buried.add(number)
        elif new is None and old is not None:
            graph.ever[number].add(HANDLED if _was_handled(causes, story, old) else LOST)
            if "flow_tell" in causes:
                self._is_judged(graph, number, IS_SKIPPED)
            if dropped and not self._may_be_given_up(graph, process):
                raise Violation(f"{message[1]} of flow {graph.id} is given up, and nobody wanted that")

    def _is_judged(self, graph: Graph, number: int, end: str) -> None:
        (_, identity), after, rule = graph.members[number]
        ever = [self._ever(graph, before) for before in after]
        if not any(fate(rule, one) == end for became in ever for one in became):
            became = [*map(sorted, ever)]
            raise Violation(f"{identity} of flow {graph.id} {end} by its rule {rule}, behind {became}")

    def _ever(self, graph: Graph, number: int) -> set[str]:
        """Return what a member has ever become; one that a restart has undone, or that was not sent, is lost."""
        gone = graph.members[number][0] not in self._world.where
        lost = gone and (self._world.restarted or (not graph.sent and self._world.excused(graph.process)))
        return graph.ever[number] | {LOST} if lost else graph.ever[number]

    def _may_be_given_up(self, graph: Graph, process: Any) -> bool:
        """Whether a flow was cancelled, its producer cannot send it, or a monitor may take that for dead.

        A restart may have undone that it was sent as a whole.
        """
        unsent = not graph.sent and (process is graph.process or self._world.excused(graph.process))
        return graph.given_up or unsent or self._world.restarted

    def check(self) -> None:
        """At the end of a step: what it has let go has nothing to wait for; see `_check_first`."""
        for message in self._moved:
            graph, number = self._of[message]
            place = self._world.where.get(message)
            if place is None or place.state not in (READY, PROCESSING, PARKED) or place.waits_for_flow:
                continue
            _, after, rule = graph.members[number]
            if number in graph.buried or self._world.restarted:
                continue
            if not may_go_on(rule, [graph.ever[before] for before in after]):
                raise Violation(f"{message[1]} of flow {graph.id} goes on, and waits for others by its rule {rule}")
        self._check_first()

    def _check_first(self) -> None:
        """Nothing of a flow runs before all of it is sent, and nothing of one that was refused."""
        for graph in {self._of[one][0].id: self._of[one][0] for one in self._moved}.values():
            run = [one for one, _, _ in graph.members if self._world.stories[one].runs]
            late = [one for one, _, _ in graph.members if self._world.stories[one].entered_at is None]
            state = self._world.server.fields(flow_record(graph.id)).get(b"state") if run else None
            if state == b"sending" and not self._world.restarted:
                raise Violation(f"{run[0][1]} of flow {graph.id} runs, which is still being sent")
            if run and graph.refused:
                raise Violation(f"{run[0][1]} of flow {graph.id} runs, whose producer was told that none is sent")
            if run and late and not graph.given_up and not self._world.restarted:
                raise Violation(f"{run[0][1]} of flow {graph.id} runs, and {late[0][1]} is not there yet")

    # --- the end ---

    def waiting(self) -> Iterator[Message]:
        """Yield the members that wait rightly for ever: behind a dead letter, or behind one of these."""
        for graph in self._graphs:
            stuck = set[int]()
            for number, (message, after, rule) in enumerate(graph.members):
                place = self._world.where.get(message)
                if place is None or not (place.waits_for_flow or place.state == DELAYED):
                    continue
                if any(before in stuck or (self._is_dead(graph, before) and rule == "fail") for before in after):
                    stuck.add(number)
                    if place.waits_for_flow:
                        yield message

    def lost(self) -> Iterator[Message]:
        """Yield the members of flows whose record a restart has undone, and whose producer died before it saw that.

        They wait until somebody cancels them (`docs/concepts/guarantees.md`).
        """
        for graph in self._graphs:
            died = not graph.sent and self._world.excused(graph.process)
            if self._world.restarted and died and not self._world.server.fields(flow_record(graph.id)):
                yield from (one for one, _, _ in graph.members if one in self._world.where)

    def _is_dead(self, graph: Graph, number: int) -> bool:
        place = self._world.where.get(graph.members[number][0])
        return place is not None and place.state == DEAD

    def unfinished(self) -> list[str]:
        """Return the flows that are open although all of their messages have ended, and news that nobody has told."""
        homes = {
            home for graph in self._graphs for one, _, _ in graph.members for home in self._world.partitions(one[0])
        }
        found = [f"news in {home}" for home in sorted(homes) if self._news(home)]
        for raw in self._world.server.members(FLOWS):
            identity = raw.decode()
            graph = next((one for one in self._graphs if one.id == identity), None)
            state = self._world.server.fields(flow_record(identity)).get(b"state", b"")
            is_sent = graph is not None and graph.sent and not self._world.restarted
            stays = graph is not None and any(self._is_dead(graph, number) for number in range(len(graph.members)))
            if state == b"sending" or (is_sent and state == b"open" and not stays):
                found.append(f"flow {identity} is {state.decode()}")
        return found

    def _news(self, home: str) -> bool:
        """Whether anything that has happened in a partition is not told yet."""
        fields = self._world.server.fields(QueueKeys(home).followed)
        return any(one.startswith(b"\v\v\v\v") and one != b"\v\v\v\v" for one in fields)

    def check_end(self) -> None:
        """The record of each flow says what has become of its members, and nothing else is known of them."""
        if self._world.restarted:
            return
        for graph in self._graphs:
            fields = self._world.server.fields(flow_record(graph.id))
            if not graph.sent or graph.given_up:
                continue
            for number, (message, _, _) in enumerate(graph.members):
                said = fields.get(b"e%d" % number, b"").decode()
                if self._is_dead(graph, number):
                    right = said == DIED
                else:
                    right = (said == ACKED) == (HANDLED in graph.ever[number]) and said != ""
                if not right:
                    became = sorted(graph.ever[number])
                    raise Violation(f"{message[1]} of flow {graph.id} is said to be {said!r}, and was {became}")

    def check_rest(self, partition: str, fields: dict[bytes, bytes], config: dict[bytes, bytes]) -> None:
        """What a partition knows of flows at the end is of messages that are there, or of flows that were given up."""
        known = [one for one in fields if one.startswith(b"\v") and not one.startswith(b"\v\v\v")]
        if int(config.get(b"flowing", 0)) != len(known):
            raise Violation(
                f"{config.get(b'flowing')!r} members of flows are counted in {partition}, there are {known}"
            )
        there = {identity.encode() for _, identity in self._world.there(partition)}
        sent = {
            one[1].encode()
            for graph in self._graphs
            if graph.sent and not graph.given_up
            for one, _, _ in graph.members
        }
        left = [one for one in known if one.lstrip(b"\v") in sent - there]
        if left and not self._world.restarted:
            raise Violation(f"members of flows are left in {partition}: {left}")


def _was_handled(causes: Sequence[str], story: Story, old: Place) -> bool:
    """Whether a message that is gone was handled; else it was cancelled, or removed."""
    ran = any(run.outcome == "ack" and run.consumer == old.consumer for run in story.runs)
    return (old.state == PROCESSING and ran) or not _DELETES.isdisjoint(causes)
