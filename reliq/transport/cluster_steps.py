"""Steps over the nodes of a cluster: which node gets which request, in which order. No I/O."""

from collections.abc import Container, Generator, Sequence
from typing import Any, TypeVar

from reliq.errors import QueueFull, RedisUnavailable, RedisUnsuitable, ReliqError
from reliq.ops import Request
from reliq.ops.topology import ANY, Node, Part, Slots, cluster_slots
from reliq.transport.calls import carried_out_in_part, only_announces, only_reads, repeatable
from reliq.transport.errors import ConnectionLost, TryAgain
from reliq.transport.server import Server
from reliq.transport.server_check import no_cluster

T = TypeVar("T")
NodeSteps = Generator[tuple[Node | None, Request], Any, T]  #: yields a node and a request for it, receives the answer


def current_slots(server: Server, connected: Container[Node]) -> NodeSteps[Slots]:
    """Return the slot map, read from a node unless it is cached."""
    if server.slots is not None:
        return server.slots
    failure: ConnectionLost | TryAgain | RedisUnavailable = TryAgain("it has no nodes")
    for node in _in_order(server, connected):
        try:
            slots: Slots = yield node, cluster_slots(node)
        except (ConnectionLost, TryAgain, RedisUnavailable) as error:
            failure = error
        except RedisUnsuitable:
            raise
        except ReliqError:
            raise no_cluster(server.where) from None
        else:
            server.learn(slots)
            return slots
    failure.node = ""  # not one of them answers
    if isinstance(failure, ConnectionLost):
        failure.sent = False  # only the question for the slots was sent
    raise failure


def answers_to(parts: Sequence[Part], server: Server, connected: Container[Node] = ()) -> NodeSteps[list[Any]]:
    """Send each part to its node; an error says whether an earlier part was carried out."""
    answers: list[Any] = []
    changed = False
    for part in parts:
        try:
            if len(parts) > 1 and only_announces(part.request):
                answers.append((yield from _announce(part, server)))
            elif part.node is ANY:
                answers.append((yield from _any_node(part.request, server, connected)))
            else:
                answers.append((yield part.node, part.request))
        except (ConnectionLost, TryAgain) as error:
            error.sent = error.sent or changed
            raise
        except QueueFull:
            if changed and all(repeatable(one.request) for one in parts):
                raise carried_out_in_part() from None
            raise
        changed = changed or not only_reads(part.request)
    return answers


def _announce(part: Part, server: Server) -> NodeSteps[list[Any]]:
    """Announce queues, and answer None for each while the node of their names is away: the other parts are not."""
    if part.node is None or not server.is_away(part.node):
        try:
            answers: list[Any] = yield part.node, part.request
        except (ConnectionLost, TryAgain):
            server.learn(None)  # the next call looks for another node that serves the slot
        else:
            return answers
    return [None] * len(part.places)


def _in_order(server: Server, connected: Container[Node]) -> list[Node]:
    """Return the known nodes: those that are away last, as they cost seconds; masters first, of these connected ones.

    A node of the URL may be a replica, since a failover or from the beginning.
    """
    masters = server.masters()
    return sorted(server.known_nodes(), key=lambda one: (server.is_away(one), one not in masters, one not in connected))


def _any_node(request: Request, server: Server, connected: Container[Node]) -> NodeSteps[Any]:
    """Ask one node after another until one answers, connected ones first."""
    failure: Exception = TryAgain("it has no nodes")
    for node in _in_order(server, connected):
        try:
            return (yield node, request)
        except ConnectionLost as error:
            failure = error
            if error.sent and not only_reads(request):
                break
    raise failure
